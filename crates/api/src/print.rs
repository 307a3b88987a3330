//! Cells of printed tables, in the words and abbreviations that kubectl's users know.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{Column, Fields, LabelSelector, Value};

pub const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    priority: 0,
    description: "Unique among the objects of its kind, within its namespace if it has one.",
};
pub const AGE: Column = text("Age", "Time since the object was created.");
pub const CONTAINERS: Column = text("Containers", "Names of the template's containers.").wide();
pub const IMAGES: Column = text("Images", "Images of the template's containers.").wide();
pub const SELECTOR: Column = text("Selector", "The labels by which pods are chosen.").wide();

pub const fn text(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        priority: 0,
        description,
    }
}

pub const fn integer(name: &'static str, description: &'static str) -> Column {
    let mut column = text(name, description);
    column.kind = "integer";
    column
}

pub const fn boolean(name: &'static str, description: &'static str) -> Column {
    let mut column = text(name, description);
    column.kind = "boolean";
    column
}

impl Column {
    /// Shown only with `-o wide`.
    pub const fn wide(mut self) -> Column {
        self.priority = 1;
        self
    }
}

pub fn name(object: &Value) -> Value {
    object["metadata"].text("name").into()
}

/// The time since the object was created.
pub fn age(object: &Value, now: i64) -> Value {
    since(&object["metadata"]["creationTimestamp"], now).into()
}

/// The time since a timestamp, `<unknown>` for one that is not set.
pub fn since(timestamp: &Value, now: i64) -> String {
    match seconds(timestamp) {
        Some(then) => duration(now - then),
        None => "<unknown>".to_owned(),
    }
}

/// The seconds since the epoch of a timestamp that is set.
pub fn seconds(timestamp: &Value) -> Option<i64> {
    let time = OffsetDateTime::parse(timestamp.as_str()?, &Rfc3339).ok()?;
    Some(time.unix_timestamp())
}

/// A duration with at most two units, coarser the longer it is: `95s`, `3m20s`, `5h`, `2d4h`, `3y40d`.
pub fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..=119 => format!("{seconds}s"),
        _ if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        _ if minutes < 3 * 60 => format!("{minutes}m"),
        _ if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 8 * 24 => two_units(days, "d", hours % 24, "h"),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two_units(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn two_units(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

/// The names and the images of containers, for the two columns of workloads.
pub fn containers(pod_spec: &Value) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = pod_spec
            .list("containers")
            .iter()
            .map(|container| container.text(field))
            .collect();
        texts.join(",").into()
    })
}

/// `key=value` pairs, or `<none>`.
pub fn labels(labels: &Value) -> Value {
    let pairs: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or_none(pairs.join(","))
}

/// A `LabelSelector` as one writes it in a query, or `<none>`.
pub fn selector(selector: &Value) -> Value {
    let parsed: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
    or_none(
        parsed
            .map(|selector| crate::selector::Selector::from(&selector).to_string())
            .unwrap_or_default(),
    )
}

pub fn or_none(text: impl Into<String>) -> Value {
    let text = text.into();
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// The first three items and how many more there are.
pub fn at_most_three(items: &[String], unset: &str) -> String {
    match items {
        [] => unset.to_owned(),
        few if few.len() <= 3 => few.join(","),
        many => format!("{} + {} more...", many[..3].join(","), many.len() - 3),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_lose_precision_as_they_grow() {
        let minute = 60;
        let hour = 60 * minute;
        let day = 24 * hour;
        for (seconds, shown) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (9 * minute + 5, "9m5s"),
            (179 * minute, "179m"),
            (3 * hour + minute, "3h1m"),
            (47 * hour, "47h"),
            (2 * day + 3 * hour, "2d3h"),
            (8 * day, "8d"),
            (2 * 365 * day, "2y"),
            (3 * 365 * day + 40 * day, "3y40d"),
            (9 * 365 * day + 40 * day, "9y"),
        ] {
            assert_eq!(duration(seconds), shown);
        }
    }
}
