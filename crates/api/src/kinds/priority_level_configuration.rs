//! PriorityLevelConfiguration: how many requests of a level run at a time, and how the others wait.

use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static PRIORITY_LEVEL_CONFIGURATION: Resource = Resource::cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
    "prioritylevelconfigurations",
    "prioritylevelconfiguration",
)
.with_subresources(&[Subresource::STATUS])
.with_rules(&PriorityLevelConfigurationRules);

struct PriorityLevelConfigurationRules;

const SHARES: i64 = 30;
const HAND_SIZE: i64 = 8;
const QUEUES: i64 = 64;
const QUEUE_LENGTH: i64 = 50;

impl Rules for PriorityLevelConfigurationRules {
    fn default(&self, level: &mut Value) {
        let spec = level.ensure("spec");
        if let Some(exempt) = spec.child_mut("exempt") {
            exempt.fill("nominalConcurrencyShares", 0);
            exempt.fill("lendablePercent", 0);
        }
        if let Some(limited) = spec.child_mut("limited") {
            limited.fill("nominalConcurrencyShares", SHARES);
            limited.fill("lendablePercent", 0);
            if let Some(queuing) = limited
                .child_mut("limitResponse")
                .and_then(|response| response.child_mut("queuing"))
            {
                queuing.fill_zero("handSize", HAND_SIZE);
                queuing.fill_zero("queues", QUEUES);
                queuing.fill_zero("queueLengthLimit", QUEUE_LENGTH);
            }
        }
    }

    fn prepare_create(&self, level: &mut Value) {
        level.set("status", json!({}));
    }

    fn validate(&self, level: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.one_of(&level["spec"], &Path::new("spec"), "type", &["Exempt", "Limited"]);
        let (spec, path) = (&level["spec"], Path::new("spec"));
        match (spec.text("type"), spec.has("limited")) {
            ("Limited", false) => problems.required(&path, "limited", "must not be empty when type is Limited"),
            ("Exempt", true) => problems.forbidden(&path, "limited", "must be nil if the type is not Limited"),
            _ => {}
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, level: &Value, now: i64) -> Vec<Value> {
        let limited = &level["spec"]["limited"];
        let queuing = &limited["limitResponse"]["queuing"];
        let number = |of: &Value, field: &str| match of[field].as_i64() {
            Some(number) => number.into(),
            None => Value::from("<none>"),
        };
        vec![
            print::name(level),
            level["spec"].text("type").into(),
            number(limited, "nominalConcurrencyShares"),
            number(queuing, "queues"),
            number(queuing, "handSize"),
            number(queuing, "queueLengthLimit"),
            print::age(level, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Type", "Whether the level is limited."),
    print::text("NominalConcurrencyShares", "Its share of the requests that run."),
    print::text("Queues", "How many queues it has."),
    print::text("HandSize", "How many queues a flow may use."),
    print::text("QueueLengthLimit", "How many requests wait in a queue."),
    AGE,
];
