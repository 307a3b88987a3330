//! PriorityLevelConfiguration: how many requests of a level run at a time, and how the others wait.

use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value, conditions};
use serde_json::json;

pub static PRIORITY_LEVEL_CONFIGURATION: Resource = Resource::cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
    "prioritylevelconfigurations",
    "prioritylevelconfiguration",
)
.with_subresources(&[Subresource::STATUS])
.resetting_on_status_update(&[&["spec"], &["metadata"]])
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
        let kind = spec.text("type");
        if (level["metadata"].text("name") == "exempt") != (kind == "Exempt") {
            let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
            problems.invalid(&path, "type", kind, detail);
        }
        validate_mandatory(level, &path, &mut problems);
        match (kind, spec.has("limited")) {
            ("Limited", false) => problems.required(&path, "limited", "must not be empty when type is Limited"),
            ("Exempt", true) => problems.forbidden(&path, "limited", "must be nil if the type is not Limited"),
            ("Limited", true) => validate_limited(&spec["limited"], &path.child("limited"), &mut problems),
            _ => {}
        }
        match (kind, spec.has("exempt")) {
            ("Limited", true) => problems.forbidden(&path, "exempt", "must be nil if the type is Limited"),
            ("Exempt", true) => validate_shares(&spec["exempt"], &path.child("exempt"), &mut problems),
            _ => {}
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        conditions::validate_types(&new["status"], &Path::new("status"), &mut problems);
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

/// The levels without which requests could not be sorted stay as they are.
fn validate_mandatory(level: &Value, path: &Path, problems: &mut Problems) {
    let spec = &level["spec"];
    let (fixed, detail) = match level["metadata"].text("name") {
        "exempt" => (
            json!({"type": "Exempt", "exempt": spec["exempt"]}),
            "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value",
        ),
        "catch-all" => (
            json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"},
            }}),
            "spec of 'catch-all' must equal the fixed value",
        ),
        _ => return,
    };
    let same = spec
        .as_object()
        .into_iter()
        .flatten()
        .all(|(field, value)| fixed[field] == *value);
    if !same || spec["type"] != fixed["type"] {
        problems.invalid(path, "", spec.clone(), detail);
    }
}

fn validate_shares(part: &Value, path: &Path, problems: &mut Problems) {
    let shares = part.number("nominalConcurrencyShares");
    if shares < 0 {
        problems.invalid(
            path,
            "nominalConcurrencyShares",
            shares,
            "must be a non-negative integer",
        );
    }
    let lendable = part.number("lendablePercent");
    if !(0..=100).contains(&lendable) {
        problems.invalid(
            path,
            "lendablePercent",
            lendable,
            "must be between 0 and 100, inclusive",
        );
    }
}

fn validate_limited(limited: &Value, path: &Path, problems: &mut Problems) {
    validate_shares(limited, path, problems);
    let borrowing = limited.number("borrowingLimitPercent");
    if borrowing < 0 {
        let detail = "if specified, must be a non-negative integer";
        problems.invalid(path, "borrowingLimitPercent", borrowing, detail);
    }
    let (response, path) = (&limited["limitResponse"], path.child("limitResponse"));
    problems.one_of(response, &path, "type", &["Queue", "Reject"]);
    match (response.text("type"), response.has("queuing")) {
        ("Reject", true) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            problems.forbidden(&path, "queuing", detail);
        }
        ("Queue", false) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            problems.required(&path, "queuing", detail);
        }
        ("Queue", true) => validate_queuing(&response["queuing"], &path.child("queuing"), problems),
        _ => {}
    }
}

const MOST_QUEUES: i64 = 10_000_000;
/// How much of a flow's hash may be used up by dealing its hand.
const HASH_BITS: f64 = 60.0;

fn validate_queuing(queuing: &Value, path: &Path, problems: &mut Problems) {
    let (queues, hand) = (queuing.number("queues"), queuing.number("handSize"));
    for (field, number) in [
        ("queueLengthLimit", queuing.number("queueLengthLimit")),
        ("queues", queues),
        ("handSize", hand),
    ] {
        if number <= 0 {
            problems.invalid(path, field, number, "must be positive");
        }
    }
    if queues > MOST_QUEUES {
        problems.invalid(
            path,
            "queues",
            queues,
            format!("must not be greater than {MOST_QUEUES}"),
        );
    }
    let bits = ((queues.max(1) as f64).log2() * hand as f64).ceil();
    if hand > queues {
        problems.invalid(
            path,
            "handSize",
            hand,
            format!("should not be greater than queues ({queues})"),
        );
    } else if bits > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        problems.invalid(path, "handSize", hand, detail);
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(name: &str, spec: Value, expect: Expect) {
        let found = PriorityLevelConfigurationRules.validate(&json!({"metadata": {"name": name}, "spec": spec}));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    #[test]
    fn only_the_servers_own_level_is_exempt() {
        check(
            "exempt",
            json!({"type": "Exempt", "exempt": {"lendablePercent": 5}}),
            expect![""],
        );
        check(
            "mine",
            json!({"type": "Exempt", "exempt": {"lendablePercent": 500}}),
            expect![[r#"
                spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'
                spec.exempt.lendablePercent: Invalid value: 500: must be between 0 and 100, inclusive"#]],
        );
    }

    #[test]
    fn a_limited_level_queues_or_rejects() {
        let level = |response: Value| json!({"type": "Limited", "limited": {"limitResponse": response}});
        check("mine", level(json!({"type": "Reject"})), expect![""]);
        check(
            "mine",
            level(json!({"type": "Queue"})),
            expect![[
                r#"spec.limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"#
            ]],
        );
        check(
            "mine",
            level(json!({"type": "Queue", "queuing": {"queues": 8, "handSize": 20, "queueLengthLimit": 0}})),
            expect![[r#"
                spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: 0: must be positive
                spec.limited.limitResponse.queuing.handSize: Invalid value: 20: should not be greater than queues (8)"#]],
        );
        check(
            "mine",
            level(json!({"type": "Queue", "queuing": {"queues": 1024, "handSize": 7, "queueLengthLimit": 1}})),
            expect![[
                r#"spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 should not be greater than 60"#
            ]],
        );
    }
}
