//! A container's environment.

use super::env_file::{EnvFileError, EnvFiles};
use super::expand::{MAX_BYTES, TooLarge, expand};
use super::fields::{self, Facts, FieldError};
use crate::objects::{Data, Found, Kind, MissingObject};
use crate::pod::{Container, EnvSource, EnvVar, KeyRef, ObjectReference, Pod};

/// An environment in the order in which it was defined; a later definition of a name takes the place of an earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter()
    }

    /// The text with its references replaced, if that takes at most `limit` bytes.
    pub fn expand(&self, text: &str, limit: usize) -> Result<String, TooLarge> {
        expand(text, limit, |name| self.get(name).map(str::to_owned))
    }

    /// All texts with their references replaced, if that takes at most [`MAX_BYTES`] together.
    pub fn expand_all(&self, texts: &[String]) -> Result<Vec<String>, TooLarge> {
        let mut left = MAX_BYTES;
        let expanded = texts.iter().map(|text| {
            let expanded = self.expand(text, left)?;
            left -= expanded.len();
            Ok(expanded)
        });
        expanded.collect()
    }
}

/// Why a container has no environment, in upstream's words.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EnvError {
    #[error(transparent)]
    Object(#[from] MissingObject),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey {
        key: String,
        kind: &'static str,
        namespace: String,
        name: String,
    },
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    File(#[from] EnvFileError),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("environment variable {0:?} has a valueFrom that this node does not support")]
    UnsupportedSource(String),
}

/// The environment of one container. The error is what the user sees as `CreateContainerConfigError`.
pub fn compute(
    pod: &Pod,
    container: &Container,
    services: Vec<(String, String)>,
    found: &Found,
    files: &EnvFiles,
    facts: &Facts,
) -> Result<Environment, EnvError> {
    let mut environment = Environment(Vec::new());
    for (name, value) in services {
        environment.set(&name, value);
    }
    for source in &container.env_from {
        import(
            &mut environment,
            Kind::ConfigMap,
            source.config_map_ref.as_ref(),
            &source.prefix,
            found,
        )?;
        import(
            &mut environment,
            Kind::Secret,
            source.secret_ref.as_ref(),
            &source.prefix,
            found,
        )?;
    }
    let mut left = MAX_BYTES;
    for variable in &container.env {
        let value = match &variable.value_from {
            None => Some(environment.expand(&variable.value, left)?),
            Some(source) => match &source.file_key_ref {
                Some(reference) => files.value(reference)?,
                None => from_source(pod, container, variable, source, found, facts)?,
            },
        };
        if let Some(value) = value {
            left = left.checked_sub(value.len()).ok_or(TooLarge)?;
            environment.set(&variable.name, value);
        }
    }
    Ok(environment)
}

fn import(
    environment: &mut Environment,
    kind: Kind,
    reference: Option<&ObjectReference>,
    prefix: &str,
    found: &Found,
) -> Result<(), EnvError> {
    let Some(reference) = reference else {
        return Ok(());
    };
    if reference.optional && !found.exists(kind, &reference.name) {
        return Ok(());
    }
    let data = found.get(kind, &reference.name)?;
    for (key, value) in &data.values {
        environment.set(&format!("{prefix}{key}"), text(value));
    }
    Ok(())
}

/// The value, or none where an optional source is absent.
fn from_source(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    source: &EnvSource,
    found: &Found,
    facts: &Facts,
) -> Result<Option<String>, EnvError> {
    if let Some(reference) = &source.field_ref {
        return Ok(Some(fields::field(pod, &reference.field_path, facts)?));
    }
    if let Some(reference) = &source.resource_field_ref {
        return Ok(Some(fields::resource(pod, &container.name, reference, facts)?));
    }
    if let Some(reference) = &source.config_map_key_ref {
        return keyed(pod, Kind::ConfigMap, reference, found);
    }
    if let Some(reference) = &source.secret_key_ref {
        return keyed(pod, Kind::Secret, reference, found);
    }
    Err(EnvError::UnsupportedSource(variable.name.clone()))
}

fn keyed(pod: &Pod, kind: Kind, reference: &KeyRef, found: &Found) -> Result<Option<String>, EnvError> {
    if reference.optional && !found.exists(kind, &reference.name) {
        return Ok(None);
    }
    let data: &Data = found.get(kind, &reference.name)?;
    match data.values.get(&reference.key) {
        Some(value) => Ok(Some(text(value))),
        None if reference.optional => Ok(None),
        None => Err(EnvError::MissingKey {
            key: reference.key.clone(),
            kind: kind.title(),
            namespace: pod.metadata.namespace.clone(),
            name: reference.name.clone(),
        }),
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};

    use super::*;

    fn found() -> Found {
        let data = |pairs: &[(&str, &str)]| {
            let values = pairs
                .iter()
                .map(|(key, value)| (key.to_string(), value.as_bytes().to_vec()));
            Some(Arc::new(Data {
                values: values.collect(),
                ..Data::default()
            }))
        };
        let mut found = Found::default();
        let objects = &mut found.objects;
        objects.insert(
            (Kind::ConfigMap, "conf".into()),
            data(&[("color", "red"), ("size", "xl")]),
        );
        objects.insert((Kind::Secret, "pass".into()), data(&[("word", "s3cret")]));
        objects.insert((Kind::ConfigMap, "absent".into()), None);
        found
    }

    fn check(container: &str, expected: Expect) {
        let pod: Pod = serde_saphyr::from_str(&format!(
            "metadata: {{name: web, namespace: ns}}\nspec: {{containers: [{container}]}}"
        ))
        .unwrap();
        let services = vec![("DB_SERVICE_HOST".to_owned(), "10.96.0.7".to_owned())];
        let text = match compute(
            &pod,
            &pod.spec.containers[0],
            services,
            &found(),
            &EnvFiles::default(),
            &Facts::default(),
        ) {
            Ok(environment) => environment
                .iter()
                .map(|(name, value)| format!("{name}={value}\n"))
                .collect(),
            Err(error) => format!("error: {error}\n"),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn variables_come_from_services_objects_fields_and_each_other() {
        check(
            r#"{name: main, envFrom: [{prefix: C_, configMapRef: {name: conf}}, {secretRef: {name: pass}}], env: [
                {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}},
                {name: URL, value: "db://$(DB_SERVICE_HOST)/$(POD)?$(LATER)$$(POD)"},
                {name: LATER, value: x},
                {name: WORD, valueFrom: {secretKeyRef: {name: pass, key: word}}},
                {name: C_color, value: blue}]}"#,
            expect![[r#"
                DB_SERVICE_HOST=10.96.0.7
                C_color=blue
                C_size=xl
                word=s3cret
                POD=web
                URL=db://10.96.0.7/web?$(LATER)$(POD)
                LATER=x
                WORD=s3cret
            "#]],
        );
    }

    /// Five levels of ten references each would be 100 MB, in the process that may be the API server's.
    #[test]
    fn variables_that_grow_by_each_other_are_refused() {
        let mut env = vec![format!("{{name: L0, value: {}}}", "x".repeat(1000))];
        for level in 1..=5 {
            let value = format!("$(L{})", level - 1).repeat(10);
            env.push(format!("{{name: L{level}, value: \"{value}\"}}"));
        }
        check(
            &format!("{{name: main, env: [{}]}}", env.join(", ")),
            expect![[r#"
                error: environment variables, or command and arguments, are larger than 2097152 bytes after expansion of $(VAR)
            "#]],
        );
        let large = Environment(vec![("A".to_owned(), "x".repeat(100_000))]);
        assert_eq!(large.expand_all(&vec!["$(A)".to_owned(); 21]), Err(TooLarge));
        assert!(large.expand_all(&vec!["$(A)".to_owned(); 20]).is_ok());
    }

    #[test]
    fn what_is_missing_is_an_error_unless_it_is_optional() {
        check(
            "{name: main, envFrom: [{configMapRef: {name: absent}}]}",
            expect![[r#"
                error: configmap "absent" not found
            "#]],
        );
        check(
            "{name: main, env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: shape}}}]}",
            expect![[r#"
                error: couldn't find key shape in ConfigMap ns/conf
            "#]],
        );
        check(
            r#"{name: main, envFrom: [{configMapRef: {name: absent, optional: true}}],
                env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: shape, optional: true}}}]}"#,
            expect![[r#"
                DB_SERVICE_HOST=10.96.0.7
            "#]],
        );
    }
}
