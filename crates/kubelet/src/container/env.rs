//! A container's environment.

use super::env_file::EnvFiles;
use super::expand::expand;
use super::fields::{self, Facts};
use crate::objects::{Data, Found, Kind};
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

    pub fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name).map(str::to_owned))
    }
}

/// The environment of one container. The error is what the user sees as `CreateContainerConfigError`.
pub fn compute(
    pod: &Pod,
    container: &Container,
    services: Vec<(String, String)>,
    found: &Found,
    files: &EnvFiles,
    facts: &Facts,
) -> Result<Environment, String> {
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
    for variable in &container.env {
        let value = match &variable.value_from {
            None => Some(environment.expand(&variable.value)),
            Some(source) => match &source.file_key_ref {
                Some(reference) => files.value(reference)?,
                None => from_source(pod, container, variable, source, found, facts)?,
            },
        };
        if let Some(value) = value {
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
) -> Result<(), String> {
    let Some(reference) = reference else {
        return Ok(());
    };
    if reference.optional && !found.exists(kind, &reference.name) {
        return Ok(());
    }
    let data = found.get(kind, &reference.name).map_err(|error| error.to_string())?;
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
) -> Result<Option<String>, String> {
    if let Some(reference) = &source.field_ref {
        return fields::field(pod, &reference.field_path, facts).map(Some);
    }
    if let Some(reference) = &source.resource_field_ref {
        return fields::resource(pod, &container.name, reference, facts).map(Some);
    }
    if let Some(reference) = &source.config_map_key_ref {
        return keyed(pod, Kind::ConfigMap, reference, found);
    }
    if let Some(reference) = &source.secret_key_ref {
        return keyed(pod, Kind::Secret, reference, found);
    }
    Err(format!("the source of variable {:?} is not supported", variable.name))
}

fn keyed(pod: &Pod, kind: Kind, reference: &KeyRef, found: &Found) -> Result<Option<String>, String> {
    if reference.optional && !found.exists(kind, &reference.name) {
        return Ok(None);
    }
    let data: &Data = found.get(kind, &reference.name).map_err(|error| error.to_string())?;
    match data.values.get(&reference.key) {
        Some(value) => Ok(Some(text(value))),
        None if reference.optional => Ok(None),
        None => Err(format!(
            "couldn't find key {} in {} {}/{}",
            reference.key,
            kind.title(),
            pod.metadata.namespace,
            reference.name
        )),
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
