//! Small languages: selectors, and the texts in leaves of objects.

use std::collections::BTreeMap;

use api::selector::{parse_fields, parse_labels};
use schema::quantity::Quantity;

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
