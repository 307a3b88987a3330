//! Files of a volume that are in one another's way.

use crate::{Fields, Value};

/// A file of a volume, and where it comes from where a volume has several sources.
struct File {
    path: String,
    source: String,
}

impl File {
    fn new(path: &str, source: &str) -> File {
        File {
            path: path.trim_end_matches('/').to_owned(),
            source: source.to_owned(),
        }
    }

    /// Whether one is the other, or a directory above it.
    fn meets(&self, other: &File) -> bool {
        let above = |one: &str, other: &str| other.strip_prefix(one).is_some_and(|rest| rest.starts_with('/'));
        self.path == other.path || above(&self.path, &other.path) || above(&other.path, &self.path)
    }

    fn shown(&self) -> String {
        match self.source.as_str() {
            "" => format!("{:?}", self.path),
            source => format!("{:?} ({source})", self.path),
        }
    }
}

pub fn overlaps(volumes: &[Value]) -> Vec<String> {
    volumes.iter().flat_map(of_volume).collect()
}

fn of_volume(volume: &Value) -> Vec<String> {
    let name = volume.text("name");
    let mut warnings = Vec::new();
    for (field, title, named) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let source = &volume[field];
        let title = match named {
            "" => title.to_owned(),
            named => format!("{title} {:?}", source.text(named)),
        };
        warnings.extend(
            meetings(items(source, ""))
                .into_iter()
                .map(|pair| format!("volume {name:?} ({title}): {pair}")),
        );
    }
    let mut files = Vec::new();
    for source in volume["projected"].list("sources") {
        if source.as_object().is_none_or(serde_json::Map::is_empty) {
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        files.extend(of_projection(source));
    }
    warnings.extend(
        meetings(files)
            .into_iter()
            .map(|pair| format!("volume {name:?} (Projected): {pair}")),
    );
    warnings
}

fn of_projection(source: &Value) -> Vec<File> {
    let named = |title: &str, field: &str| format!("{title} {:?}", source[field].text("name"));
    if source.has("configMap") {
        return items(&source["configMap"], &named("ConfigMap", "configMap"));
    }
    if source.has("secret") {
        return items(&source["secret"], &named("Secret", "secret"));
    }
    if source.has("downwardAPI") {
        return items(&source["downwardAPI"], "DownwardAPI");
    }
    let token = &source["serviceAccountToken"];
    let token = token
        .as_object()
        .map(|_| File::new(token.text("path"), "ServiceAccountToken"));
    token.into_iter().collect()
}

fn items(source: &Value, title: &str) -> Vec<File> {
    let items = source.list("items").iter();
    items.map(|item| File::new(item.text("path"), title)).collect()
}

/// How many files of a volume are looked at, and how many pairs of them are told: each meets each at worst, and nobody
/// reads more.
const MAX_FILES: usize = 1000;
const MAX_PAIRS: usize = 50;

/// Every file with each of those before it that it meets.
fn meetings(mut files: Vec<File>) -> Vec<String> {
    files.truncate(MAX_FILES);
    let before = |index: usize| files[..index].iter().map(move |before| (index, before));
    let pairs = (0..files.len()).flat_map(before);
    pairs
        .filter(|(index, before)| files[*index].meets(before))
        .take(MAX_PAIRS)
        .map(|(index, before)| format!("overlapping paths: {} with {}", files[index].shown(), before.shown()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_of_very_many_files_is_not_compared_to_the_end() {
        let items = vec![json!({"key": "k", "path": "p"}); 100_000];
        let volume = json!({"name": "v", "configMap": {"name": "c", "items": items}});
        assert_eq!(overlaps(&[volume]).len(), MAX_PAIRS);
    }

    #[test]
    fn files_and_directories_of_the_same_name_meet() {
        let volume = json!({"name": "v", "configMap": {"name": "c", "items": [
            {"path": "a"}, {"path": "a/b/"}, {"path": "ab"}, {"path": "a/b"},
        ]}});
        assert_eq!(
            overlaps(&[volume]),
            [
                "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"a/b\" with \"a\"",
                "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"a/b\" with \"a\"",
                "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"a/b\" with \"a/b\"",
            ]
        );
    }

    #[test]
    fn sources_of_one_volume_meet() {
        let volume = json!({"name": "v", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}},
            {"secret": {"name": "s", "items": [{"path": "token"}]}},
            {},
        ]}});
        assert_eq!(
            overlaps(&[volume]),
            [
                "volume \"v\" (Projected) has no sources provided",
                "volume \"v\" (Projected): overlapping paths: \"token\" (Secret \"s\") with \"token\" (ServiceAccountToken)",
            ]
        );
    }
}
