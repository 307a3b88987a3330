//! Numbers of several rounds, and how they are shown.

use std::collections::BTreeMap;
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

    /// A table with the ratio first: how many times less ours takes, by the medians.
    pub fn table(&self) -> String {
        let mut text = "| measure | ratio | Karve | upstream |\n|---|--:|--:|--:|\n".to_owned();
        for (measure, unit) in &self.order {
            let [ours, upstream] = [Side::Ours, Side::Upstream].map(|side| self.samples.get(&(*measure, side)));
            let ratio = match (ours.and_then(|s| median(s)), upstream.and_then(|s| median(s))) {
                (Some(ours), Some(upstream)) if ours > 0.0 => format!("{:.1} ×", upstream / ours),
                _ => "–".to_owned(),
            };
            let cell = |samples: Option<&Vec<f64>>| samples.map_or("–".to_owned(), |samples| spread(samples, unit));
            text += &format!("| {measure} | {ratio} | {} | {} |\n", cell(ours), cell(upstream));
        }
        text
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
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
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
        assert_eq!(
            figures.table(),
            "| measure | ratio | Karve | upstream |
|---|--:|--:|--:|
| start | 15.0 × | 100 ms (90–400) | 1500 ms (1000–2000) |
| memory | – | 5.2 MB (5.2–5.2) | – |
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
