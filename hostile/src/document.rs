//! The document that says what is promised: it names every case, and nothing that is none.

use std::fs;
use std::path::PathBuf;

use crate::cases;

const BEGIN: &str = "<!-- attacks -->\n";
const END: &str = "<!-- /attacks -->";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md")
}

fn table() -> String {
    let mut table = "| attack | known as | what must not happen |\n|---|---|---|\n".to_owned();
    for case in cases::all() {
        table += &format!("| `{}` | {} | {} |\n", case.name, case.class, case.must_not);
    }
    table
}

#[test]
fn the_table_is_that_of_the_cases() {
    let text = fs::read_to_string(path()).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if found == table() {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_EXPECT").is_some(),
        "docs/security.md has another table of attacks; run the test with UPDATE_EXPECT=1"
    );
    fs::write(path(), format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
}

#[test]
fn every_promise_names_cases_that_there_are_and_every_case_belongs_to_one() {
    let text = fs::read_to_string(path()).unwrap();
    let promises = text.split(BEGIN).next().unwrap();
    let groups = [
        "requests/",
        "images/",
        "volumes/",
        "containers/",
        "network/",
        "nodes/",
        "floods/",
    ];
    let named: Vec<&str> = promises
        .split('`')
        .filter(|word| groups.iter().any(|group| word.starts_with(group)))
        .collect();
    for name in &named {
        assert!(cases::all().any(|case| case.name == *name), "there is no attack {name}");
    }
    for case in cases::all() {
        assert!(named.contains(&case.name), "no promise names {}", case.name);
    }
}
