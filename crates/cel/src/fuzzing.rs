//! What the tests and the fuzzer share: a world of a few variables, and the reader of expressions.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{Budget, Environment, PER_CALL_LIMIT, Program, RUNTIME_BUDGET, Type, Value};

/// A thousandth of what a server allows, so that a fuzzer tries many expressions and not a few costly ones.
const BUDGET: u64 = RUNTIME_BUDGET / 1000;

pub(crate) fn environment() -> Environment {
    let typed = [
        ("replicas", Type::Int),
        ("labels", Type::map(Type::String, Type::String)),
    ];
    Environment::default()
        .with("object", Type::Dyn)
        .with("name", Type::String)
        .with("typed", Type::object("Pod", typed))
}

pub(crate) fn variables() -> BTreeMap<String, Value> {
    let object = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"replicas": 3, "ratio": 0.5, "ports": [80, 443], "items": [{"k": "a"}, {"k": "b"}]},
    });
    let typed = json!({"replicas": 3, "labels": {"a": "b"}});
    BTreeMap::from([
        ("object".to_owned(), Value::from_json(&object)),
        ("name".to_owned(), Value::text("web")),
        ("typed".to_owned(), Value::from_json(&typed)),
    ])
}

/// Compiles the text; what compiles is run.
pub fn expression(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else {
        return;
    };
    match Program::compile(source, &environment().with_structs()) {
        Ok(program) => {
            let mut budget = Budget::new(BUDGET, PER_CALL_LIMIT.min(BUDGET));
            if let Ok(value) = program.evaluate(&variables(), &mut budget) {
                value.to_json();
            }
        }
        Err(error) => drop(error.to_string()),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let sources = [
        "object.spec.replicas + 1 == 4 && has(object.metadata.labels) || !(name.size() > 3)",
        "object.spec.items.map(i, i.k).exists_one(k, k == 'a') ? [1, 2u, 3.5] : {'a': b'x', 'b': null}",
        "object.spec.ports.filter(p, p > 80).all(p, p in [443]) && typed.labels['a'].matches('^b+$')",
        "quantity('1Gi').compareTo(quantity('500M')) > 0 && url('https://a:80/b?c=d').getHost() == 'a:80'",
        "timestamp('2026-01-01T00:00:00Z').getFullYear() + duration('1h30m').getMinutes() / 2 % 7",
        "cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && semver('1.2.3').isLessThan(semver('2.0.0'))",
        "'%s-%d-%.2f'.format(['a', 1, 2.5]).split('-').join(',').replace('a', 'b').substring(1).lowerAscii()",
        "object.?spec.?missing.orValue(optional.of(1).value()) == 1 ? base64.encode(b'a') : r'\\\\' + \"\\u00e9\\n\"",
        "cel.bind(x, object.spec, x.replicas * x.replicas) + int('7') + sets.contains([1], [1]) ? 1 : -1",
        "[3, 1, 2].sort().sum() + [[1]].flatten().size() + math.greatest(1, 2) + 0x1F + 1e3 + -9223372036854775808",
    ];
    sources.map(|source| source.as_bytes().to_vec()).to_vec()
}
