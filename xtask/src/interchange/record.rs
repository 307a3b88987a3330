//! The committed table of cells, `docs/interchange.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Base, Cell, SUBJECTS, Verdict};
use crate::tools::{self, root};

/// How much of a message becomes a reason.
const REASON_LENGTH: usize = 300;

/// The text of each cell, by component and base.
type Table = BTreeMap<(String, usize), String>;

const BASES: &[Base] = &[Base::Upstream, Base::Ours, Base::Embedded];

fn path() -> PathBuf {
    root().join("docs/interchange.md")
}

/// Writes what was found; cells that were not run keep what they had.
pub fn write(cells: &[Cell]) -> Result<()> {
    let mut table = parse(&fs::read_to_string(path()).unwrap_or_default());
    let stamp = format!("{} {}", tools::today(), tools::commit()?);
    for cell in cells {
        let place = BASES.iter().position(|base| *base == cell.base).unwrap_or_default();
        table.insert((cell.component.to_owned(), place), text(cell, &stamp));
    }
    fs::write(path(), render(&table)).with_context(|| format!("cannot write {}", path().display()))
}

fn text(cell: &Cell, stamp: &str) -> String {
    match &cell.verdict {
        Verdict::Green => format!("green ({stamp})"),
        Verdict::Failed(reason) => {
            let plain = reason.replace(['\n', '|'], " ");
            let short: String = plain.chars().take(REASON_LENGTH).collect();
            let words: Vec<&str> = short.split_whitespace().collect();
            format!("not green ({stamp}): {}", words.join(" "))
        }
    }
}

fn parse(page: &str) -> Table {
    let mut table = Table::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let fields: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Some((name, cells)) = fields.split_first() else {
            continue;
        };
        for (place, text) in cells.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            table.insert((name.trim_matches('`').to_owned(), place), (*text).to_owned());
        }
    }
    table
}

fn render(table: &Table) -> String {
    let mut page = String::from(
        "# Interchange

`cargo xtask interchange --record` swaps one component at a time on a running cluster and writes this page. The cluster
runs containerd and carries a Deployment, a StatefulSet, a DaemonSet, Jobs and Services. A cell is green when the swap
restarted no container and started no rollout (watched for 20 s), when scaling, a rollout, a Job, ordered pods and a lost
daemon, exec, logs and port forwarding then worked with the swapped component, and when swapping back was as quiet.

The row `kube-controller-manager` has the loss of a node as well: a second node vanishes without a word, is found out,
its pods are replaced on the first one and its addresses leave the EndpointSlices. It is not lost again in the other rows,
where the same controllers would do the same. Cells of 2026-11-15 were recorded without the loss of a node, and without
exec, logs and port forwarding.

Containers do not change hands between runtimes. In the row `runtime` the other side's runtime is there from the start
(ours behind its CRI socket under upstream's kubelet, or containerd under ours), and is restarted instead of swapped.

| component | ours in upstream's cluster | upstream's in ours, on etcd | upstream's in ours, on the embedded store |
|---|---|---|---|
",
    );
    for component in SUBJECTS {
        let cells: Vec<&str> = (0..BASES.len())
            .map(|place| {
                table
                    .get(&((*component).to_owned(), place))
                    .map_or("not run", String::as_str)
            })
            .collect();
        let _ = writeln!(page, "| `{component}` | {} |", cells.join(" | "));
    }
    page.push_str(
        "
Beside that, `cargo xtask e2e workload` carries the same Deployment and Service on our runtime within `karve up`, and
`workload-etcd` on etcd.
",
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_were_not_run_are_kept() {
        let mut table = Table::new();
        table.insert(("kubelet".to_owned(), 1), "green (2026-01-01 abc)".to_owned());
        let again = parse(&render(&table));
        assert_eq!(again[&("kubelet".to_owned(), 1)], "green (2026-01-01 abc)");
        assert_eq!(again[&("kubelet".to_owned(), 0)], "not run");
    }

    #[test]
    fn a_reason_is_one_line_without_bars() {
        let cell = Cell {
            base: Base::Ours,
            component: "kubelet",
            verdict: Verdict::Failed("it\nbroke | here".to_owned()),
        };
        assert_eq!(text(&cell, "today abc"), "not green (today abc): it broke here");
        let cell = Cell {
            verdict: Verdict::Green,
            ..cell
        };
        assert_eq!(text(&cell, "today abc"), "green (today abc)");
    }
}
