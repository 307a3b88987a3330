//! Which specs to run.

use anyhow::{Result, ensure};
use clap::Args;

use super::record::{Record, Side};
use super::specs::Spec;
use crate::conformance::outcome::State;

#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    /// Only specs of these SIGs, without "sig-"
    #[arg(long, value_delimiter = ',')]
    sig: Vec<String>,
    /// Only specs with one of these `[Feature:…]` tags; without it, only specs that have none
    #[arg(long, value_delimiter = ',')]
    feature: Vec<String>,
    /// Only storage specs of these drivers
    #[arg(long, value_delimiter = ',')]
    driver: Vec<String>,
    /// Only specs whose name contains this text
    #[arg(long)]
    focus: Vec<String>,
    /// No specs whose name contains this text
    #[arg(long)]
    skip: Vec<String>,
    /// Also specs tagged Slow
    #[arg(long)]
    slow: bool,
    /// Also specs tagged Serial or Disruptive
    #[arg(long)]
    serial: bool,
    /// Also specs of features that are off by default upstream
    #[arg(long)]
    alpha: bool,
    /// Only specs that are recorded as passed by upstream and not by ours
    #[arg(long)]
    open: bool,
    /// Only specs that are not recorded yet
    #[arg(long)]
    new: bool,
}

impl Selection {
    pub fn apply(&self, specs: &[Spec], record: &Record) -> Result<Vec<Spec>> {
        for sig in &self.sig {
            ensure!(
                specs.iter().any(|spec| spec.sig == *sig),
                "there is no SIG {sig:?}; name one of: {}",
                sigs(specs).join(", ")
            );
        }
        let chosen: Vec<Spec> = specs.iter().filter(|spec| self.admits(spec, record)).cloned().collect();
        ensure!(!chosen.is_empty(), "no spec matches");
        Ok(chosen)
    }

    fn admits(&self, spec: &Spec, record: &Record) -> bool {
        let named = |text: &String| spec.name.contains(text.as_str());
        let feature = match self.feature.is_empty() {
            true => spec.features.is_empty(),
            false => spec.features.iter().any(|feature| self.feature.contains(feature)),
        };
        let driver = spec.driver.as_ref();
        (self.sig.is_empty() || self.sig.contains(&spec.sig))
            && feature
            && (self.driver.is_empty() || driver.is_some_and(|driver| self.driver.contains(driver)))
            && (self.focus.is_empty() || self.focus.iter().any(named))
            && !self.skip.iter().any(named)
            && (self.slow || !spec.slow)
            && (self.serial || !spec.is_alone())
            && (self.alpha || !spec.alpha)
            && (!self.open || is_open(spec, record))
            && (!self.new || record.state(&spec.name, Side::Ours).is_none())
    }
}

fn is_open(spec: &Spec, record: &Record) -> bool {
    record.state(&spec.name, Side::Upstream) == Some(State::Passed)
        && record.state(&spec.name, Side::Ours) != Some(State::Passed)
}

fn sigs(specs: &[Spec]) -> Vec<&str> {
    let mut sigs: Vec<&str> = specs.iter().map(|spec| spec.sig.as_str()).collect();
    sigs.sort_unstable();
    sigs.dedup();
    sigs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(selection: &Selection) -> Vec<String> {
        let names = [
            "[sig-node] plain",
            "[sig-node] slow [Slow]",
            "[sig-node] alone [Serial]",
            "[sig-node] featured [Feature:Foo]",
            "[sig-node] early [FeatureGate:Bar] [Alpha]",
            "[sig-apps] other",
        ];
        let specs: Vec<Spec> = names.iter().filter_map(|name| Spec::parse(name)).collect();
        let chosen = selection.apply(&specs, &Record::default()).unwrap();
        chosen
            .iter()
            .map(|spec| spec.name.split(' ').nth(1).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn what_needs_a_special_cluster_or_a_long_time_is_asked_for() {
        assert_eq!(chosen(&Selection::default()), ["plain", "other"]);
        let more = Selection {
            sig: vec!["node".to_owned()],
            slow: true,
            serial: true,
            alpha: true,
            ..Selection::default()
        };
        assert_eq!(chosen(&more), ["plain", "slow", "alone", "early"]);
        let featured = Selection {
            feature: vec!["Foo".to_owned()],
            ..Selection::default()
        };
        assert_eq!(chosen(&featured), ["featured"]);
    }
}
