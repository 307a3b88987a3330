//! Points in time as the API writes them.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds and microseconds since the epoch; what planners are told as "now" and timestamps are parsed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    us: i64,
}

impl Moment {
    pub fn now() -> Moment {
        Moment {
            us: i64::try_from(clock::since_epoch().as_micros()).unwrap_or(i64::MAX),
        }
    }

    pub const fn from_seconds(seconds: i64) -> Moment {
        Moment {
            us: seconds.saturating_mul(1_000_000),
        }
    }

    /// Reads a `Time` or a `MicroTime`.
    pub fn parse(text: &str) -> Option<Moment> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let us = i64::try_from(parsed.unix_timestamp_nanos() / 1000).ok()?;
        Some(Moment { us })
    }

    pub fn seconds(self) -> i64 {
        self.us.div_euclid(1_000_000)
    }

    /// `2026-01-31T08:05:09Z`, as a `Time` is written.
    pub fn to_time(self) -> String {
        let (date, clock) = self.parts();
        format!("{date}T{clock}Z")
    }

    /// `2026-01-31T08:05:09.012345Z`, as a `MicroTime` is written.
    pub fn to_micro_time(self) -> String {
        let (date, clock) = self.parts();
        format!("{date}T{clock}.{:06}Z", self.us.rem_euclid(1_000_000))
    }

    /// The time from `earlier` to this moment; zero when it lies ahead.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(u64::try_from(self.us.saturating_sub(earlier.us)).unwrap_or(0))
    }

    pub fn plus(self, duration: Duration) -> Moment {
        let us = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Moment {
            us: self.us.saturating_add(us),
        }
    }

    fn parts(self) -> (String, String) {
        let moment = OffsetDateTime::from_unix_timestamp(self.seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let date = format!(
            "{:04}-{:02}-{:02}",
            moment.year(),
            u8::from(moment.month()),
            moment.day()
        );
        let clock = format!("{:02}:{:02}:{:02}", moment.hour(), moment.minute(), moment.second());
        (date, clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_in_both_forms() {
        let moment = Moment::parse("2026-01-31T09:05:09.012345+01:00").unwrap();
        assert_eq!(moment.to_time(), "2026-01-31T08:05:09Z");
        assert_eq!(moment.to_micro_time(), "2026-01-31T08:05:09.012345Z");
        assert_eq!(Moment::parse("yesterday"), None);
        let later = moment.plus(Duration::from_secs(60));
        assert_eq!(later.since(moment), Duration::from_secs(60));
        assert_eq!(moment.since(later), Duration::ZERO);
    }
}
