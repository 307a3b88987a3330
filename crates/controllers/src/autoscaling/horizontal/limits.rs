//! How fast and how far a target may be scaled: stabilization, policies, and the bounds of the autoscaler.

use std::time::Duration;

use client::when::Moment;

use super::model::{Behavior, ScalingPolicy, ScalingRules};

/// For how long the highest recommendation holds before fewer replicas are made, unless the behavior says otherwise.
const DOWNSCALE_STABILIZATION: i64 = 300;
/// Without a behavior a target at most doubles at a time, and always may have this many.
const SCALE_UP_FACTOR: i64 = 2;
const SCALE_UP_MINIMUM: i64 = 4;
/// No behavior looks back further; validation holds windows and periods to it.
const LONGEST_WINDOW: Duration = Duration::from_secs(3600);

/// What was recommended and done lately for one autoscaler.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub recommendations: Vec<(Moment, i64)>,
    pub scaled_up: Vec<(Moment, i64)>,
    pub scaled_down: Vec<(Moment, i64)>,
    /// The replicas before and after the last change, until it is known whether it was written.
    unsettled: Option<(i64, i64)>,
}

/// The wanted replicas after all limits, and what to say about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Limited {
    pub replicas: i64,
    /// Reason and message of the condition AbleToScale.
    pub able: (&'static str, &'static str),
    /// Status, reason and message of the condition ScalingLimited.
    pub limited: (&'static str, &'static str, &'static str),
}

/// The bounds of an autoscaler.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub min: i64,
    pub max: i64,
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN_RANGE: (&str, &str, &str) = (
    "False",
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const TOO_FEW: (&str, &str, &str) = (
    "True",
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const TOO_MANY: (&str, &str, &str) = (
    "True",
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const UP_LIMIT: (&str, &str, &str) = (
    "True",
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const DOWN_LIMIT: (&str, &str, &str) = (
    "True",
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

impl History {
    /// Notes that the target is about to have other replicas.
    pub fn record_scale(&mut self, from: i64, to: i64, now: Moment) {
        self.unsettled = Some((from, to));
        match to > from {
            true => self.scaled_up.push((now, to - from)),
            false => self.scaled_down.push((now, from - to)),
        }
    }

    /// Whether the last change of the target was not written, by the replicas that the target has now. A plan may also fail
    /// after the target was scaled, when the autoscaler's own status cannot be written; then the change counts.
    pub fn settle_last_scale(&mut self, current: i64, has_failed: bool) -> bool {
        let unsettled = self.unsettled.take();
        let is_unwritten = has_failed && unsettled.is_some_and(|(from, _)| from == current);
        if is_unwritten {
            self.forget_last_scale();
        }
        is_unwritten
    }

    /// Takes back the note of a change that could not be written.
    fn forget_last_scale(&mut self) {
        let last = |events: &Vec<(Moment, i64)>| events.last().map(|(at, _)| *at);
        match last(&self.scaled_up) > last(&self.scaled_down) {
            true => self.scaled_up.pop(),
            false => self.scaled_down.pop(),
        };
    }

    fn record_recommendation(&mut self, current: i64, desired: i64, now: Moment) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
        self.recommendations.push((now, desired));
        for events in [&mut self.recommendations, &mut self.scaled_up, &mut self.scaled_down] {
            events.retain(|(at, _)| now.since(*at) <= LONGEST_WINDOW);
        }
    }
}

/// What becomes of the replicas that the metrics ask for.
pub fn limit(
    desired: i64,
    current: i64,
    bounds: Bounds,
    behavior: Option<&Behavior>,
    history: &mut History,
    now: Moment,
) -> Limited {
    history.record_recommendation(current, desired, now);
    match behavior {
        Some(behavior) => with_behavior(desired, current, bounds, behavior, history, now),
        None => by_default(desired, current, bounds, history, now),
    }
}

fn by_default(desired: i64, current: i64, bounds: Bounds, history: &History, now: Moment) -> Limited {
    let highest = within(&history.recommendations, DOWNSCALE_STABILIZATION, now).max();
    let stable = highest.unwrap_or(desired).max(desired);
    let able = if stable == desired { READY } else { DOWN_STABILIZED };
    let rate = (current * SCALE_UP_FACTOR).max(SCALE_UP_MINIMUM);
    let too_many = if rate < bounds.max { UP_LIMIT } else { TOO_MANY };
    let (replicas, limited) = clamp(stable, (bounds.min, TOO_FEW), (bounds.max.min(rate), too_many));
    Limited {
        replicas,
        able,
        limited,
    }
}

fn with_behavior(
    desired: i64,
    current: i64,
    bounds: Bounds,
    behavior: &Behavior,
    history: &History,
    now: Moment,
) -> Limited {
    let up_window = behavior.scale_up.stabilization_window_seconds.unwrap_or(0);
    let down_window = behavior.scale_down.stabilization_window_seconds;
    let down_window = down_window.unwrap_or(DOWNSCALE_STABILIZATION);
    let lowest = within(&history.recommendations, up_window, now).fold(desired, i64::min);
    let highest = within(&history.recommendations, down_window, now).fold(desired, i64::max);
    let stable = current.max(lowest).min(highest);
    let able = match stable == desired {
        true => READY,
        false if desired >= current => UP_STABILIZED,
        false => DOWN_STABILIZED,
    };
    let (replicas, limited) = if stable > current {
        let rate = scale_up_limit(current, &behavior.scale_up, history, now).max(current);
        let too_many = if rate < bounds.max { UP_LIMIT } else { TOO_MANY };
        clamp(stable, (bounds.min, TOO_FEW), (bounds.max.min(rate), too_many))
    } else {
        let rate = scale_down_limit(current, &behavior.scale_down, history, now).min(current);
        let too_few = if rate > bounds.min { DOWN_LIMIT } else { TOO_FEW };
        clamp(stable, (bounds.min.max(rate), too_few), (bounds.max, TOO_MANY))
    };
    Limited {
        replicas,
        able,
        limited,
    }
}

type Saying = (&'static str, &'static str, &'static str);

fn clamp(desired: i64, min: (i64, Saying), max: (i64, Saying)) -> (i64, Saying) {
    match desired {
        desired if desired < min.0 => min,
        desired if desired > max.0 => max,
        desired => (desired, WITHIN_RANGE),
    }
}

fn scale_up_limit(current: i64, rules: &ScalingRules, history: &History, now: Moment) -> i64 {
    let by_policy = |policy: &ScalingPolicy| {
        let start = current - done(&history.scaled_up, policy, now) + done(&history.scaled_down, policy, now);
        match policy.kind.as_str() {
            "Percent" => (start as f64 * (1.0 + policy.value as f64 / 100.0)).ceil() as i64,
            _ => start + policy.value,
        }
    };
    let limits = rules.policies.iter().map(by_policy);
    let limit = match rules.select_policy.as_str() {
        "Disabled" => Some(current),
        "Min" => limits.min(),
        _ => limits.max(),
    };
    limit.unwrap_or_else(|| (current * SCALE_UP_FACTOR).max(current + SCALE_UP_MINIMUM))
}

fn scale_down_limit(current: i64, rules: &ScalingRules, history: &History, now: Moment) -> i64 {
    let by_policy = |policy: &ScalingPolicy| {
        let start = current + done(&history.scaled_down, policy, now) - done(&history.scaled_up, policy, now);
        match policy.kind.as_str() {
            "Percent" => (start as f64 * (1.0 - policy.value as f64 / 100.0)) as i64,
            _ => start - policy.value,
        }
    };
    let limits = rules.policies.iter().map(by_policy);
    let limit = match rules.select_policy.as_str() {
        "Disabled" => Some(current),
        "Min" => limits.max(),
        _ => limits.min(),
    };
    limit.unwrap_or(0)
}

/// By how many replicas the target was changed within the period of a policy.
fn done(events: &[(Moment, i64)], policy: &ScalingPolicy, now: Moment) -> i64 {
    within(events, policy.period_seconds, now).sum()
}

fn within(events: &[(Moment, i64)], seconds: i64, now: Moment) -> impl Iterator<Item = i64> {
    let window = Duration::from_secs(seconds.unsigned_abs());
    let recent = events.iter().filter(move |(at, _)| now.since(*at) < window);
    recent.map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{noon, values};

    const BOUNDS: Bounds = Bounds { min: 1, max: 20 };

    fn after(seconds: u64) -> Moment {
        noon().plus(Duration::from_secs(seconds))
    }

    #[test]
    fn without_behavior_a_target_doubles_at_most_and_shrinks_after_five_minutes() {
        let mut history = History::default();
        let up = limit(30, 6, BOUNDS, None, &mut history, noon());
        assert_eq!((up.replicas, up.limited.1), (12, "ScaleUpLimit"));
        let up = limit(30, 12, BOUNDS, None, &mut history, after(15));
        assert_eq!((up.replicas, up.limited.1), (20, "TooManyReplicas"));
        let held = limit(2, 20, BOUNDS, None, &mut history, after(60));
        assert_eq!((held.replicas, held.able.0), (20, "ScaleDownStabilized"));
        let down = limit(0, 20, BOUNDS, None, &mut history, after(400));
        assert_eq!(
            (down.replicas, down.able.0, down.limited.1),
            (1, "ReadyForNewScale", "TooFewReplicas")
        );
    }

    #[test]
    fn policies_bound_what_happens_in_their_period() {
        let behavior = values(
            "scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 3, periodSeconds: 60}]}
scaleDown: {stabilizationWindowSeconds: 0, policies: [{type: Percent, value: 50, periodSeconds: 60}]}",
        );
        let behavior: Behavior = serde_json::from_value(behavior[0].clone()).unwrap();
        let mut history = History::default();
        let at = |desired, current, seconds: u64, history: &mut History| {
            let limited = limit(desired, current, BOUNDS, Some(&behavior), history, after(seconds));
            history.record_scale(current, limited.replicas, after(seconds));
            (limited.replicas, limited.limited.1)
        };
        assert_eq!(at(10, 2, 0, &mut history), (5, "ScaleUpLimit"));
        assert_eq!(at(10, 5, 30, &mut history), (5, "ScaleUpLimit"));
        assert_eq!(at(10, 5, 61, &mut history), (8, "ScaleUpLimit"));
        assert_eq!(at(1, 8, 200, &mut history), (4, "ScaleDownLimit"));
        assert_eq!(at(1, 4, 230, &mut history), (4, "ScaleDownLimit"));
    }

    #[test]
    fn a_disabled_direction_stays_where_it_is() {
        let behavior = values("scaleDown: {selectPolicy: Disabled, stabilizationWindowSeconds: 0}");
        let behavior: Behavior = serde_json::from_value(behavior[0].clone()).unwrap();
        let limited = limit(1, 8, BOUNDS, Some(&behavior), &mut History::default(), noon());
        assert_eq!(limited.replicas, 8);
    }
}
