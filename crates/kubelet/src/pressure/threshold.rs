//! Thresholds as upstream writes them: `memory.available<100Mi,nodefs.available<10%`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::measure::{Level, Measurements};
use super::signal::Signal;
use crate::pod::quantity::Milli;

/// Below which amounts there is pressure; at most one per signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thresholds(BTreeMap<Signal, Amount>);

#[derive(Clone, Debug, PartialEq)]
enum Amount {
    Fixed {
        value: u64,
        text: String,
    },
    /// Of the capacity.
    Percent {
        share: f64,
        text: String,
    },
}

/// A signal that has fallen below its threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub signal: Signal,
    pub available: u64,
    pub threshold: u64,
    /// The threshold as it was written.
    pub written: String,
}

/// In upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadThreshold {
    #[error("malformed pair, expect string<string")]
    Pair,
    #[error("unsupported eviction signal {0}")]
    Signal(String),
    #[error("eviction percentage threshold {0} must be >= 0%: {1}")]
    Negative(Signal, String),
    #[error("eviction percentage threshold {0} must be <= 100%: {1}")]
    Above(Signal, String),
    #[error("eviction threshold {0} must be positive: {1}")]
    NotPositive(Signal, String),
    #[error("eviction threshold {0}: {1:?} is neither a quantity, such as 100Mi, nor a percentage, such as 10%")]
    Value(Signal, String),
}

impl Thresholds {
    /// Upstream's for a kubelet.
    pub fn upstream() -> Thresholds {
        Thresholds::parse_constant(
            "memory.available<100Mi,nodefs.available<10%,imagefs.available<15%,nodefs.inodesFree<5%,imagefs.inodesFree<5%",
        )
    }

    fn parse_constant(text: &str) -> Thresholds {
        text.parse().unwrap_or_default()
    }

    /// The thresholds as they were written, by signal.
    pub fn amounts(&self) -> BTreeMap<&'static str, String> {
        let amounts = self.0.iter();
        amounts
            .map(|(signal, amount)| (signal.name(), amount.to_string()))
            .collect()
    }

    /// What is kept free of a resource of this capacity.
    pub fn reserve(&self, signal: Signal, capacity: u64) -> u64 {
        self.0.get(&signal).map_or(0, |amount| amount.resolve(capacity))
    }

    pub fn shortages(&self, measured: &Measurements) -> Vec<Shortage> {
        let met = |(signal, amount): (&Signal, &Amount)| {
            let Level { available, capacity } = *measured.0.get(signal)?;
            let threshold = amount.resolve(capacity);
            (available < threshold).then(|| Shortage {
                signal: *signal,
                available,
                threshold,
                written: amount.to_string(),
            })
        };
        self.0.iter().filter_map(met).collect()
    }
}

impl Amount {
    /// `None` for 0 % and 100 %, which upstream takes as "no threshold".
    fn parse(signal: Signal, text: &str) -> Result<Option<Amount>, BadThreshold> {
        let bad = || BadThreshold::Value(signal, text.to_owned());
        if text == "0%" || text == "100%" {
            return Ok(None);
        }
        let Some(percent) = text.strip_suffix('%') else {
            let value = Milli::parse(text).ok_or_else(bad)?.value();
            let value = u64::try_from(value).ok().filter(|value| *value > 0);
            let value = value.ok_or_else(|| BadThreshold::NotPositive(signal, text.to_owned()))?;
            let text = text.to_owned();
            return Ok(Some(Amount::Fixed { value, text }));
        };
        let share = percent.parse::<f64>().ok().filter(|share| share.is_finite());
        let share = share.ok_or_else(bad)? / 100.0;
        let text = text.to_owned();
        match share {
            ..0.0 => Err(BadThreshold::Negative(signal, text)),
            0.0..=1.0 => Ok(Some(Amount::Percent { share, text })),
            _ => Err(BadThreshold::Above(signal, text)),
        }
    }

    fn resolve(&self, capacity: u64) -> u64 {
        match self {
            Amount::Fixed { value, .. } => *value,
            Amount::Percent { share, .. } => (capacity as f64 * share) as u64,
        }
    }
}

impl FromStr for Thresholds {
    type Err = BadThreshold;

    fn from_str(text: &str) -> Result<Thresholds, BadThreshold> {
        let mut thresholds = BTreeMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('<').ok_or(BadThreshold::Pair)?;
            let (name, value) = (name.trim(), value.trim());
            let signal = Signal::parse(name).ok_or_else(|| BadThreshold::Signal(name.to_owned()))?;
            match Amount::parse(signal, value)? {
                Some(amount) => drop(thresholds.insert(signal, amount)),
                None => drop(thresholds.remove(&signal)),
            }
        }
        Ok(Thresholds(thresholds))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Fixed { text, .. } | Amount::Percent { text, .. } => formatter.write_str(text),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |amount: u64| match self.signal.is_bytes() {
            true => format!("{} MiB", amount >> 20),
            false => amount.to_string(),
        };
        let (available, threshold) = (unit(self.available), unit(self.threshold));
        match self.written.ends_with('%') {
            true => write!(
                formatter,
                "{} is {available}, below {} ({threshold})",
                self.signal, self.written
            ),
            false => write!(formatter, "{} is {available}, below {}", self.signal, self.written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Thresholds>().unwrap_err().to_string()
    }

    #[test]
    fn upstreams_defaults_are_read() {
        let thresholds = Thresholds::upstream();
        assert_eq!(thresholds.0.len(), 5);
        assert_eq!(thresholds.reserve(Signal::MemoryAvailable, 1 << 40), 100 << 20);
        assert_eq!(thresholds.reserve(Signal::NodefsAvailable, 1000), 100);
        assert_eq!(thresholds.reserve(Signal::PidAvailable, 1000), 0);
    }

    #[test]
    fn what_is_wrong_is_refused_in_upstreams_words() {
        assert_eq!(refused("memory.available=1Gi"), "malformed pair, expect string<string");
        assert_eq!(refused("disk.free<1Gi"), "unsupported eviction signal disk.free");
        assert_eq!(
            refused("nodefs.available<-5%"),
            "eviction percentage threshold nodefs.available must be >= 0%: -5%"
        );
        assert_eq!(
            refused("nodefs.available<101%"),
            "eviction percentage threshold nodefs.available must be <= 100%: 101%"
        );
        assert_eq!(
            refused("memory.available<0"),
            "eviction threshold memory.available must be positive: 0"
        );
        assert!(refused("memory.available<much").contains("neither a quantity"));
    }

    #[test]
    fn nothing_and_whole_percentages_switch_a_threshold_off() {
        assert_eq!("".parse(), Ok(Thresholds::default()));
        assert_eq!(
            "nodefs.available<0%,imagefs.available<100%".parse(),
            Ok(Thresholds::default())
        );
    }

    #[test]
    fn a_shortage_is_below_its_threshold_and_says_so() {
        let thresholds: Thresholds = "nodefs.available<10%,memory.available<100Mi,pid.available<10"
            .parse()
            .unwrap();
        let level = |available, capacity| Level { available, capacity };
        let measured = Measurements(BTreeMap::from([
            (Signal::NodefsAvailable, level(9 << 20, 100 << 20)),
            (Signal::MemoryAvailable, level(100 << 20, 1 << 30)),
        ]));
        let shortages = thresholds.shortages(&measured);
        let texts: Vec<String> = shortages.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["nodefs.available is 9 MiB, below 10% (10 MiB)"]);
    }
}
