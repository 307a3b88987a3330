//! What the server knows of itself when it is asked.

use ::metrics::{head, labels, sample};
use registry::ObjectCount;

use super::levels;
use crate::fairness::LevelReport;

/// What the server knows of itself at the moment.
#[derive(Default)]
pub struct Present {
    pub levels: Vec<LevelReport>,
    pub object_counts: Vec<ObjectCount>,
    /// What the store takes on its disk.
    pub store_bytes: Option<u64>,
}

impl Present {
    pub fn write(&self, text: &mut String) {
        levels::write(text, &self.levels);
        write_object_counts(text, &self.object_counts);
        write_build(text);
    }
}

/// The same figures under the name that upstream is about to drop and under its new one.
fn write_object_counts(text: &mut String, counts: &[ObjectCount]) {
    let name = "apiserver_storage_objects";
    head(text, name, "gauge", "[STABLE] Stored objects, by resource and group.");
    for count in counts {
        let full = match count.group {
            "" => count.resource.to_owned(),
            group => format!("{}.{group}", count.resource),
        };
        sample(text, name, &labels(&[("resource", &full)]), count.objects);
    }
    let name = "apiserver_resource_objects";
    head(text, name, "gauge", "[ALPHA] Stored objects, by group and resource.");
    for count in counts {
        let labels = labels(&[("group", count.group), ("resource", count.resource)]);
        sample(text, name, &labels, count.objects);
    }
    let name = "apiserver_storage_events_received_total";
    head(text, name, "counter", "[BETA] Watch events received from the store.");
    for count in counts {
        let labels = labels(&[("group", count.group), ("resource", count.resource)]);
        sample(text, name, &labels, count.events);
    }
}

fn write_build(text: &mut String) {
    let name = "kubernetes_build_info";
    head(
        text,
        name,
        "gauge",
        "[BETA] Version and build of this server; the value is always 1.",
    );
    let build = crate::version::build();
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
