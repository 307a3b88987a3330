//! Points in time and durations.

use super::Price::{Step, Walk};
use super::{Row, strings};
use crate::error::failed;
use crate::{EvalError, Value};

const SECOND: i128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

pub const TABLE: &[Row] = &[
    Row("timestamp(timestamp): timestamp", Step, |v| Ok(v[0].clone())),
    Row("timestamp(string): timestamp", Walk, |v| {
        parse(strings::text(&v[0])).map(Value::Timestamp)
    }),
    Row("timestamp(int): timestamp", Step, |v| {
        Ok(Value::Timestamp(v[0].integer().unwrap_or(0) * SECOND))
    }),
    Row("duration(duration): duration", Step, |v| Ok(v[0].clone())),
    Row("duration(string): duration", Walk, |v| {
        parse_duration(strings::text(&v[0])).map(Value::Duration)
    }),
    Row("<timestamp>.getFullYear(): int", Step, |v| field(v, |t| t.year)),
    Row("<timestamp>.getFullYear(string): int", Step, |v| field(v, |t| t.year)),
    Row("<timestamp>.getMonth(): int", Step, |v| field(v, |t| t.month - 1)),
    Row("<timestamp>.getMonth(string): int", Step, |v| field(v, |t| t.month - 1)),
    Row("<timestamp>.getDate(): int", Step, |v| field(v, |t| t.day)),
    Row("<timestamp>.getDate(string): int", Step, |v| field(v, |t| t.day)),
    Row("<timestamp>.getDayOfMonth(): int", Step, |v| field(v, |t| t.day - 1)),
    Row("<timestamp>.getDayOfMonth(string): int", Step, |v| {
        field(v, |t| t.day - 1)
    }),
    Row("<timestamp>.getDayOfWeek(): int", Step, |v| {
        field(v, |t| (t.days + 4).rem_euclid(7))
    }),
    Row("<timestamp>.getDayOfWeek(string): int", Step, |v| {
        field(v, |t| (t.days + 4).rem_euclid(7))
    }),
    Row("<timestamp>.getDayOfYear(): int", Step, |v| {
        field(v, |t| t.days - days_from_civil(t.year, 1, 1))
    }),
    Row("<timestamp>.getDayOfYear(string): int", Step, |v| {
        field(v, |t| t.days - days_from_civil(t.year, 1, 1))
    }),
    Row("<timestamp>.getHours(): int", Step, |v| field(v, |t| t.second / 3600)),
    Row("<timestamp>.getHours(string): int", Step, |v| {
        field(v, |t| t.second / 3600)
    }),
    Row("<timestamp>.getMinutes(): int", Step, |v| {
        field(v, |t| t.second / 60 % 60)
    }),
    Row("<timestamp>.getMinutes(string): int", Step, |v| {
        field(v, |t| t.second / 60 % 60)
    }),
    Row("<timestamp>.getSeconds(): int", Step, |v| field(v, |t| t.second % 60)),
    Row("<timestamp>.getSeconds(string): int", Step, |v| {
        field(v, |t| t.second % 60)
    }),
    Row("<timestamp>.getMilliseconds(): int", Step, |v| {
        field(v, |t| t.nanos / 1_000_000)
    }),
    Row("<timestamp>.getMilliseconds(string): int", Step, |v| {
        field(v, |t| t.nanos / 1_000_000)
    }),
    Row("<duration>.getHours(): int", Step, |v| part(v, 3_600_000_000_000)),
    Row("<duration>.getMinutes(): int", Step, |v| part(v, 60_000_000_000)),
    Row("<duration>.getSeconds(): int", Step, |v| part(v, 1_000_000_000)),
    Row("<duration>.getMilliseconds(): int", Step, |v| part(v, 1_000_000)),
];

struct Civil {
    year: i64,
    month: i64,
    day: i64,
    /// Days since 1970.
    days: i64,
    second: i64,
    nanos: i64,
}

pub fn parse(text: &str) -> Result<i128, EvalError> {
    let instant = schema::time::parse(text).map_err(|_| failed(format!("invalid timestamp {text:?}")))?;
    Ok(i128::from(instant.seconds) * SECOND + i128::from(fraction(text)))
}

/// The nanoseconds of an RFC 3339 text; the API's own times have none.
fn fraction(text: &str) -> i64 {
    let Some((_, rest)) = text.split_once('.') else {
        return 0;
    };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).take(9).collect();
    format!("{digits:0<9}").parse().unwrap_or(0)
}

pub fn format(at: i128) -> String {
    let time = civil(at, 0);
    let (hours, minutes, seconds) = (time.second / 3600, time.second / 60 % 60, time.second % 60);
    let fraction = match time.nanos {
        0 => String::new(),
        nanos => format!(".{}", format!("{nanos:09}").trim_end_matches('0')),
    };
    format!(
        "{:04}-{:02}-{:02}T{hours:02}:{minutes:02}:{seconds:02}{fraction}Z",
        time.year, time.month, time.day
    )
}

/// `1h30m`, `-1.5s`, `300ms`, as Go reads durations.
pub fn parse_duration(text: &str) -> Result<i64, EvalError> {
    let bad = || failed(format!("time: invalid duration {text:?}"));
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(bad());
    }
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |at| digits + at);
        let unit = match &rest[digits..unit_end] {
            "h" => 3.6e12,
            "m" => 6e10,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" | "μs" => 1e3,
            "ns" => 1.0,
            _ => return Err(bad()),
        };
        nanos += number * unit;
        rest = &rest[unit_end..];
    }
    match nanos < 9.2e18 {
        true => Ok((sign * nanos).round() as i64),
        false => Err(bad()),
    }
}

/// Seconds with a fraction, as protobuf writes durations.
pub fn format_duration(nanos: i64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, (nanos % 1_000_000_000).abs());
    let sign = if nanos < 0 && seconds == 0 { "-" } else { "" };
    match rest {
        0 => format!("{seconds}s"),
        rest => format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}

fn part(v: &[Value], unit: i64) -> Result<Value, EvalError> {
    match &v[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / unit)),
        _ => Err(failed("no such overload")),
    }
}

fn field(v: &[Value], read: fn(&Civil) -> i64) -> Result<Value, EvalError> {
    let Value::Timestamp(at) = &v[0] else {
        return Err(failed("no such overload"));
    };
    let offset = match v.get(1) {
        Some(zone) => zone_offset(strings::text(zone))?,
        None => 0,
    };
    Ok(Value::Int(read(&civil(*at, offset))))
}

/// Seconds east of Greenwich of `UTC`, `+01:30` or `-08:00`. The names of regions need a database that we do not have.
fn zone_offset(zone: &str) -> Result<i64, EvalError> {
    if matches!(zone, "" | "UTC" | "Z") {
        return Ok(0);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let parsed = rest.split_once(':').and_then(|(hours, minutes)| {
        let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
        Some(sign * (hours * 3600 + minutes * 60))
    });
    parsed.ok_or_else(|| failed(format!("unknown time zone {zone}")))
}

fn civil(at: i128, offset_seconds: i64) -> Civil {
    let seconds = i64::try_from(at.div_euclid(SECOND)).unwrap_or(0) + offset_seconds;
    let days = seconds.div_euclid(DAY_SECONDS);
    // Days are counted from the first of March of the year 0, so that leap days come last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    Civil {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month,
        day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
        days,
        second: seconds.rem_euclid(DAY_SECONDS),
        nanos: at.rem_euclid(SECOND) as i64,
    }
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}
