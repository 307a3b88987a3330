//! Tests of upstream's that return early, and so pass, when what they need is missing. Such a pass is not counted.

use super::outcome::{Outcome, State};
use super::record::Record;

/// A test, and the one without which its pass says nothing; both by their index.
const WITNESSES: &[(usize, usize)] = &[
    // They end without a word when their custom resource definition is not established.
    (9, CUSTOM_RESOURCES),
    (15, CUSTOM_RESOURCES),
    (16, CUSTOM_RESOURCES),
    (17, CUSTOM_RESOURCES),
    (29, CUSTOM_RESOURCES),
    (30, CUSTOM_RESOURCES),
    (37, CUSTOM_RESOURCES),
];

/// "creating/deleting custom resource definition objects works"
const CUSTOM_RESOURCES: usize = 32;

/// Turns passes that prove nothing into failures. A witness that was not run is taken from the record.
pub fn apply(outcomes: &mut [Outcome], record: &Record) {
    let states: Vec<(usize, State)> = outcomes.iter().map(|outcome| (outcome.index, outcome.state)).collect();
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.state == State::Passed) {
        let Some((_, witness)) = WITNESSES.iter().find(|(test, _)| *test == outcome.index) else {
            continue;
        };
        let run = states.iter().find(|(index, _)| index == witness);
        let stands = run.map_or(record.passed(*witness), |(_, state)| *state == State::Passed);
        if !stands {
            outcome.state = State::Failed;
            outcome.message = format!("passes without testing anything while test {witness} fails");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(states: &[(usize, State)]) -> Vec<State> {
        let mut outcomes: Vec<Outcome> = states
            .iter()
            .map(|(index, state)| Outcome {
                index: *index,
                state: *state,
                seconds: 1.0,
                message: String::new(),
            })
            .collect();
        apply(&mut outcomes, &Record::default());
        outcomes.iter().map(|outcome| outcome.state).collect()
    }

    #[test]
    fn a_pass_counts_only_with_its_witness() {
        use State::{Failed, Passed};
        assert_eq!(run(&[(29, Passed), (32, Failed)]), [Failed, Failed]);
        assert_eq!(run(&[(29, Passed), (32, Passed)]), [Passed, Passed]);
        assert_eq!(run(&[(29, Passed)]), [Failed]);
        assert_eq!(run(&[(28, Passed), (32, Failed)]), [Passed, Failed]);
    }
}
