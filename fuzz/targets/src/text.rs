//! Small languages: expressions, selectors, and the texts in leaves of objects.

use std::collections::BTreeMap;

use api::selector::{parse_fields, parse_labels};
use cel::{Budget, Environment, PER_CALL_LIMIT, Program, Type, Value};
use schema::quantity::Quantity;
use serde_json::json;

/// A thousandth of what a server allows, so that a fuzzer tries many expressions and not a few costly ones.
const BUDGET: u64 = cel::RUNTIME_BUDGET / 1000;

/// Compiles the text; what compiles is run.
pub fn cel(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else {
        return;
    };
    let typed = [
        ("replicas", Type::Int),
        ("labels", Type::map(Type::String, Type::String)),
    ];
    let environment = Environment::default()
        .with("object", Type::Dyn)
        .with("name", Type::String)
        .with("typed", Type::object("Pod", typed))
        .with_structs();
    match Program::compile(source, &environment) {
        Ok(program) => {
            let mut budget = Budget::new(BUDGET, PER_CALL_LIMIT.min(BUDGET));
            if let Ok(value) = program.evaluate(&variables(), &mut budget) {
                value.to_json();
            }
        }
        Err(error) => drop(error.to_string()),
    }
}

fn variables() -> BTreeMap<String, Value> {
    let object = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"replicas": 3, "ratio": 0.5, "ports": [80, 443], "items": [{"k": "a"}, {"k": "b"}]},
    });
    BTreeMap::from([
        ("object".to_owned(), Value::from_json(&object)),
        ("name".to_owned(), Value::text("web")),
        (
            "typed".to_owned(),
            Value::from_json(&json!({"replicas": 3, "labels": {"a": "b"}})),
        ),
    ])
}

pub fn expressions() -> Vec<Vec<u8>> {
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

/// Reads the text as a label selector and as a field selector; what was read must say the same when it is written.
pub fn selectors(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    if let Ok(selector) = parse_labels(&text) {
        let again = parse_labels(&selector.to_string());
        assert_eq!(
            again.map(|again| again.matches(&labels)),
            Ok(selector.matches(&labels)),
            "{text:?}"
        );
    }
    if let Ok(selector) = parse_fields(&text) {
        selector.matches(&labels);
    }
}

pub fn selector_texts() -> Vec<Vec<u8>> {
    let texts = [
        "app=web,tier!=db,env in (a, b),zone notin (c),x,!y,z>3,w<4",
        "app==web, example.com/name in ()",
        "metadata.name=a,spec.nodeName!=b,status.phase==Running",
        "a=b\\,c,d\\=e=f",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Everything that stands as text in a leaf and is taken apart.
pub fn leaves(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = schema::quantity::canonicalize(&text);
    if let Ok(parsed) = text.parse::<Quantity>() {
        let canonical = parsed.to_string();
        assert_eq!(canonical.parse::<Quantity>().as_ref(), Ok(&parsed), "{text:?}");
        let mut double = parsed.clone();
        double.add(&parsed);
        double.sub(&parsed);
        let _ = (double.value(), double.milli_value(), double.to_f64());
    }
    let _ = schema::time::parse(&text);
    let _ = schema::time::parse_micro(&text);
    let _ = api::custom::SimplePath::parse(&text);
    if let Ok(schedule) = api::cron::Schedule::parse(&text) {
        let zone = api::cron::TimeZone::utc();
        schedule.next(1_767_225_600, &zone);
    }
    let _ = api::custom::compare_versions(&text, "v1beta1");
    let _ = kubelet::parse_bytes(&text);
}

pub fn leaf_texts() -> Vec<Vec<u8>> {
    let texts = [
        "1.5Gi",
        "-12e-3",
        "9223372036854775807",
        "100m",
        "0.000000000001",
        "1E999",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.123456+02:00",
        "*/5 0-12,13 1 JAN-DEC MON",
        "@hourly",
        "TZ=UTC 0 0 29 2 *",
        ".spec.items[?(@.name=='a')].value[0:2]",
        "v12beta34",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
