//! What a node keeps for itself, which pods are not promised.

use std::str::FromStr;

use crate::pod::quantity::Milli;

/// Amounts that are kept, by `--system-reserved` and `--kube-reserved`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub ephemeral_storage_bytes: u64,
    pub pids: u64,
}

/// In upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReserved {
    #[error("cannot reserve {0:?} resource")]
    Resource(String),
    #[error("{0:?}: must be name=quantity")]
    Form(String),
    #[error("resource quantity for {name:?} cannot be negative: {quantity}")]
    Negative { name: String, quantity: String },
    #[error("{0:?} is not a quantity")]
    Quantity(String),
}

impl Reserved {
    pub fn plus(&self, other: &Reserved) -> Reserved {
        Reserved {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            ephemeral_storage_bytes: self
                .ephemeral_storage_bytes
                .saturating_add(other.ephemeral_storage_bytes),
            pids: self.pids.saturating_add(other.pids),
        }
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), BadReserved> {
        let amount = Milli::parse(text).ok_or_else(|| BadReserved::Quantity(text.to_owned()))?;
        if amount < Milli::default() {
            return Err(BadReserved::Negative {
                name: name.to_owned(),
                quantity: text.to_owned(),
            });
        }
        let whole = || u64::try_from(amount.value()).unwrap_or(u64::MAX);
        match name {
            "cpu" => self.cpu_milli = u64::try_from(amount.milli()).unwrap_or(u64::MAX),
            "memory" => self.memory_bytes = whole(),
            "ephemeral-storage" => self.ephemeral_storage_bytes = whole(),
            "pid" => self.pids = whole(),
            other => return Err(BadReserved::Resource(other.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for Reserved {
    type Err = BadReserved;

    fn from_str(text: &str) -> Result<Reserved, BadReserved> {
        let mut reserved = Reserved::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, amount) = part.split_once('=').ok_or_else(|| BadReserved::Form(part.to_owned()))?;
            reserved.set(name.trim(), amount.trim())?;
        }
        Ok(reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_added() {
        let system: Reserved = "cpu=200m,memory=1Gi,pid=1000".parse().unwrap();
        let kube: Reserved = "cpu=1, ephemeral-storage=2Ki".parse().unwrap();
        let both = system.plus(&kube);
        assert_eq!((both.cpu_milli, both.memory_bytes), (1200, 1 << 30));
        assert_eq!((both.ephemeral_storage_bytes, both.pids), (2048, 1000));
        assert_eq!("".parse(), Ok(Reserved::default()));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let refused = |text: &str| text.parse::<Reserved>().unwrap_err().to_string();
        assert_eq!(refused("gpu=1"), "cannot reserve \"gpu\" resource");
        assert_eq!(
            refused("memory=-1Gi"),
            "resource quantity for \"memory\" cannot be negative: -1Gi"
        );
        assert_eq!(refused("cpu"), "\"cpu\": must be name=quantity");
        assert_eq!(refused("cpu=much"), "\"much\" is not a quantity");
    }
}
