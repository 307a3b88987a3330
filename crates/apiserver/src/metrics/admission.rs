//! Times admission, plugin by plugin.

use std::sync::{Arc, OnceLock};

use ::metrics::{Histogram, Series};
use admission::{Attributes, Companion, Lookup, Operation, Plugin};
use api::Error;
use async_trait::async_trait;
use tokio::time::Instant;

use super::Metrics;

/// The two phases, as upstream's metrics name them.
const PHASES: [&str; 2] = ["admit", "validate"];
const MUTATE: usize = 0;
const VALIDATE: usize = 1;

/// The times of one plugin's consent, by phase and operation; found once because every write asks all plugins.
type PluginDurations = [[OnceLock<Arc<Series<Histogram>>>; 4]; 2];

/// A plugin whose answers are timed.
pub struct Timed {
    plugin: Box<dyn Plugin>,
    metrics: Arc<Metrics>,
    consents: PluginDurations,
}

impl Timed {
    pub fn around(plugin: Box<dyn Plugin>, metrics: &Arc<Metrics>) -> Box<dyn Plugin> {
        let metrics = metrics.clone();
        let consents = PluginDurations::default();
        Box::new(Timed {
            plugin,
            metrics,
            consents,
        })
    }

    fn note(&self, phase: usize, operation: Operation, begun: Instant, answer: &Result<(), Error>) {
        let find = |rejected| {
            self.metrics
                .admissions_of(self.plugin.name(), PHASES[phase], operation.as_str(), rejected)
        };
        let took = begun.elapsed().as_secs_f64();
        match answer {
            Ok(()) => self.consents[phase][operation as usize]
                .get_or_init(|| find(false))
                .value
                .observe(took),
            Err(_) => find(true).value.observe(took),
        }
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
