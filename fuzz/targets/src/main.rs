//! Runs targets on mutated inputs for as long as one likes, tries the inputs of files again, or writes the inputs that
//! libFuzzer begins with: `fuzzing run SEED SECONDS [NAME…]`, `fuzzing try NAME FILE…`, `fuzzing seeds DIR`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fuzzing::mutate::{Random, dictionary, input, nests};
use fuzzing::watch::{self, Cost, Counting};
use fuzzing::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Where the input that is being tried lies, to be found after an abort.
const LAST: &str = "fuzzing-last-input";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", seed, seconds, names @ ..] => match (seed.parse(), seconds.parse()) {
            (Ok(seed), Ok(seconds)) => run(seed, Duration::from_secs(seconds), names),
            _ => usage(),
        },
        ["try", name, files @ ..] => match TARGETS.iter().find(|target| target.name == *name) {
            Some(target) => try_files(target, files),
            None => usage(),
        },
        ["seeds", dir] => write_seeds(Path::new(dir)),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("fuzzing run SEED SECONDS [NAME…] | fuzzing try NAME FILE… | fuzzing seeds DIR");
    ExitCode::FAILURE
}

fn run(seed: u64, time: Duration, names: &[&str]) -> ExitCode {
    for target in TARGETS
        .iter()
        .filter(|target| names.is_empty() || names.contains(&target.name))
    {
        run_one(target, seed, time);
    }
    ExitCode::SUCCESS
}

/// A panic ends the program and leaves the input behind.
fn run_one(target: &Target, seed: u64, time: Duration) {
    let (seeds, mut random) = ((target.seeds)(), Random::new(seed));
    let last = std::env::temp_dir().join(format!("{LAST}-{}-{}", target.name, std::process::id()));
    let (begun, mut count, mut worst) = (Instant::now(), 0u64, Cost::default());
    let mut nests = nests();
    while begun.elapsed() < time {
        let data = nests.next().unwrap_or_else(|| input(&seeds, &mut random));
        if fs::write(&last, &data).is_err() {
            eprintln!("cannot write {}", last.display());
        }
        let cost = watch::run(target, &data);
        count += 1;
        worst.time = worst.time.max(cost.time);
        worst.bytes = worst.bytes.max(cost.bytes);
    }
    let _ = fs::remove_file(&last);
    println!(
        "{}: {count} inputs, at most {:?} and {} bytes",
        target.name, worst.time, worst.bytes
    );
}

fn try_files(target: &Target, files: &[&str]) -> ExitCode {
    for file in files {
        match fs::read(file) {
            Ok(data) => println!("{file}: {:?}", watch::run(target, &data)),
            Err(error) => {
                eprintln!("cannot read {file}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn write_seeds(dir: &Path) -> ExitCode {
    for target in TARGETS {
        let own = dir.join(target.name);
        let written = fs::create_dir_all(&own).and_then(|()| {
            let mut seeds = (target.seeds)().into_iter().enumerate();
            seeds.try_for_each(|(number, seed)| fs::write(own.join(format!("seed-{number}")), seed))
        });
        if let Err(error) = written {
            eprintln!("cannot write {}: {error}", own.display());
            return ExitCode::FAILURE;
        }
    }
    match fs::write(dir.join("dictionary"), dictionary()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write to {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}
