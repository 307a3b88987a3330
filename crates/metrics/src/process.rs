//! What the process uses, as the kernel tells it.

use std::fs;

use crate::{head, sample};

/// Ticks in which the kernel counts processor time.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

/// The fields of /proc/self/stat behind the command's name, and where the wanted ones are.
const USER_TICKS: usize = 11;
const KERNEL_TICKS: usize = 12;
const START_TICKS: usize = 19;
const VIRTUAL_BYTES: usize = 20;
const RESIDENT_PAGES: usize = 21;

/// Writes the metrics that every Prometheus client has; what the kernel does not tell is left out.
pub fn write(text: &mut String) {
    if let Some(stat) = fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|stat| fields(&stat))
    {
        write_stat(text, &stat);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        one(
            text,
            "process_open_fds",
            "gauge",
            "Number of open file descriptors.",
            open.count(),
        );
    }
    if let Some(most) = fs::read_to_string("/proc/self/limits")
        .ok()
        .and_then(|limits| max_open_files(&limits))
    {
        one(
            text,
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            most,
        );
    }
}

fn write_stat(text: &mut String, stat: &[u64]) {
    let ticks = (stat[USER_TICKS] + stat[KERNEL_TICKS]) as f64;
    let seconds = ticks / TICKS_PER_SECOND;
    let help = "Total user and system CPU time spent in seconds.";
    one(text, "process_cpu_seconds_total", "counter", help, seconds);
    let resident = stat[RESIDENT_PAGES] * PAGE_BYTES;
    let help = "Resident memory size in bytes.";
    one(text, "process_resident_memory_bytes", "gauge", help, resident);
    let help = "Virtual memory size in bytes.";
    one(text, "process_virtual_memory_bytes", "gauge", help, stat[VIRTUAL_BYTES]);
    let booted = fs::read_to_string("/proc/stat").ok().and_then(|stat| boot_time(&stat));
    if let Some(booted) = booted {
        let started = booted as f64 + stat[START_TICKS] as f64 / TICKS_PER_SECOND;
        let help = "Start time of the process since the Unix epoch in seconds.";
        one(text, "process_start_time_seconds", "gauge", help, started);
    }
}

fn one(text: &mut String, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
    head(text, name, kind, help);
    sample(text, name, "", value);
}

/// The numbers behind the command's name, which may itself hold blanks and brackets. Those below zero count as none.
fn fields(stat: &str) -> Option<Vec<u64>> {
    let behind = stat.rsplit_once(") ")?.1;
    let numbers: Vec<u64> = behind
        .split_whitespace()
        .map(|field| field.parse().unwrap_or_default())
        .collect();
    (numbers.len() > RESIDENT_PAGES).then_some(numbers)
}

fn max_open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_runs_has_memory_files_and_a_start() {
        let mut text = String::new();
        write(&mut text);
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_start_time_seconds",
            "process_open_fds",
            "process_max_fds",
        ] {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
            let value: f64 = line.and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
            assert!(value >= 0.0, "{name} {value}");
        }
        let started = text
            .lines()
            .find_map(|line| line.strip_prefix("process_start_time_seconds "));
        let started: f64 = started.unwrap().parse().unwrap();
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        assert!((now - started).abs() < 3600.0, "{started} is not near {now}");
    }

    #[test]
    fn a_command_may_have_brackets_in_its_name() {
        let stat = format!("7 (a) b) S {}", "1 ".repeat(40));
        assert_eq!(fields(&stat).unwrap()[USER_TICKS], 1);
    }
}
