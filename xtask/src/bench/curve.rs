//! How a figure grows, as a table and as a plot.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::figures::{Side, ratio};

/// One measure over growing sizes.
pub struct Curve {
    pub measure: &'static str,
    pub unit: &'static str,
    points: BTreeMap<(usize, Side), f64>,
}

impl Curve {
    pub fn new(measure: &'static str, unit: &'static str) -> Self {
        Self {
            measure,
            unit,
            points: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, size: usize, side: Side, value: f64) {
        println!("   {size:>7}: {} {value:.2} {}", self.measure, self.unit);
        self.points.insert((size, side), value);
    }

    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.points.keys().map(|(size, _)| *size).collect();
        sizes.dedup();
        sizes
    }

    /// A line per size: ours and upstream's, the ratio first. Where upstream has no figure it was not run.
    pub fn rows(&self) -> String {
        let mut text = String::new();
        for size in self.sizes() {
            let [ours, upstream] = [Side::Ours, Side::Upstream].map(|side| self.points.get(&(size, side)).copied());
            let ratio = match (ours, upstream) {
                (Some(ours), Some(upstream)) => ratio(self.unit, ours, upstream),
                _ => "–".to_owned(),
            };
            let cell = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2} {}", self.unit));
            let _ = writeln!(
                text,
                "| {} | {size} | {ratio} | {} | {} |",
                self.measure,
                cell(ours),
                cell(upstream)
            );
        }
        text
    }

    /// Both axes are logarithmic: a straight line of slope one is proportional.
    pub fn svg(&self) -> String {
        let sizes = self.sizes();
        let across = Scale::over(sizes.iter().map(|size| *size as f64), 60.0, 460.0);
        let down = Scale::over(self.points.values().copied(), 240.0, 30.0);
        let mut body = String::new();
        for size in &sizes {
            let x = across.place(*size as f64);
            let _ = writeln!(
                body,
                r##"<line x1="{x:.1}" y1="30" x2="{x:.1}" y2="240" stroke="#ddd"/><text x="{x:.1}" y="258" text-anchor="middle">{size}</text>"##
            );
        }
        for value in [down.least, down.most] {
            let y = down.place(value);
            let _ = writeln!(
                body,
                r##"<line x1="60" y1="{y:.1}" x2="460" y2="{y:.1}" stroke="#ddd"/><text x="55" y="{:.1}" text-anchor="end">{value:.3}</text>"##,
                y + 4.0
            );
        }
        for (side, colour, label) in [(Side::Ours, "#06c", "Karve"), (Side::Upstream, "#c60", "upstream")] {
            let points: Vec<(f64, f64)> = self
                .points
                .iter()
                .filter(|((_, of), _)| *of == side)
                .map(|((size, _), value)| (across.place(*size as f64), down.place(*value)))
                .collect();
            let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                body,
                r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points="{}"/>"#,
                line.join(" ")
            );
            if let Some((x, y)) = points.last() {
                let _ = writeln!(
                    body,
                    r#"<text x="{:.1}" y="{:.1}" fill="{colour}">{label}</text>"#,
                    x + 6.0,
                    y + 4.0
                );
            }
        }
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="540" height="270" font-family="sans-serif" font-size="12">
<text x="60" y="18">{} ({})</text>
{body}</svg>
"#,
            self.measure, self.unit
        )
    }
}

/// A logarithmic axis.
struct Scale {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

/// What stands for zero on an axis that has none.
const SMALLEST: f64 = 1e-3;

impl Scale {
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).max(SMALLEST);
        let most = values.fold(least, f64::max);
        Self { least, most, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let span = (self.most / self.least).ln();
        match span > 0.0 {
            true => self.from + (self.to - self.from) * (value.max(self.least) / self.least).ln() / span,
            false => (self.from + self.to) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_down_the_table_and_along_the_plot() {
        let mut curve = Curve::new("list", "ms");
        for (size, ours, upstream) in [(1000, 2.0, 20.0), (100_000, 200.0, 2000.0)] {
            curve.add(size, Side::Ours, ours);
            curve.add(size, Side::Upstream, upstream);
        }
        assert_eq!(
            curve.rows(),
            "| list | 1000 | 10.0 × | 2.00 ms | 20.00 ms |\n| list | 100000 | 10.0 × | 200.00 ms | 2000.00 ms |\n"
        );
        let svg = curve.svg();
        // The same slope, one thousandth of the height apart.
        assert!(svg.contains(r#"points="60.0,240.0 460.0,100.0""#), "{svg}");
        assert!(svg.contains(r#"points="60.0,170.0 460.0,30.0""#), "{svg}");
    }
}
