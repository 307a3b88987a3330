//! `matchConditions`: expressions that decide whether a webhook or policy looks at a request.

use api::{Resource, Value};

use crate::plugins::Settings;
use crate::{Attributes, Lookup};

#[derive(Default)]
pub struct Conditions {
    count: usize,
}

pub enum Verdict {
    Met,
    NotMet,
    Failed(String),
}

impl Conditions {
    pub fn parse(conditions: &[Value]) -> Conditions {
        Conditions {
            count: conditions.len(),
        }
    }

    pub fn verdict(
        &self,
        _attributes: &Attributes,
        _resource: &Resource,
        _lookup: &dyn Lookup,
        _settings: &Settings,
    ) -> Verdict {
        match self.count {
            0 => Verdict::Met,
            _ => Verdict::Failed("match conditions are not supported yet".to_owned()),
        }
    }
}
