//! Keeps the modules of a crate in layers: imports go one way, and what imports each other is at most three modules.
//!
//! A module is a file or folder directly below `src`; what is defined in `lib.rs` itself counts as one more. Only code
//! outside of tests is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most modules that may import each other in a circle.
const MAX_CYCLE: usize = 3;

/// What the root of a crate is called in messages.
const ROOT: &str = "lib.rs";

type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_import_each_other_in_small_circles_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut names: Vec<String> = fs::read_dir(&crates)
        .expect("there are crates")
        .map(|entry| entry.expect("a crate").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut wrong = Vec::new();
    for name in &names {
        let graph = imports(&crates.join(name).join("src"));
        let largest = cycles(&graph).into_iter().max_by_key(Vec::len).unwrap_or_default();
        if largest.len() > MAX_CYCLE {
            wrong.push(format!(
                "{name}: these import each other, of which {MAX_CYCLE} may: {largest:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Which modules each module of a crate imports.
fn imports(source: &Path) -> Graph {
    let root = [source.join("lib.rs"), source.join("main.rs")];
    let root = root.iter().find(|path| path.exists()).expect("a crate has a root");
    let root = code(root);
    let modules: BTreeSet<String> = declared_modules(&root).collect();
    let exports = re_exports(&root, &modules);
    let mut graph = Graph::new();
    for module in &modules {
        let mut found = BTreeSet::new();
        for file in files_of(source, module) {
            for name in crate_names(&code(&file)) {
                let target = match modules.contains(&name) {
                    true => name,
                    false => exports.get(&name).cloned().unwrap_or_else(|| ROOT.to_owned()),
                };
                if target != *module {
                    found.insert(target);
                }
            }
        }
        graph.insert(module.clone(), found);
    }
    // What the root re-exports it does not need itself.
    let own: String = statements(&root).filter(|line| !line.starts_with("pub use ")).collect();
    let used = modules.iter().filter(|module| own.contains(&format!("{module}::")));
    graph.insert(ROOT.to_owned(), used.cloned().collect());
    graph
}

/// The text of a file without comments and without what is only compiled for tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source file can be read");
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let indent = line.len() - line.trim_start().len();
            let first = lines.next().unwrap_or_default();
            let end = format!("{}}}", " ".repeat(indent));
            if first.trim_end().ends_with('{') {
                let _ = lines.by_ref().find(|line| *line == end);
            }
            continue;
        }
        if !line.trim_start().starts_with("//") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn declared_modules(root: &str) -> impl Iterator<Item = String> {
    root.lines().filter_map(|line| {
        let line = line.trim();
        let at = line
            .find("mod ")
            .filter(|at| *at == 0 || line[..*at].starts_with("pub"))?;
        let name = line[at + 4..].strip_suffix(';')?;
        Some(name.to_owned())
    })
}

/// Top-level statements of a root, each on one line.
fn statements(root: &str) -> impl Iterator<Item = String> {
    root.split_inclusive(';')
        .map(|statement| statement.trim().replace('\n', " "))
}

/// Which module a name comes from that the root exports.
fn re_exports(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in statements(root) {
        let Some(at) = statement.find("pub use ").or_else(|| statement.find("pub(crate) use ")) else {
            continue;
        };
        let path = statement[at..].split_once("use ").map_or("", |(_, path)| path);
        let path = path.trim_start_matches("self::").trim_start_matches("crate::");
        let Some((module, names)) = path.split_once("::") else {
            continue;
        };
        if modules.contains(module) {
            let names = names.split(|character: char| !character.is_alphanumeric() && character != '_');
            exports.extend(names.map(|name| (name.to_owned(), module.to_owned())));
        }
    }
    exports
}

/// The files of a module: its own and those of the folder with its name.
fn files_of(source: &Path, module: &str) -> Vec<PathBuf> {
    let mut files = vec![source.join(format!("{module}.rs"))];
    let mut folders = vec![source.join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a folder can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    let is_code = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.exists() && name.ends_with(".rs") && !name.ends_with("tests.rs")
    };
    files.retain(is_code);
    files
}

/// The first names after `crate::`, those of `crate::{…}` included.
fn crate_names(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => names.extend(first_names(list)),
            None => names.extend(identifier(rest)),
        }
    }
    names
}

fn identifier(text: &str) -> Option<String> {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_');
    let name = &text[..end.unwrap_or(text.len())];
    (!name.is_empty()).then(|| name.to_owned())
}

/// The names that begin each item of a list in braces, which may have lists of their own.
fn first_names(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut depth, mut item) = (1, String::new());
    for character in list.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && character == ',') {
            names.extend(identifier(item.trim()));
            item.clear();
        } else {
            item.push(character);
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// The groups of modules that can all be reached from each other, by repeated search: there are few.
fn cycles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut left: BTreeSet<&String> = graph.keys().collect();
    let mut found = Vec::new();
    while let Some(first) = left.pop_first() {
        let others = left
            .iter()
            .filter(|other| reached[first].contains(*other) && reached[**other].contains(first));
        let cycle: Vec<String> = [first].into_iter().chain(others.copied()).cloned().collect();
        left.retain(|other| !cycle.contains(other));
        found.push(cycle);
    }
    found.retain(|cycle| cycle.len() > 1);
    found
}

fn reachable<'a>(graph: &'a Graph, from: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for target in graph.get(module).into_iter().flatten() {
            if reached.insert(target) {
                next.push(target);
            }
        }
    }
    reached
}

#[test]
fn imports_are_found_in_all_their_forms() {
    let code = "use crate::{gate, request::{Query, path}, ApiServer};\nlet x = crate::table::of();";
    let names: Vec<String> = crate_names(code).into_iter().collect();
    assert_eq!(names, ["ApiServer", "gate", "request", "table"]);
}

#[test]
fn a_circle_is_found_whichever_way_it_goes() {
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")];
    let mut graph = Graph::new();
    for (from, to) in edges {
        graph.entry(to.to_owned()).or_default();
        graph.entry(from.to_owned()).or_default().insert(to.to_owned());
    }
    assert_eq!(cycles(&graph), [["a", "b", "c"]]);
}
