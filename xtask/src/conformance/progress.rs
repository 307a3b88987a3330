//! What Ginkgo's output tells while it runs.

/// Prints a line for each test that has ended.
pub struct Progress<'a> {
    label: &'a str,
    names: &'a [String],
    done: usize,
    block: Block,
}

/// What stands between two rules of the output. A test's name comes before its result when tests run one by one and
/// after it when they run in parallel.
#[derive(Default)]
struct Block {
    name: Option<String>,
    result: Option<String>,
    told: bool,
}

impl<'a> Progress<'a> {
    pub fn new(label: &'a str, names: &'a [String]) -> Self {
        Self {
            label,
            names,
            done: 0,
            block: Block::default(),
        }
    }

    pub fn line(&mut self, line: &str) {
        if let Some(told) = self.note(line) {
            println!("{told}");
        }
    }

    fn note(&mut self, line: &str) -> Option<String> {
        if line.starts_with("------") {
            self.block = Block::default();
        } else if line.starts_with("[sig-") {
            self.block.name = Some(self.name_in(line));
        } else if line.starts_with("• [") || line.starts_with("S [") {
            self.block.result = Some(result_in(line));
        }
        let (Some(name), Some(result), false) = (&self.block.name, &self.block.result, self.block.told) else {
            return None;
        };
        self.block.told = true;
        self.done += 1;
        let (label, done, all) = (self.label, self.done, self.names.len());
        Some(format!("  {label} {done:>3}/{all} {result:<16} {name}"))
    }

    /// The longest known name that the line contains. A failed test's line marks the node that failed.
    fn name_in(&self, line: &str) -> String {
        let plain = ["[It] ", "[BeforeEach] ", "[AfterEach] ", "[DeferCleanup (Each)] "]
            .iter()
            .fold(line.to_owned(), |line, mark| line.replace(mark, ""));
        let known = self.names.iter().filter(|name| plain.starts_with(*name));
        known.max_by_key(|name| name.len()).map_or(plain.clone(), Clone::clone)
    }
}

/// "• [FAILED] [30.026 seconds]" → "FAILED 30.0 s"
fn result_in(line: &str) -> String {
    let mut words = line
        .split(['[', ']'])
        .map(str::trim)
        .filter(|word| word.chars().count() > 1);
    let first = words.next().unwrap_or_default();
    let (state, time) = match first.strip_suffix(" seconds") {
        Some(time) => ("passed", Some(time)),
        None => (first, words.next().and_then(|word| word.strip_suffix(" seconds"))),
    };
    match time.and_then(|time| time.parse::<f64>().ok()) {
        Some(seconds) => format!("{state} {seconds:.1} s"),
        None => state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::table;

    fn told(output: &str) -> Vec<String> {
        let tests = table::tests().unwrap().into_iter().filter(|test| test.group == "G12");
        let names: Vec<String> = tests.map(|test| test.full_name()).collect();
        let mut progress = Progress::new("G12", &names);
        output.lines().filter_map(|line| progress.note(line)).collect()
    }

    #[test]
    fn parallel_output_names_the_test_after_its_result() {
        let output = "------------------------------
• [FAILED] [30.026 seconds]
[sig-node] PodTemplates [It] should replace a pod template [Conformance] [sig-node, Conformance]
k8s.io/kubernetes/test/e2e/common/node/podtemplates.go:1
------------------------------
• [0.489 seconds]
[sig-node] Secrets should patch a secret [Conformance] [sig-node, Conformance]
------------------------------";
        assert_eq!(
            told(output),
            [
                "  G12   1/18 FAILED 30.0 s    [sig-node] PodTemplates should replace a pod template [Conformance]",
                "  G12   2/18 passed 0.5 s     [sig-node] Secrets should patch a secret [Conformance]",
            ]
        );
    }

    #[test]
    fn serial_output_names_the_test_before_its_result() {
        let output = "------------------------------
[sig-node] Secrets should patch a secret [Conformance] [sig-node, Conformance]
  STEP: something
• [0.489 seconds]
------------------------------
[sig-node] PodTemplates should replace a pod template [Conformance] [sig-node, Conformance]
• [FAILED] [1.2 seconds]
[sig-node] PodTemplates [It] should replace a pod template [Conformance] [sig-node, Conformance]
------------------------------";
        assert_eq!(told(output).len(), 2);
    }
}
