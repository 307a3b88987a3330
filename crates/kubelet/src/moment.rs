//! Points in time as the kubelet needs them: given from outside, comparable, and written as the API writes them.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Milliseconds since the Unix epoch. Planners are given the present moment and never ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    pub fn now() -> Moment {
        Moment(clock::since_epoch().as_millis() as i64)
    }

    /// The CRI counts nanoseconds; zero means that the event has not happened.
    pub fn from_nanos(nanos: i64) -> Option<Moment> {
        (nanos > 0).then_some(Moment(nanos / 1_000_000))
    }

    pub fn parse(text: &str) -> Option<Moment> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        i64::try_from(parsed.unix_timestamp_nanos() / 1_000_000)
            .ok()
            .map(Moment)
    }

    pub fn plus(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration.as_millis() as i64))
    }

    /// The time from `earlier` to this moment, zero if it lies ahead.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }

    /// `metav1.Time`: whole seconds.
    pub fn seconds(self) -> String {
        let whole = OffsetDateTime::from_unix_timestamp(self.0.div_euclid(1000));
        whole.ok().and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
    }

    /// `metav1.MicroTime`.
    pub fn micros(self) -> String {
        let text = self.seconds();
        let millis = self.0.rem_euclid(1000);
        format!("{}.{millis:03}000Z", text.trim_end_matches('Z'))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.seconds())
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Moment, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Moment::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not an RFC 3339 time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_api_writes_them() {
        let moment = Moment(1_700_000_000_123);
        assert_eq!(moment.seconds(), "2023-11-14T22:13:20Z");
        assert_eq!(moment.micros(), "2023-11-14T22:13:20.123000Z");
        assert_eq!(Moment::parse("2023-11-14T22:13:20.123Z"), Some(moment));
        assert_eq!(
            Moment::parse("2023-11-14T23:13:20+01:00"),
            Some(Moment(1_700_000_000_000))
        );
        assert_eq!(Moment::from_nanos(0), None);
    }
}
