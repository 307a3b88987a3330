//! Whole control planes from seeds. `KARVE_SIMULATION_SEEDS=n` runs that many of them however long it takes,
//! `KARVE_SIMULATION_SEED=n` one alone with its history of commits.

mod chaos;
mod history;
mod invariants;
mod kubelet;
mod link;
mod normal;
mod script;
mod server;
mod world;

use std::time::{Duration, Instant};

use script::{SCENARIOS, Scenario};
use world::{Ending, Run};

/// How much real time the seeds of an ordinary test run may take, and how many they are at most.
const BUDGET: Duration = Duration::from_secs(45);
const MAX_SEEDS: u64 = 120;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

/// The run without faults.
fn clean(scenarios: Vec<&'static Scenario>) -> Ending {
    let run = Run {
        seed: 0,
        is_faulty: false,
        scenarios,
        expected: None,
    };
    let ending = run.simulate();
    assert!(ending.wrong.is_empty(), "without faults:\n{}", ending.wrong.join("\n"));
    ending
}

fn faulty(seed: u64, clean: &Ending) -> Ending {
    let run = Run {
        seed,
        is_faulty: true,
        scenarios: script::chosen_by(seed),
        expected: Some(clean.state.clone()),
    };
    run.simulate()
}

#[test]
fn every_seed_ends_as_the_run_without_faults() {
    if let Some(seed) = number("KARVE_SIMULATION_SEED") {
        let clean = clean(script::chosen_by(seed));
        let ending = faulty(seed, &clean);
        ending.commits.iter().for_each(|commit| println!("{commit}"));
        assert!(ending.wrong.is_empty(), "{}", ending.wrong.join("\n"));
        return;
    }
    let clean = clean(SCENARIOS.iter().collect());
    let wanted = number("KARVE_SIMULATION_SEEDS");
    let first = number("KARVE_SIMULATION_FIRST_SEED").unwrap_or(1);
    let begun = Instant::now();
    let (mut failed, mut done, mut simulated) = (Vec::new(), 0, Duration::ZERO);
    for seed in first..first + wanted.unwrap_or(MAX_SEEDS) {
        if wanted.is_none() && begun.elapsed() > BUDGET {
            break;
        }
        let before = begun.elapsed();
        let ending = faulty(seed, &clean);
        if std::env::var_os("KARVE_SIMULATION_TIMES").is_some() {
            println!(
                "seed {seed}: {:?}, {:?} simulated, {} commits",
                begun.elapsed() - before,
                ending.lasted,
                ending.commits.len()
            );
        }
        done += 1;
        simulated += ending.lasted;
        if !ending.wrong.is_empty() {
            let wrong = format!("seed {seed}:\n  {}", ending.wrong.join("\n  "));
            println!("{wrong}");
            failed.push(wrong);
        }
    }
    println!(
        "seeds {first} to {} in {:.1} s, {:.1} simulated hours",
        first + done - 1,
        begun.elapsed().as_secs_f64(),
        simulated.as_secs_f64() / 3600.0
    );
    assert!(
        failed.is_empty(),
        "{} of {done} seeds failed; run one alone with KARVE_SIMULATION_SEED=n cargo test -p simulation -- --nocapture\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn a_seed_decides_everything() {
    for seed in [1, 2] {
        let clean = clean(script::chosen_by(seed));
        let (one, other) = (faulty(seed, &clean), faulty(seed, &clean));
        let differing = one.commits.iter().zip(&other.commits).find(|(one, other)| one != other);
        assert_eq!(
            one.hash, other.hash,
            "seed {seed} has two histories, which differ at\n{differing:#?}"
        );
    }
}
