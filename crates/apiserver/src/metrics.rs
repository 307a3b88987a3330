//! Counters under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write;

use parking_lot::Mutex;

/// Requests by verb, resource and code.
#[derive(Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, String, u16), u64>>,
}

/// Series beyond this bound are counted together, so that made-up paths cannot fill memory.
const MAX_SERIES: usize = 4096;

impl Metrics {
    pub fn count(&self, verb: &'static str, resource: &str, code: u16) {
        let mut requests = self.requests.lock();
        let key = (verb, resource.to_owned(), code);
        let full = requests.len() >= MAX_SERIES && !requests.contains_key(&key);
        let key = if full { (verb, "other".to_owned(), code) } else { key };
        *requests.entry(key).or_default() += 1;
    }

    pub fn text(&self) -> String {
        let mut text = String::from(
            "# HELP apiserver_request_total Requests answered, by verb, resource and code.\n\
             # TYPE apiserver_request_total counter\n",
        );
        for ((verb, resource, code), count) in self.requests.lock().iter() {
            let verb = verb.to_uppercase();
            let _ = writeln!(
                text,
                "apiserver_request_total{{verb=\"{verb}\",resource=\"{resource}\",code=\"{code}\"}} {count}"
            );
        }
        text
    }
}
