//! Durations of many operations.

use std::time::Duration;

use crate::stage::Stage;

#[derive(Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn extend(&mut self, others: Times) {
        self.0.extend(others.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that so many of a hundred stay below, in milliseconds; zero when there are none.
    pub fn percentile(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let place = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// "p50_ms" and "p99_ms", with a prefix.
    pub fn describe(&mut self, prefix: &str, stage: Stage) -> Stage {
        stage
            .with(&format!("{prefix}p50_ms"), self.percentile(50))
            .with(&format!("{prefix}p99_ms"), self.percentile(99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let mut times = Times::default();
        assert_eq!(times.percentile(99), 0.0);
        for millis in (1..=200).rev() {
            times.add(Duration::from_millis(millis));
        }
        assert_eq!(times.percentile(50), 101.0);
        assert_eq!(times.percentile(99), 199.0);
        assert_eq!(times.percentile(100), 200.0);
    }
}
