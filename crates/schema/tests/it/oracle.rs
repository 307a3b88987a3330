//! Upstream's own code as the judge: random objects of every kind go through both engines, and the answers must agree.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::Value;
use serde_json::json;

use crate::generate::{self, Choices};

/// The program `interop/build.sh schema-oracle` makes, in conversation.
struct Oracle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

#[derive(Debug, PartialEq)]
struct Answer {
    output: Vec<u8>,
    problems: Vec<String>,
    error: String,
}

impl Oracle {
    /// `None`, after saying so, when the program has not been built.
    fn start() -> Option<Oracle> {
        let build = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../interop/build.sh");
        let directory = Command::new(build).arg("--path").output().ok()?;
        let program = PathBuf::from(String::from_utf8_lossy(&directory.stdout).trim()).join("schema-oracle");
        if !program.exists() {
            let message = "SKIPPED: upstream's answers are not compared; run interop/build.sh schema-oracle first";
            assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "{message}");
            eprintln!("{message}");
            return None;
        }
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Some(Oracle { child, input, output })
    }

    fn ask(&mut self, op: &str, kind: (&str, &str), input: &[u8], patch: &[u8]) -> Answer {
        let request = json!({
            "op": op, "apiVersion": kind.0, "kind": kind.1,
            "input": STANDARD.encode(input), "patch": STANDARD.encode(patch),
        });
        writeln!(self.input, "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        let problems = answer["problems"].as_array().cloned().unwrap_or_default();
        Answer {
            output: STANDARD.decode(answer["output"].as_str().unwrap_or_default()).unwrap(),
            problems: problems
                .iter()
                .map(|problem| problem.as_str().unwrap().to_owned())
                .collect(),
            error: answer["error"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that look random and are the same in every run.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length);
    for _ in 0..length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push((state >> 32) as u8);
    }
    bytes
}

/// How many objects of each kind are compared; more on demand.
fn rounds() -> u64 {
    std::env::var("KARVE_ORACLE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

fn parsed(bytes: &[u8]) -> Value {
    schema::parse_json(bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

/// Disagreements, gathered so that one run shows them all.
#[derive(Default)]
struct Differences {
    found: Vec<String>,
}

impl Differences {
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, ours: T, theirs: T, what: impl FnOnce() -> String) -> bool {
        let same = ours == theirs;
        if !same {
            let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
            let alike = ours
                .chars()
                .zip(theirs.chars())
                .take_while(|(ours, theirs)| ours == theirs)
                .count();
            let from_there = |text: &str| {
                text.chars()
                    .skip(alike.saturating_sub(80))
                    .take(200)
                    .collect::<String>()
            };
            let (ours, theirs) = (from_there(&ours), from_there(&theirs));
            self.found
                .push(format!("{}\n  ours   {ours}\n  theirs {theirs}", what()));
        }
        same
    }
}

impl Drop for Differences {
    fn drop(&mut self) {
        if !self.found.is_empty() && !std::thread::panicking() {
            let shown: Vec<_> = self.found.iter().take(12).cloned().collect();
            panic!("{} differences:\n{}", self.found.len(), shown.join("\n"));
        }
    }
}

/// Upstream registers the options of meta/v1 in every group except their own.
fn is_unregistered(answer: &Answer) -> bool {
    answer.error.contains("is registered for version \"meta.k8s.io/v1\"")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn decoding_agrees_with_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    for (api_version, kind, ty) in schema::builtin().kinds() {
        for round in 0..rounds() {
            let bytes = noise(round * 7919 + kind.len() as u64, 4000);
            let object = generate::object(ty, &mut Choices::messy(&bytes));
            let input = serde_json::to_vec(&object).unwrap();
            let theirs = oracle.ask("decode", (api_version, kind), &input, b"");
            if is_unregistered(&theirs) {
                continue;
            }
            let what = || format!("{api_version} {kind}: {}", text(&input));
            match schema::decode_json(ty, &input) {
                Err(ours) => {
                    differences.check(ours.to_string(), theirs.error, what);
                }
                Ok(ours) => {
                    let _ = differences.check(String::new(), theirs.error, what)
                        && differences.check(ours.problems, theirs.problems, what)
                        && differences.check(
                            text(&schema::encode_json(&ours.value)),
                            text(&schema::encode_json(&parsed(&theirs.output))),
                            what,
                        );
                }
            }
        }
    }
}

#[test]
fn messages_agree_with_upstream_byte_by_byte() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    for (api_version, kind, ty) in schema::builtin().kinds() {
        for round in 0..rounds() {
            let bytes = noise(round * 104_729 + kind.len() as u64, 4000);
            let mut object = generate::object(ty, &mut Choices::tidy(&bytes));
            schema::normalize(ty, &mut object).unwrap();
            let input = schema::encode_json(&object);
            let theirs = oracle.ask("to-protobuf", (api_version, kind), &input, b"");
            if is_unregistered(&theirs) {
                continue;
            }
            let what = || format!("{api_version} {kind}: {}", text(&input));
            match schema::encode_protobuf(ty, &object) {
                Ok(ours) => {
                    let theirs_body = schema::envelope::decode(&theirs.output).map(|envelope| envelope.raw);
                    let _ = differences.check(String::new(), theirs.error, what)
                        && differences.check(text(&ours), text(theirs_body.unwrap_or_default()), what);
                }
                Err(ours) => {
                    differences.check(ours.to_string(), theirs.error, what);
                }
            }
        }
    }
}

/// The input with a few bytes changed, so that it is nearly right.
fn damaged(input: &[u8], seed: u64) -> Vec<u8> {
    const BYTES: &[u8] = b"\"\"{}[],:0e-.\\tnul\x00\xff <";
    let choices = noise(seed, 8);
    let mut bytes = input.to_vec();
    for pair in choices.chunks(4).take(1 + usize::from(choices[7] > 200)) {
        if bytes.is_empty() {
            break;
        }
        let position = usize::from(u16::from_le_bytes([pair[0], pair[1]])) % bytes.len();
        let replacement = BYTES[usize::from(pair[2]) % BYTES.len()];
        match pair[3] % 3 {
            0 => bytes[position] = replacement,
            1 => bytes.insert(position, replacement),
            _ => drop(bytes.remove(position)),
        }
    }
    bytes
}

#[test]
fn errors_agree_with_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    for (api_version, kind, ty) in schema::builtin().kinds() {
        for round in 0..rounds() {
            let bytes = noise(round * 15_485_863 + kind.len() as u64, 300);
            let object = generate::object(ty, &mut Choices::messy(&bytes));
            let input = damaged(&serde_json::to_vec(&object).unwrap(), round * 31 + kind.len() as u64);
            let theirs = oracle.ask("decode", (api_version, kind), &input, b"");
            if is_unregistered(&theirs) {
                continue;
            }
            let what = || format!("{api_version} {kind}: {}", text(&input));
            match schema::decode_json(ty, &input) {
                Err(ours) => {
                    // The server looks for the kind first and says so when it cannot even read that.
                    let theirs = theirs
                        .error
                        .replace("couldn't get version/kind; json parse error: ", "");
                    differences.check(ours.to_string(), theirs, what);
                }
                Ok(ours) => {
                    let _ = differences.check(String::new(), theirs.error, what)
                        && differences.check(ours.problems, theirs.problems, what)
                        && differences.check(
                            text(&schema::encode_json(&ours.value)),
                            text(&schema::encode_json(&parsed(&theirs.output))),
                            what,
                        );
                }
            }
        }
    }
}

#[test]
fn reading_messages_agrees_with_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    for (api_version, kind, ty) in schema::builtin().kinds() {
        for round in 0..rounds() {
            let bytes = noise(round * 611_953 + kind.len() as u64, 1000);
            let mut object = generate::object(ty, &mut Choices::tidy(&bytes));
            schema::normalize(ty, &mut object).unwrap();
            let Ok(message) = schema::encode_protobuf(ty, &object) else {
                continue;
            };
            let message = if round % 2 == 0 {
                message
            } else {
                damaged(&message, round)
            };
            let input = schema::envelope::encode(api_version, kind, &message);
            let theirs = oracle.ask("from-protobuf", (api_version, kind), &input, b"");
            if is_unregistered(&theirs) {
                continue;
            }
            let what = || format!("{api_version} {kind}: {message:?} {}", theirs.error);
            match schema::decode_protobuf(ty, &message) {
                // Upstream reads past the end of a map's entry into what follows it.
                Err(schema::ProtobufError::Truncated) => {}
                Err(ours) => {
                    if theirs.error.is_empty() {
                        differences.check(ours.to_string(), String::new(), what);
                    }
                }
                Ok(mut ours) => {
                    let mut theirs_value = if theirs.error.is_empty() {
                        parsed(&theirs.output)
                    } else {
                        Value::Null
                    };
                    for value in [&mut ours, &mut theirs_value] {
                        if let Some(map) = value.as_object_mut() {
                            map.remove("apiVersion");
                            map.remove("kind");
                        }
                    }
                    differences.check(
                        text(&schema::encode_json(&ours)),
                        text(&schema::encode_json(&theirs_value)),
                        what,
                    );
                }
            }
        }
    }
}

#[test]
fn strategic_merge_patches_agree_with_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    let (mut applied, mut refused) = (0, 0);
    for (api_version, kind, ty) in schema::builtin().kinds() {
        for round in 0..rounds() * 4 {
            let bytes = noise(round * 179_424_673 + kind.len() as u64, 6000);
            let mut choices = Choices::tidy(&bytes);
            let mut live = generate::object(ty, &mut choices);
            generate::identify(ty, &mut live, &mut choices);
            schema::normalize(ty, &mut live).unwrap();
            choices.messy = true;
            let patch = generate::patch(ty, &mut choices);
            let (live_bytes, patch_bytes) = (schema::encode_json(&live), schema::encode_json(&patch));
            let theirs = oracle.ask("strategic-merge-patch", (api_version, kind), &live_bytes, &patch_bytes);
            if is_unregistered(&theirs) {
                continue;
            }
            let what = || {
                format!(
                    "{api_version} {kind}\n  live   {}\n  patch  {}",
                    text(&live_bytes),
                    text(&patch_bytes)
                )
            };
            match schema::strategic_merge_patch(ty, &live, &patch) {
                Ok(ours) if theirs.error.is_empty() => {
                    applied += 1;
                    let theirs = schema::encode_json(&parsed(&theirs.output));
                    differences.check(text(&schema::encode_json(&ours)), text(&theirs), what);
                }
                // Inside maps and opaque JSON upstream refuses to merge; there is no reason to.
                Ok(_) if theirs.error.starts_with("panic: ") => {}
                Ok(_) if theirs.error.contains("is not struct") || theirs.error.contains("in struct RawExtension") => {}
                Ok(_) if theirs.error.contains("in struct JSON") || theirs.error.contains("in struct FieldsV1") => {}
                Ok(_) if theirs.error.contains("expected slice or array type") => {}
                Ok(_) => {
                    differences.check(String::new(), theirs.error, what);
                }
                Err(_) if theirs.error.starts_with("panic: ") => {}
                // Upstream walks maps in random order, so of several mistakes it names any.
                Err(_) if !theirs.error.is_empty() => refused += 1,
                Err(ours) => {
                    differences.check(ours.to_string(), String::new(), what);
                }
            }
        }
    }
    assert!(
        applied > refused,
        "most patches should apply: {applied} did, {refused} did not"
    );
}

#[test]
fn json_and_merge_patches_agree_with_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    let ty = crate::kind("v1", "Pod");
    for round in 0..rounds() * 100 {
        let bytes = noise(round * 32_452_843, 1500);
        let mut choices = Choices::tidy(&bytes);
        let live = generate::object(ty, &mut choices);
        choices.messy = true;
        let merge = generate::object(ty, &mut choices);
        let operations = generate::operations(&live, &mut choices);
        let live_bytes = schema::encode_json(&live);
        for (op, patch) in [("merge-patch", merge), ("json-patch", operations)] {
            let patch_bytes = schema::encode_json(&patch);
            let theirs = oracle.ask(op, ("v1", "Pod"), &live_bytes, &patch_bytes);
            let what = || format!("{op}\n  live   {}\n  patch  {}", text(&live_bytes), text(&patch_bytes));
            let ours = match op {
                "merge-patch" => Ok(schema::merge_patch(&live, &patch)),
                _ => schema::json_patch(&live, &patch),
            };
            match ours {
                Ok(ours) if theirs.error.is_empty() => {
                    let theirs = schema::encode_json(&parsed(&theirs.output));
                    differences.check(text(&schema::encode_json(&ours)), text(&theirs), what);
                }
                Ok(_) => {
                    differences.check(String::new(), theirs.error, what);
                }
                Err(ours) => {
                    differences.check(ours.to_string(), theirs.error, what);
                }
            }
        }
    }
}

#[test]
fn quantities_agree_with_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    const PIECES: &[&str] = &[
        "0", "1", "5", "9", "12", "1024", "000", ".", "-", "+", "e", "E", "Ki", "Mi", "Gi", "Ei", "m", "n", "k", "M",
        "G", "E", "x",
    ];
    for round in 0..rounds() * 500 {
        let bytes = noise(round * 86_028_121, 7);
        let count = 1 + usize::from(bytes[6]) % 5;
        let input: String = bytes[..count]
            .iter()
            .map(|&byte| PIECES[usize::from(byte) % PIECES.len()])
            .collect();
        let theirs = oracle.ask("quantity", ("", ""), input.as_bytes(), b"");
        if input.ends_with("000E") {
            // Upstream has no suffix above E and leaves it out: 1000E becomes 1.
            continue;
        }
        match schema::quantity::canonicalize(&input) {
            Ok(ours) => {
                let _ = differences.check(String::new(), theirs.error, || input.clone())
                    && differences.check(ours, text(&theirs.output), || input.clone());
            }
            Err(ours) => {
                differences.check(ours.to_string(), theirs.error, || input.clone());
            }
        }
    }
}

#[rustfmt::skip]
const YAML_VALUES: &[&str] = &[
    "y", "Y", "n", "N", "yes", "Yes", "no", "on", "off", "On", "OFF", "true", "True", "FALSE", "null", "~", "Null", "",
    "0777", "0o17", "0x1F", "0b11", "1_000", "1e3", "1.0", ".5", "5.", "-1", "+1", "-0", "0", "00", "08", "09.5", "1:30",
    "190:20:30", "2024-01-01", "2024-01-01T00:00:00Z", ".inf", ".nan", "-9223372036854775808", "'5'", "\"5\"",
    "\n  a: b", "\n  - x", "[1, 'a', {b: c}]", "{a: 1, 2: b}", "|\n  text\n  more\n", ">\n  folded\n  text\n", "!!str 5",
    "!!int \"5\"", "\"\\u00e9\\n\"", "a # comment", "'it''s'", "1.2.3", "1,000", "0.1", "1e-7", "123456789.123456789", "@x",
    "`x`", "%x", "=", "<<", "*", "&a x", "\n  x: &a 1", "0x", "_1", "1e", "e1", "+.5", "-.inf", "0.", "1.e2", "0o8", "-0x10",
    "0777.5",
];

#[test]
fn yaml_agrees_with_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut differences = Differences::default();
    for value in YAML_VALUES {
        let input = format!("v: {value}\n");
        let theirs = oracle.ask("yaml", ("", ""), input.as_bytes(), b"");
        let ours = schema::parse_yaml(input.as_bytes()).map(|value| text(&schema::encode_json(&value)));
        let theirs = if theirs.error.is_empty() {
            Some(text(&schema::encode_json(&parsed(&theirs.output))))
        } else {
            None
        };
        differences.check(ours.ok(), theirs, || input.clone());
    }
}
