//! What the store was asked for, how long it took and what came of it. The names are etcd's whichever engine there is.

use std::sync::Arc;

use ::metrics::{Counter, Histogram, Series, Table, head, labels, sample};
use api::Resource;
use tokio::time::Instant;

/// Upper bounds in seconds, upstream's.
const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The store as upstream numbers several of them.
const STORE: &str = "etcd-0";

pub struct StoreMetrics(Table<StoreFigures>);

/// What the store was asked for objects of one resource. Whoever serves it keeps this, so that counting needs no search.
#[derive(Default)]
pub struct StoreFigures {
    pub get: Operation,
    /// Only finding the state that the list is made from: the list itself is made while it is sent.
    pub list: Operation,
    pub create: Operation,
    pub update: Operation,
    pub delete: Operation,
    lists: Counter,
    fetched: Counter,
    returned: Counter,
}

pub struct Operation {
    seconds: Histogram,
    errors: Counter,
}

impl StoreMetrics {
    pub fn for_resource(&self, resource: &Resource) -> Arc<Series<StoreFigures>> {
        let (group, plural) = (resource.group, resource.plural);
        let made = || labels(&[("group", group), ("resource", plural)]);
        self.0.find((group, plural), made)
    }

    /// `bytes` are what the store takes on its disk.
    pub fn write(&self, text: &mut String, bytes: Option<u64>) {
        self.write_operations(text);
        self.write_lists(text);
        if let Some(bytes) = bytes {
            let name = "apiserver_storage_size_bytes";
            head(text, name, "gauge", "[STABLE] Size of the store on disk in bytes.");
            sample(text, name, &labels(&[("storage_cluster_id", STORE)]), bytes);
        }
    }

    fn write_operations(&self, text: &mut String) {
        type Show = fn(&Operation, &mut String, &str, &str);
        let metrics: [(&str, &str, &str, Show); 3] = [
            (
                "etcd_request_duration_seconds",
                "histogram",
                "[ALPHA] Duration of store operations in seconds, by operation and resource.",
                |operation, text, name, labels| ::metrics::Sample::write(&operation.seconds, text, name, labels),
            ),
            (
                "etcd_requests_total",
                "counter",
                "[ALPHA] Store operations, by operation and resource.",
                |operation, text, name, labels| sample(text, name, labels, operation.seconds.count()),
            ),
            (
                "etcd_request_errors_total",
                "counter",
                "[ALPHA] Failed store operations, by operation and resource.",
                |operation, text, name, labels| {
                    if operation.errors.get() > 0 {
                        sample(text, name, labels, operation.errors.get());
                    }
                },
            ),
        ];
        for (name, kind, help, show) in metrics {
            head(text, name, kind, help);
            self.0.each(|of, figures| {
                for (verb, operation) in figures.operations() {
                    if operation.seconds.count() > 0 {
                        show(operation, text, name, &format!("{of},operation=\"{verb}\""));
                    }
                }
            });
        }
    }

    fn write_lists(&self, text: &mut String) {
        type Pick = fn(&StoreFigures) -> &Counter;
        let metrics: [(&str, &str, Pick); 4] = [
            ("total", "[ALPHA] List requests served from the store.", |figures| {
                &figures.lists
            }),
            (
                "fetched_objects_total",
                "[ALPHA] Objects read from the store for list requests.",
                |figures| &figures.fetched,
            ),
            // All that are read are looked at, be it only by their keys.
            (
                "evaluated_objects_total",
                "[ALPHA] Objects tested against the selectors of list requests.",
                |figures| &figures.fetched,
            ),
            (
                "returned_objects_total",
                "[ALPHA] Objects returned by list requests.",
                |figures| &figures.returned,
            ),
        ];
        for (name, help, pick) in metrics {
            let name = format!("apiserver_storage_list_{name}");
            let listed = |figures: &StoreFigures| figures.lists.get() > 0;
            self.0.write(text, &name, help, |figures| {
                Some(pick(figures)).filter(|_| listed(figures))
            });
        }
    }
}

impl Default for StoreMetrics {
    fn default() -> StoreMetrics {
        StoreMetrics(Table::new(StoreFigures::default))
    }
}

impl StoreFigures {
    /// A list was made of `returned` objects out of the `fetched` ones.
    pub fn listed(&self, fetched: usize, returned: usize) {
        self.lists.add(1);
        self.fetched.add(fetched as u64);
        self.returned.add(returned as u64);
    }

    fn operations(&self) -> [(&'static str, &Operation); 5] {
        [
            ("create", &self.create),
            ("delete", &self.delete),
            ("get", &self.get),
            ("list", &self.list),
            ("update", &self.update),
        ]
    }
}

impl Default for Operation {
    fn default() -> Operation {
        Operation {
            seconds: Histogram::of_seconds(REQUEST_SECONDS),
            errors: Counter::new(),
        }
    }
}

impl Operation {
    pub async fn time<T, E>(&self, asked: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let begun = Instant::now();
        let answer = asked.await;
        self.seconds.observe(begun.elapsed().as_secs_f64());
        if answer.is_err() {
            self.errors.add(1);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_store_is_timed_by_what_it_is_asked() {
        let metrics = StoreMetrics::default();
        let figures = &metrics.for_resource(&api::kinds::deployment::DEPLOYMENT).value;
        assert_eq!(figures.get.time(async { Ok::<_, ()>(7) }).await, Ok(7));
        assert_eq!(figures.create.time(async { Err::<(), _>("full") }).await, Err("full"));
        figures.listed(10, 3);
        figures.listed(10, 4);
        let mut text = String::new();
        metrics.write(&mut text, Some(4096));
        let of = "group=\"apps\",resource=\"deployments\"";
        for line in [
            format!("etcd_request_duration_seconds_count{{{of},operation=\"get\"}} 1"),
            format!("etcd_requests_total{{{of},operation=\"create\"}} 1"),
            format!("etcd_request_errors_total{{{of},operation=\"create\"}} 1"),
            format!("apiserver_storage_list_total{{{of}}} 2"),
            format!("apiserver_storage_list_fetched_objects_total{{{of}}} 20"),
            format!("apiserver_storage_list_evaluated_objects_total{{{of}}} 20"),
            format!("apiserver_storage_list_returned_objects_total{{{of}}} 7"),
            "apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} 4096".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("operation=\"delete\""), "nothing was deleted:\n{text}");
        assert!(!text.contains("errors_total{group=\"apps\",resource=\"deployments\",operation=\"get\"}"));
    }
}
