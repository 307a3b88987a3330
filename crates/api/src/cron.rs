//! Schedules as cron writes them, and the time zones they are read in.
//!
//! The grammar and the messages are those clients know: five fields, `@hourly` and its kin, `@every 90s`, and an
//! optional `TZ=` in front, which only old objects have.

mod fields;
mod zone;

use fields::Fields;
pub use zone::TimeZone;

/// How far ahead a schedule is searched for its next time; `0 0 31 2 *` never comes.
const HORIZON_SECONDS: i64 = 5 * 366 * DAY;
/// The missed times that are gone through one by one.
const MANY_MISSED: i64 = 100;
/// How far back the latest time is looked for, ever further.
const LOOK_BACK: [i64; 5] = [HOUR, DAY, 31 * DAY, 366 * DAY, HORIZON_SECONDS];
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// When jobs start.
#[derive(Clone, Debug)]
pub struct Schedule {
    times: Times,
    /// The zone that the schedule itself names.
    pub zone: Option<TimeZone>,
}

#[derive(Clone, Debug)]
enum Times {
    At(Fields),
    EverySeconds(i64),
}

impl Schedule {
    pub fn parse(text: &str) -> Result<Schedule, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let prefixed = ["TZ=", "CRON_TZ="].iter().find_map(|prefix| text.strip_prefix(prefix));
        let (zone, rest) = match prefixed {
            Some(rest) => {
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let bad = |error| format!("provided bad location {name}: {error}");
                (Some(TimeZone::named(name).map_err(bad)?), rest.trim())
            }
            None => (None, text),
        };
        let times = match rest.strip_prefix('@') {
            Some(_) => descriptor(rest)?,
            None => Times::At(Fields::parse(rest)?),
        };
        Ok(Schedule { times, zone })
    }

    /// The first time after `after`, in seconds since the epoch; `None` when it never comes.
    pub fn next(&self, after: i64, zone: &TimeZone) -> Option<i64> {
        let fields = match &self.times {
            Times::EverySeconds(seconds) => return Some(after + seconds),
            Times::At(fields) => fields,
        };
        let zone = self.zone.as_ref().unwrap_or(zone);
        let mut time = after.div_euclid(MINUTE) * MINUTE + MINUTE;
        while time <= after + HORIZON_SECONDS {
            let local = time + zone.offset_at(time);
            let of_day = local.rem_euclid(DAY);
            if !fields.has_day(local) {
                // The hours around midnight, when clocks may be changed, are looked at one by one.
                let step = (DAY - 2 * HOUR) - of_day;
                time += if step > 0 { step } else { HOUR - local.rem_euclid(HOUR) };
            } else if !fields.has_hour(of_day / HOUR) {
                time += HOUR - local.rem_euclid(HOUR);
            } else if !fields.has_minute(local.rem_euclid(HOUR) / MINUTE) {
                time += MINUTE - local.rem_euclid(MINUTE);
            } else {
                return Some(time);
            }
        }
        None
    }

    /// The last time after `after` that is not after `now`; `None` when none has come.
    pub fn latest(&self, after: i64, now: i64, zone: &TimeZone) -> Option<Latest> {
        if let Times::EverySeconds(seconds) = &self.times {
            let passed = (now - after) / seconds;
            return (passed > 0).then_some(Latest {
                at: after + passed * seconds,
                missed: passed,
            });
        }
        let mut latest = None;
        let mut missed = 0;
        let mut time = after;
        while missed <= MANY_MISSED {
            match self.next(time, zone).filter(|next| *next <= now) {
                Some(next) => (time, missed, latest) = (next, missed + 1, Some(next)),
                None => return latest.map(|at| Latest { at, missed }),
            }
        }
        // Too many to go through: the latest one is looked for from now backwards.
        let recent = LOOK_BACK.iter().find_map(|seconds| {
            let from = (now - seconds).max(time);
            let times = std::iter::successors(self.next(from, zone), |time| self.next(*time, zone));
            times.take_while(|next| *next <= now).last()
        });
        let at = recent.unwrap_or(time);
        Some(Latest { at, missed })
    }
}

/// The last time that has come, and how many have since the time that was asked about, up to one more than are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latest {
    pub at: i64,
    missed: i64,
}

impl Latest {
    /// So many that something must be wrong with a clock, or has been down for long.
    pub fn is_many(self) -> bool {
        self.missed > MANY_MISSED
    }
}

fn descriptor(text: &str) -> Result<Times, String> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let every = text.strip_prefix("@every ");
            let duration = every.ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
            let seconds = seconds(duration)
                .filter(|seconds| *seconds <= LONGEST_SECONDS)
                .ok_or_else(|| format!("failed to parse duration {text}: time: invalid duration {duration:?}"))?;
            return Ok(Times::EverySeconds((seconds as i64).max(1)));
        }
    };
    Ok(Times::At(Fields::parse(fields)?))
}

/// The longest duration that upstream knows: it counts nanoseconds in 64 bits.
const LONGEST_SECONDS: f64 = i64::MAX as f64 / 1e9;

/// A duration such as `1h30m` or `1.5h`, in seconds.
fn seconds(text: &str) -> Option<f64> {
    let (mut rest, mut total) = (text.strip_prefix('+').unwrap_or(text), 0.0);
    if rest == "0" {
        return Some(0.0);
    }
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest
            .find(|letter: char| letter.is_ascii_digit() || letter == '.')
            .unwrap_or(rest.len());
        total += number
            * match &rest[..letters] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" | "μs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;

    use super::*;

    fn unix(text: &str) -> i64 {
        OffsetDateTime::parse(text, &Rfc3339).unwrap().unix_timestamp()
    }

    fn check(schedule: &str, zone: &str, after: &str, expected: &[&str]) {
        let (schedule, zone) = (Schedule::parse(schedule).unwrap(), TimeZone::named(zone).unwrap());
        let mut time = unix(after);
        for next in expected {
            time = schedule.next(time, &zone).unwrap();
            assert_eq!(zone.format(time), *next);
        }
    }

    #[test]
    fn times_follow_the_fields() {
        let new_year = "2026-01-01T00:00:00Z";
        check(
            "*/15 * * * *",
            "UTC",
            "2026-01-01T00:07:30Z",
            &["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"],
        );
        check("@hourly", "UTC", new_year, &["2026-01-01T01:00:00Z"]);
        check(
            "0 9-17/4 * * mon-fri",
            "UTC",
            "2026-01-02T17:00:00Z",
            &["2026-01-05T09:00:00Z", "2026-01-05T13:00:00Z"],
        );
        check("59 23 29 feb *", "UTC", new_year, &["2028-02-29T23:59:00Z"]);
        check("@every 1h30m", "UTC", new_year, &["2026-01-01T01:30:00Z"]);
    }

    #[test]
    fn a_day_matches_either_field_when_both_are_given() {
        check(
            "0 0 13 * 5",
            "UTC",
            "2026-02-07T00:00:00Z",
            &["2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"],
        );
        check(
            "0 0 13 * *",
            "UTC",
            "2026-02-07T00:00:00Z",
            &["2026-02-13T00:00:00Z", "2026-03-13T00:00:00Z"],
        );
    }

    #[test]
    fn clocks_that_are_set_skip_and_repeat_times() {
        let york = "America/New_York";
        let skipped = ["2026-03-09T02:30:00-04:00"];
        check("30 2 * * *", york, "2026-03-07T12:00:00Z", &skipped);
        let twice = [
            "2026-11-01T01:00:00-04:00",
            "2026-11-01T01:00:00-05:00",
            "2026-11-02T01:00:00-05:00",
        ];
        check("0 1 * * *", york, "2026-10-31T12:00:00Z", &twice);
        check(
            "0 0 * * *",
            "Asia/Kolkata",
            "2050-06-01T00:00:00Z",
            &["2050-06-02T00:00:00+05:30"],
        );
    }

    #[test]
    fn a_time_that_never_comes_is_told() {
        let schedule = Schedule::parse("0 0 31 2 *").unwrap();
        assert_eq!(schedule.next(0, &TimeZone::utc()), None);
    }

    #[test]
    fn the_latest_of_many_missed_times_is_found() {
        let check = |schedule: &str, after: &str, now: &str, expected: &str, many: bool| {
            let latest = Schedule::parse(schedule)
                .unwrap()
                .latest(unix(after), unix(now), &TimeZone::utc());
            let found = latest.map_or(String::new(), |latest| TimeZone::utc().format(latest.at));
            assert_eq!(
                (found.as_str(), latest.is_some_and(Latest::is_many)),
                (expected, many),
                "{schedule}"
            );
        };
        let new_year = "2026-01-01T00:00:00Z";
        check("@hourly", new_year, "2026-01-01T00:59:59Z", "", false);
        check(
            "@hourly",
            new_year,
            "2026-01-01T03:10:00Z",
            "2026-01-01T03:00:00Z",
            false,
        );
        check(
            "* * * * *",
            new_year,
            "2026-06-01T00:00:30Z",
            "2026-06-01T00:00:00Z",
            true,
        );
        check(
            "0 0 1 * *",
            "1990-01-01T00:00:00Z",
            "2026-06-20T00:00:00Z",
            "2026-06-01T00:00:00Z",
            true,
        );
        check(
            "@every 7m",
            new_year,
            "2026-01-01T00:20:00Z",
            "2026-01-01T00:14:00Z",
            false,
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_in_known_words() {
        for (text, message) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
            (
                "@every x",
                "failed to parse duration @every x: time: invalid duration \"x\"",
            ),
            (
                "@every 2562048h",
                "failed to parse duration @every 2562048h: time: invalid duration \"2562048h\"",
            ),
        ] {
            assert_eq!(Schedule::parse(text).unwrap_err(), message, "{text}");
        }
    }
}
