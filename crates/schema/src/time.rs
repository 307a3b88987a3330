//! The API's instants: RFC 3339 with seconds (`Time`) or with six digits of microseconds (`MicroTime`), always in UTC.

use std::fmt;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const LAYOUT_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Go's zero time, the first of January of the year 1: it stands for "not set".
const GO_ZERO_SECONDS: i64 = -62_135_596_800;

/// An instant with the precision protobuf carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    /// Seconds since the Unix epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds within the second, below one billion.
    pub nanos: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error(
        "parsing time {} as {layout:?}: cannot parse {} as {element:?}",
        quote(text),
        quote(rest)
    )]
    Mismatch {
        text: String,
        layout: &'static str,
        rest: String,
        element: &'static str,
    },
    #[error("parsing time {}: {what} out of range", quote(text))]
    OutOfRange { text: String, what: &'static str },
    #[error("parsing time {}: extra text: {}", quote(text), quote(rest))]
    ExtraText { text: String, rest: String },
}

/// In quotes as Go's time package writes them: what is not plain ASCII byte by byte.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', byte.into()]),
            b' '..=b'~' | 0x7f => quoted.push(byte.into()),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

/// The current instant.
pub fn now() -> Instant {
    let since = clock::since_epoch();
    Instant {
        seconds: since.as_secs() as i64,
        nanos: since.subsec_nanos(),
    }
}

/// Reads RFC 3339 with or without a fraction, in any time zone.
pub fn parse(text: &str) -> Result<Instant, TimeError> {
    Parser {
        text,
        rest: text,
        layout: LAYOUT,
    }
    .instant()
}

/// Reads RFC 3339 with exactly six digits of fraction, in any time zone.
pub fn parse_micro(text: &str) -> Result<Instant, TimeError> {
    Parser {
        text,
        rest: text,
        layout: LAYOUT_MICRO,
    }
    .instant()
}

/// `2006-01-02T15:04:05Z`
pub fn format(instant: Instant) -> String {
    format!("{}Z", DateTime::from(instant))
}

/// `2006-01-02T15:04:05.000000Z`
pub fn format_micro(instant: Instant) -> String {
    format!("{}.{:06}Z", DateTime::from(instant), instant.nanos / 1000)
}

impl Instant {
    /// Whether this is Go's zero time, which the API takes for "not set".
    pub fn is_zero(self) -> bool {
        self.seconds == GO_ZERO_SECONDS && self.nanos == 0
    }

    /// Whether the instant falls in the years 0 to 9999, which RFC 3339 can write.
    pub fn is_representable(self) -> bool {
        (days_from_civil(0, 1, 1) * 86400..days_from_civil(10000, 1, 1) * 86400).contains(&self.seconds)
    }
}

/// An instant split into the parts a calendar shows.
struct DateTime {
    year: i64,
    month: u32,
    day: u32,
    second_of_day: i64,
}

impl From<Instant> for DateTime {
    fn from(instant: Instant) -> Self {
        let (year, month, day) = civil_from_days(instant.seconds.div_euclid(86400));
        DateTime {
            year,
            month,
            day,
            second_of_day: instant.seconds.rem_euclid(86400),
        }
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.second_of_day;
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            self.year,
            self.month,
            self.day,
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Parser<'_> {
    fn instant(mut self) -> Result<Instant, TimeError> {
        let year = self.number(4, "2006")?;
        self.literal('-', "-")?;
        let month = self.number(2, "01")?;
        self.check((1..=12).contains(&month), "month")?;
        self.literal('-', "-")?;
        let day = self.number(2, "02")?;
        self.literal('T', "T")?;
        let hour = self.hour()?;
        self.check(hour < 24, "hour")?;
        self.literal(':', ":")?;
        let minute = self.number(2, "04")?;
        self.check(minute < 60, "minute")?;
        self.literal(':', ":")?;
        let second = self.number(2, "05")?;
        self.check(second < 60, "second")?;
        let nanos = self.fraction()?;
        let offset = self.zone()?;
        self.check(day >= 1 && day <= days_in_month(year, month as u32), "day")?;
        if !self.rest.is_empty() {
            return Err(TimeError::ExtraText {
                text: self.text.into(),
                rest: self.rest.into(),
            });
        }
        let days = days_from_civil(year, month as u32, day as u32);
        Ok(Instant {
            seconds: days * 86400 + hour * 3600 + minute * 60 + second - offset,
            nanos,
        })
    }

    fn number(&mut self, digits: usize, element: &'static str) -> Result<i64, TimeError> {
        let parsed = self
            .rest
            .get(..digits)
            .filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        match parsed.and_then(|part| part.parse().ok()) {
            Some(number) => {
                self.rest = &self.rest[digits..];
                Ok(number)
            }
            None => Err(self.mismatch(element)),
        }
    }

    /// Go forgives an hour of one digit.
    fn hour(&mut self) -> Result<i64, TimeError> {
        let second_is_digit = self.rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        self.number(if second_is_digit { 2 } else { 1 }, "15")
    }

    fn literal(&mut self, expected: char, element: &'static str) -> Result<(), TimeError> {
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.mismatch(element)),
        }
    }

    fn fraction(&mut self) -> Result<u32, TimeError> {
        let digits = match self.rest.strip_prefix(['.', ',']) {
            Some(rest) => rest.bytes().take_while(u8::is_ascii_digit).count(),
            None => 0,
        };
        if self.layout == LAYOUT_MICRO {
            if digits < 6 {
                return Err(self.mismatch(".000000"));
            }
            let nanos = nanos_of(&self.rest[1..7]);
            self.rest = &self.rest[7..];
            return Ok(nanos);
        }
        if digits == 0 {
            return Ok(0);
        }
        let nanos = nanos_of(&self.rest[1..=digits]);
        self.rest = &self.rest[1 + digits..];
        Ok(nanos)
    }

    /// Seconds east of UTC.
    fn zone(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let well_formed = bytes.len() >= 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|&at| bytes[at].is_ascii_digit());
        if !well_formed {
            return Err(self.mismatch("Z07:00"));
        }
        let digit = |at: usize| i64::from(bytes[at] - b'0');
        let (hours, minutes) = (digit(1) * 10 + digit(2), digit(4) * 10 + digit(5));
        let sign = if bytes[0] == b'-' { -1 } else { 1 };
        self.check(hours <= 24, "time zone offset hour")?;
        self.check(minutes <= 60, "time zone offset minute")?;
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 3600 + minutes * 60))
    }

    fn check(&self, holds: bool, what: &'static str) -> Result<(), TimeError> {
        if holds {
            return Ok(());
        }
        Err(TimeError::OutOfRange {
            text: self.text.into(),
            what,
        })
    }

    fn mismatch(&self, element: &'static str) -> TimeError {
        TimeError::Mismatch {
            text: self.text.into(),
            layout: self.layout,
            rest: self.rest.into(),
            element,
        }
    }
}

fn nanos_of(digits: &str) -> u32 {
    let mut nanos = 0;
    let mut unit = 100_000_000;
    for byte in digits.bytes().take(9) {
        nanos += u32::from(byte - b'0') * unit;
        unit /= 10;
    }
    nanos
}

fn days_in_month(year: i64, month: u32) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since the Unix epoch of a day of the proleptic Gregorian calendar. Years are counted from March, so that the
/// leap day is a year's last.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    } as u32;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_zone_and_fraction_becomes_utc_seconds() {
        let rows = [
            ("2024-02-29T12:00:00Z", "2024-02-29T12:00:00Z"),
            ("2024-02-29T12:00:00+02:00", "2024-02-29T10:00:00Z"),
            ("2024-02-29T12:00:00.999999999-00:30", "2024-02-29T12:30:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ];
        for (input, expected) in rows {
            assert_eq!(format(parse(input).unwrap()), expected);
        }
        assert!(parse("0001-01-01T00:00:00Z").unwrap().is_zero());
    }

    #[test]
    fn micro_times_have_exactly_six_digits() {
        let instant = parse_micro("2024-01-01T00:00:00.000123Z").unwrap();
        assert_eq!(format_micro(instant), "2024-01-01T00:00:00.000123Z");
        assert_eq!(
            parse_micro("2024-01-01T00:00:00Z").unwrap_err().to_string(),
            r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }

    #[test]
    fn errors_read_as_go_writes_them() {
        let rows = [
            (
                "",
                r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
            ),
            (
                "2024-13-01T00:00:00Z",
                r#"parsing time "2024-13-01T00:00:00Z": month out of range"#,
            ),
            (
                "2023-02-29T00:00:00Z",
                r#"parsing time "2023-02-29T00:00:00Z": day out of range"#,
            ),
            (
                "2023-02-28T00:00:00Zx",
                r#"parsing time "2023-02-28T00:00:00Zx": extra text: "x""#,
            ),
        ];
        for (input, expected) in rows {
            assert_eq!(parse(input).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn every_day_survives_the_calendar() {
        for days in (-800_000..3_000_000).step_by(97) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}
