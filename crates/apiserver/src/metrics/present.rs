//! What the server knows of itself when it is asked.

use ::metrics::{head, labels, sample};

use super::levels;
use crate::fairness::LevelReport;

/// What the server knows of itself at the moment.
#[derive(Default)]
pub struct Present {
    pub levels: Vec<LevelReport>,
    pub stocks: Vec<Stock>,
    /// What the store takes on its disk.
    pub store_bytes: Option<u64>,
}

/// How many objects there are of a resource.
pub struct Stock {
    pub group: &'static str,
    pub resource: &'static str,
    pub objects: usize,
    /// The changes of them that the store has told of.
    pub events: u64,
}

impl Present {
    pub fn write(&self, text: &mut String) {
        levels::write(text, &self.levels);
        write_stocks(text, &self.stocks);
        write_build(text);
    }
}

/// The same figures under the name that upstream is about to drop and under its new one.
fn write_stocks(text: &mut String, stocks: &[Stock]) {
    let name = "apiserver_storage_objects";
    head(text, name, "gauge", "[STABLE] Stored objects, by resource and group.");
    for stock in stocks {
        let full = match stock.group {
            "" => stock.resource.to_owned(),
            group => format!("{}.{group}", stock.resource),
        };
        sample(text, name, &labels(&[("resource", &full)]), stock.objects);
    }
    let name = "apiserver_resource_objects";
    head(text, name, "gauge", "[ALPHA] Stored objects.");
    for stock in stocks {
        let labels = labels(&[("group", stock.group), ("resource", stock.resource)]);
        sample(text, name, &labels, stock.objects);
    }
    let name = "apiserver_storage_events_received_total";
    head(text, name, "counter", "[BETA] Changes that the store has told of.");
    for stock in stocks {
        let labels = labels(&[("group", stock.group), ("resource", stock.resource)]);
        sample(text, name, &labels, stock.events);
    }
}

fn write_build(text: &mut String) {
    let name = "kubernetes_build_info";
    head(
        text,
        name,
        "gauge",
        "[BETA] What this server is; the value is always 1.",
    );
    let build = crate::nonresource::build();
    let labels = labels(&[
        ("build_date", build.date),
        ("compiler", build.compiler),
        ("git_commit", ""),
        ("git_tree_state", build.tree),
        ("git_version", &build.version),
        ("go_version", ""),
        ("major", build.major),
        ("minor", build.minor),
        ("platform", &build.platform),
    ]);
    sample(text, name, &labels, 1);
}
