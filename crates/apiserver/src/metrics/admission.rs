//! Times admission, plugin by plugin.

use std::sync::Arc;
use std::time::Instant;

use admission::{Attributes, Companion, Lookup, Operation, Plugin};
use api::Error;
use async_trait::async_trait;

use super::Metrics;

/// The two phases, as upstream's metrics name them.
const MUTATE: &str = "admit";
const VALIDATE: &str = "validate";

/// A plugin whose answers are timed.
pub struct Timed {
    plugin: Box<dyn Plugin>,
    metrics: Arc<Metrics>,
}

impl Timed {
    pub fn around(plugin: Box<dyn Plugin>, metrics: &Arc<Metrics>) -> Box<dyn Plugin> {
        let metrics = metrics.clone();
        Box::new(Timed { plugin, metrics })
    }

    fn note(&self, phase: &'static str, operation: Operation, begun: Instant, answer: &Result<(), Error>) {
        let took = begun.elapsed();
        self.metrics
            .admitted(self.plugin.name(), phase, operation.as_str(), answer.is_err(), took);
    }
}

#[async_trait]
impl Plugin for Timed {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        self.plugin.handles(attributes)
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let begun = Instant::now();
        let answer = self.plugin.mutate(attributes, lookup).await;
        self.note(MUTATE, attributes.operation, begun, &answer);
        answer
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let begun = Instant::now();
        let answer = self.plugin.validate(attributes, lookup).await;
        self.note(VALIDATE, attributes.operation, begun, &answer);
        answer
    }

    fn companions(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<Vec<Companion>, Error> {
        self.plugin.companions(attributes, lookup)
    }
}
