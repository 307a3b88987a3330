//! Numbers of several rounds, and how they are shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use crate::tools::root;

/// The two that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Ours,
    Upstream,
}

/// Samples by measure and side. Measures are shown in the order in which they first came.
#[derive(Default)]
pub struct Figures {
    order: Vec<(&'static str, &'static str)>,
    samples: BTreeMap<(&'static str, Side), Vec<f64>>,
    neutral: BTreeSet<&'static str>,
    /// Why a side has no samples.
    reasons: BTreeMap<(&'static str, Side), &'static str>,
}

impl Figures {
    /// `unit` is shown behind each number.
    pub fn add(&mut self, measure: &'static str, unit: &'static str, side: Side, value: f64) {
        if !self.order.iter().any(|(known, _)| *known == measure) {
            self.order.push((measure, unit));
        }
        println!("   {measure}: {}", shown(value, unit));
        self.samples.entry((measure, side)).or_default().push(value);
    }

    /// A figure of which neither more nor less is better, so that it has no ratio.
    pub fn state(&mut self, measure: &'static str, unit: &'static str, side: Side, value: f64) {
        self.neutral.insert(measure);
        self.add(measure, unit, side, value);
    }

    /// Says in the table why a side was not measured.
    pub fn leave_out(&mut self, measure: &'static str, side: Side, reason: &'static str) {
        self.reasons.insert((measure, side), reason);
    }

    /// The median of a side's samples.
    pub fn median(&self, measure: &'static str, side: Side) -> Option<f64> {
        self.samples.get(&(measure, side)).and_then(|samples| median(samples))
    }

    /// The measures with their units, in the order of the table.
    pub fn measures(&self) -> &[(&'static str, &'static str)] {
        &self.order
    }

    /// A table with the ratio first: how many times better ours is, by the medians.
    pub fn table(&self) -> String {
        let mut text = "| measure | ratio | Karve | upstream |\n|---|--:|--:|--:|\n".to_owned();
        for (measure, unit) in &self.order {
            let [ours, upstream] = [Side::Ours, Side::Upstream].map(|side| self.samples.get(&(*measure, side)));
            let ratio = match (ours.and_then(|s| median(s)), upstream.and_then(|s| median(s))) {
                (Some(ours), Some(upstream)) if !self.neutral.contains(measure) => ratio(unit, ours, upstream),
                _ => "–".to_owned(),
            };
            let cell = |side, samples: Option<&Vec<f64>>| match samples {
                Some(samples) => spread(samples, unit),
                None => self.reasons.get(&(*measure, side)).unwrap_or(&"–").to_string(),
            };
            let (ours, upstream) = (cell(Side::Ours, ours), cell(Side::Upstream, upstream));
            text += &format!("| {measure} | {ratio} | {ours} | {upstream} |\n");
        }
        text
    }
}

/// Of rates more is better, of everything else less.
pub fn is_rate(unit: &str) -> bool {
    unit.starts_with('/')
}

/// How many times better ours is.
pub fn ratio(unit: &str, ours: f64, upstream: f64) -> String {
    let (more, less) = if is_rate(unit) {
        (ours, upstream)
    } else {
        (upstream, ours)
    };
    match less > 0.0 {
        true => format!("{:.1} ×", more / less),
        false => "–".to_owned(),
    }
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

/// "median unit (least–most)"
fn spread(samples: &[f64], unit: &str) -> String {
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let most = samples.iter().copied().fold(0.0, f64::max);
    let median = median(samples).unwrap_or_default();
    format!("{} ({}–{})", shown(median, unit), number(least), number(most))
}

fn shown(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}

fn number(value: f64) -> String {
    match value {
        small if small.abs() < 1.0 => format!("{small:.2}"),
        below if below.abs() < 10.0 => format!("{below:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Replaces a section of docs/performance.md, or adds it at the end.
pub fn write_section(name: &str, content: &str) -> Result<()> {
    let path = root().join("docs/performance.md");
    let before = match path.exists() {
        true => fs::read_to_string(&path)?,
        false => "# Performance\n\nMeasured beside upstream in one run; `cargo xtask bench` repeats it.\n".to_owned(),
    };
    fs::create_dir_all(root().join("docs"))?;
    fs::write(&path, replace(&before, name, content)).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(page: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let section = format!("{begin}{content}{end}");
    match (page.find(&begin), page.find(&end)) {
        (Some(from), Some(to)) if from < to => format!("{}{section}{}", &page[..from], &page[to + end.len()..]),
        _ => format!("{page}\n{section}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_medians() {
        let mut figures = Figures::default();
        for value in [90.0, 100.0, 400.0] {
            figures.add("start", "ms", Side::Ours, value);
        }
        for value in [1000.0, 2000.0] {
            figures.add("start", "ms", Side::Upstream, value);
        }
        figures.add("memory", "MB", Side::Ours, 5.25);
        figures.leave_out("memory", Side::Upstream, "not run");
        figures.add("GET", "/s", Side::Ours, 300.0);
        figures.add("GET", "/s", Side::Upstream, 100.0);
        assert_eq!(
            figures.table(),
            "| measure | ratio | Karve | upstream |
|---|--:|--:|--:|
| start | 15.0 × | 100 ms (90–400) | 1500 ms (1000–2000) |
| memory | – | 5.2 MB (5.2–5.2) | not run |
| GET | 3.0 × | 300 /s (300–300) | 100 /s (100–100) |
"
        );
    }

    #[test]
    fn a_section_is_replaced_where_it_stands() {
        let page = replace("# P\n", "a", "one\n");
        let page = replace(&page, "b", "two\n");
        let page = replace(&page, "a", "three\n");
        assert_eq!(
            page,
            "# P\n\n<!-- a -->\nthree\n<!-- end of a -->\n\n<!-- b -->\ntwo\n<!-- end of b -->\n"
        );
    }
}
