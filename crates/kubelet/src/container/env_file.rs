//! Variables from files that a container of the pod has written into one of its emptyDirs.
//!
//! The files are a pod's own, so that they are reached by descriptor and within bounds. The format is a strict part of the
//! shell's: `NAME='value'`, where the value is taken as it stands and may have several lines.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::beneath::Dir;
use crate::paths::Paths;
use crate::pod::{Container, FileKeyRef, Pod};

/// Larger files are refused.
const MAX_BYTES: u64 = 1 << 20;

/// The files that a container's variables refer to, by volume and path.
#[derive(Debug, Default)]
pub struct EnvFiles(BTreeMap<(String, String), Result<String, EnvFileError>>);

/// Why a variable has no value from its file, in upstream's words.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EnvFileError {
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    Volume(String),
    #[error("couldn't parse env file: {0}")]
    Read(#[source] Arc<io::Error>),
    #[error("couldn't parse env file: it is larger than {MAX_BYTES} bytes")]
    Size,
    #[error("couldn't parse env file: {0}")]
    Format(#[from] FormatError),
    #[error("environment variable key {key:?} not found in file {path:?}")]
    MissingKey { key: String, path: String },
}

impl From<io::Error> for EnvFileError {
    fn from(error: io::Error) -> EnvFileError {
        EnvFileError::Read(Arc::new(error))
    }
}

/// A line that is no variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid environment variable format at line {line}: {problem}")]
pub struct FormatError {
    line: usize,
    problem: &'static str,
}

impl EnvFiles {
    /// Reads all files that the container refers to. Blocks on the file system.
    pub fn read(paths: &Paths, pod: &Pod, container: &Container) -> EnvFiles {
        let sources = container.env.iter().filter_map(|variable| variable.value_from.as_ref());
        let references = sources.filter_map(|source| source.file_key_ref.as_ref());
        let files = references.map(|reference| {
            let place = (reference.volume_name.clone(), reference.path.clone());
            (place, read(paths, pod, reference))
        });
        EnvFiles(files.collect())
    }

    /// The value of a variable; none if it is optional and absent.
    pub fn value(&self, reference: &FileKeyRef) -> Result<Option<String>, EnvFileError> {
        let place = (reference.volume_name.clone(), reference.path.clone());
        let text = match self.0.get(&place) {
            Some(Ok(text)) => text,
            Some(Err(EnvFileError::Read(error))) if reference.optional && error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Some(Err(error)) => return Err(error.clone()),
            None => return Err(EnvFileError::Volume(reference.volume_name.clone())),
        };
        let found = parse(text, &reference.key)?;
        match found.filter(|value| !value.is_empty()) {
            Some(value) => Ok(Some(value)),
            None if reference.optional => Ok(None),
            None => Err(EnvFileError::MissingKey {
                key: reference.key.clone(),
                path: reference.path.clone(),
            }),
        }
    }
}

fn read(paths: &Paths, pod: &Pod, reference: &FileKeyRef) -> Result<String, EnvFileError> {
    let name = &reference.volume_name;
    let volume = pod.spec.volumes.iter().find(|volume| volume.name == *name);
    if volume.is_none_or(|volume| volume.empty_dir.is_none()) {
        return Err(EnvFileError::Volume(name.clone()));
    }
    let directory = Dir::open(&paths.volume(&pod.metadata.uid, "empty-dir", name))?;
    let file = directory.open_file(Path::new(&reference.path))?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_BYTES {
        true => Err(EnvFileError::Size),
        false => Ok(text),
    }
}

/// The value of a variable in a file; none if the file does not have it. Lines after it are not looked at.
fn parse(text: &str, key: &str) -> Result<Option<String>, FormatError> {
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let wrong = |index: usize, problem: &'static str| FormatError {
            line: index + 1,
            problem,
        };
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| wrong(index, "missing '='"))?;
        if name.trim_end_matches([' ', '\t']).is_empty() {
            return Err(wrong(index, "empty variable name"));
        }
        if name.ends_with([' ', '\t']) {
            return Err(wrong(index, "whitespace before '=' is not allowed"));
        }
        // What a shell takes for an empty value and a command.
        if value.starts_with([' ', '\t']) {
            if name == key {
                return Ok(Some(String::new()));
            }
            continue;
        }
        let mut rest = value
            .strip_prefix('\'')
            .ok_or_else(|| wrong(index, "value must be enclosed in single quotes"))?;
        let mut collected = String::new();
        let after = loop {
            if let Some((value, after)) = rest.split_once('\'') {
                collected += value;
                break after;
            }
            collected += rest;
            collected.push('\n');
            let (_, next) = lines.next().ok_or_else(|| wrong(index, "unclosed single quote"))?;
            rest = next;
        };
        let last = index + collected.matches('\n').count();
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with('#') {
            return Err(wrong(last, "unexpected content after closing quote"));
        }
        if name == key {
            return Ok(Some(collected));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_they_stand() {
        let text = "# comment\n\n  A='one two' # more\nB='two\nlines'\nC= 'x'\nD='$A \\n'\nA='later'\n";
        let value = |key: &str| parse(text, key).unwrap();
        assert_eq!(value("A").as_deref(), Some("one two"));
        assert_eq!(value("B").as_deref(), Some("two\nlines"));
        assert_eq!(value("C").as_deref(), Some(""));
        assert_eq!(value("D").as_deref(), Some("$A \\n"));
        assert_eq!(value("E"), None);
    }

    #[test]
    fn other_forms_are_refused_with_their_line() {
        let refused = |text: &str| parse(text, "Z").unwrap_err();
        let wrong = |line: usize, problem: &'static str| FormatError { line, problem };
        assert_eq!(refused("A='a'\nB"), wrong(2, "missing '='"));
        assert_eq!(refused("='a'"), wrong(1, "empty variable name"));
        assert_eq!(refused("A ='a'"), wrong(1, "whitespace before '=' is not allowed"));
        assert_eq!(refused("A=a"), wrong(1, "value must be enclosed in single quotes"));
        assert_eq!(refused("A='a"), wrong(1, "unclosed single quote"));
        assert_eq!(refused("A='a\nb'c"), wrong(2, "unexpected content after closing quote"));
    }

    #[test]
    fn only_a_regular_file_in_an_empty_dir_of_the_pod_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::new(directory.path().join("k"), directory.path().join("l"));
        let pod: Pod = serde_saphyr::from_str(
            "{metadata: {uid: u}, spec: {volumes: [{name: v, emptyDir: {}}, {name: h, hostPath: {path: /}}], \
             containers: [{name: c}]}}",
        )
        .unwrap();
        let volume = paths.volume("u", "empty-dir", "v");
        std::fs::create_dir_all(volume.join("sub")).unwrap();
        std::fs::write(volume.join("sub/file"), "A='a'").unwrap();
        std::fs::write(directory.path().join("outside"), "A='secret'").unwrap();
        std::os::unix::fs::symlink(directory.path().join("outside"), volume.join("link")).unwrap();
        std::fs::write(volume.join("large"), vec![b'#'; MAX_BYTES as usize + 1]).unwrap();
        let value = |volume: &str, path: &str, optional: bool| {
            let reference = FileKeyRef {
                volume_name: volume.to_owned(),
                path: path.to_owned(),
                key: "A".to_owned(),
                optional,
            };
            let place = (volume.to_owned(), path.to_owned());
            let files = EnvFiles([(place, read(&paths, &pod, &reference))].into());
            files.value(&reference)
        };
        assert_eq!(value("v", "sub/file", false).unwrap().as_deref(), Some("a"));
        assert_eq!(value("v", "none", true).unwrap(), None);
        for (volume, path) in [
            ("v", "none"),
            ("v", "link"),
            ("v", "../../../../../outside"),
            ("v", "sub"),
            ("v", "large"),
            ("h", "etc/passwd"),
            ("x", "file"),
        ] {
            assert!(value(volume, path, false).is_err(), "{volume} {path}");
        }
        assert!(value("v", "link", true).is_err());
    }
}
