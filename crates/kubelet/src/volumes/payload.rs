//! Files of volumes that are made from objects: pure, from the pod and the objects to files.

pub use super::atomic::{File, Payload};
use super::{SetUp, SetUpError};
use crate::container::fields;
use crate::objects::Kind;
use crate::pod::{DownwardSource, KeyToPath, Pod, TokenProjection};

pub const DEFAULT_MODE: u32 = 0o644;
const TOKEN_MODE: u32 = 0o600;

/// A reference to keys of a ConfigMap or Secret.
pub struct Keys<'a> {
    pub kind: Kind,
    pub name: &'a str,
    pub items: &'a [KeyToPath],
    pub mode: u32,
    pub optional: bool,
}

pub fn add_keys(files: &mut Payload, keys: Keys<'_>, request: &SetUp<'_>) -> Result<(), SetUpError> {
    if keys.optional && !request.found.exists(keys.kind, keys.name) {
        return Ok(());
    }
    let data = request.found.get(keys.kind, keys.name)?;
    let file = |content: &[u8], mode: u32| File {
        content: content.to_vec(),
        mode,
        uid: None,
    };
    if keys.items.is_empty() {
        let all = data
            .values
            .iter()
            .map(|(key, value)| (key.clone(), file(value, keys.mode)));
        files.extend(all);
        return Ok(());
    }
    for item in keys.items {
        match data.values.get(&item.key) {
            Some(value) => _ = files.insert(item.path.clone(), file(value, item.mode.unwrap_or(keys.mode))),
            None if keys.optional => {}
            None => {
                return Err(SetUpError::MissingKey {
                    kind: keys.kind.title().to_lowercase(),
                    key: item.key.clone(),
                });
            }
        }
    }
    Ok(())
}

pub fn add_fields(
    files: &mut Payload,
    source: &DownwardSource,
    mode: u32,
    request: &SetUp<'_>,
) -> Result<(), SetUpError> {
    for item in &source.items {
        let content = if let Some(reference) = &item.field_ref {
            fields::field(request.pod, &reference.field_path, request.facts)?
        } else if let Some(reference) = &item.resource_field_ref {
            fields::resource(request.pod, "", reference, request.facts)?
        } else {
            return Err(SetUpError::NoFieldSource(item.path.clone()));
        };
        let file = File {
            content: content.into_bytes(),
            mode: item.mode.unwrap_or(mode),
            uid: None,
        };
        files.insert(item.path.clone(), file);
    }
    Ok(())
}

/// A token is readable by the pod's user alone, where there is exactly one, or by its group.
pub fn add_token(
    files: &mut Payload,
    source: &TokenProjection,
    mode: u32,
    request: &SetUp<'_>,
) -> Result<(), SetUpError> {
    let token = request.tokens.get(&source.path).ok_or(SetUpError::NoToken)?;
    let group = request.pod.spec.security_context.fs_group;
    let uid = common_user(request.pod).filter(|_| group.is_none());
    let file = File {
        content: token.clone().into_bytes(),
        mode: if group.is_some() || uid.is_some() {
            TOKEN_MODE
        } else {
            mode
        },
        uid,
    };
    files.insert(source.path.clone(), file);
    Ok(())
}

/// The user that all containers run as by the pod's word, if it is the same.
fn common_user(pod: &Pod) -> Option<u32> {
    let pods = pod.spec.security_context.run_as_user;
    let mut users = pod
        .all_containers()
        .map(|(_, c)| c.security_context.run_as_user.or(pods));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use expect_test::{Expect, expect};

    use super::super::{config_map, projected, secret};
    use super::*;
    use crate::container::fields::Facts;
    use crate::moment::Moment;
    use crate::objects::{Data, Found};
    use crate::paths::Paths;

    fn check(spec: &str, expected: Expect) {
        let pod: Pod = serde_saphyr::from_str(&format!(
            "metadata: {{name: web, namespace: ns, labels: {{app: web}}}}\nspec: {spec}"
        ))
        .unwrap();
        let mut found = Found::default();
        let values = BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())]);
        let data = Arc::new(Data {
            values,
            ..Data::default()
        });
        found
            .objects
            .insert((Kind::ConfigMap, "conf".to_owned()), Some(data.clone()));
        found.objects.insert((Kind::Secret, "pass".to_owned()), Some(data));
        let request = SetUp {
            paths: &Paths::new("/k", "/l"),
            pod: &pod,
            volume: &pod.spec.volumes[0],
            found: &found,
            facts: &Facts::default(),
            tokens: &BTreeMap::from([("token".to_owned(), "ey.j.x".to_owned())]),
            image: None,
            claim: None,
            published: None,
            now: Moment::default(),
        };
        let files = match request.volume {
            volume if volume.config_map.is_some() => config_map::files(&request),
            volume if volume.secret.is_some() => secret::files(&request),
            _ => projected::files(&request),
        };
        let text = match files {
            Err(error) => format!("error: {error}\n"),
            Ok(files) => files
                .iter()
                .map(|(path, file)| {
                    let owner = file.uid.map(|uid| format!(" uid={uid}")).unwrap_or_default();
                    format!(
                        "{path} {:o}{owner}: {}\n",
                        file.mode,
                        String::from_utf8_lossy(&file.content)
                    )
                })
                .collect(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn keys_become_files() {
        check(
            "{volumes: [{name: v, configMap: {name: conf}}]}",
            expect![[r#"
                a 644: 1
                b 644: 2
            "#]],
        );
        check(
            "{volumes: [{name: v, secret: {secretName: pass, defaultMode: 256, items: [{key: a, path: x/y, mode: 511}]}}]}",
            expect![[r#"
                x/y 777: 1
            "#]],
        );
        check(
            "{volumes: [{name: v, configMap: {name: conf, items: [{key: c, path: c}]}}]}",
            expect![[r#"
                error: configmap references non-existent configmap key: c
            "#]],
        );
        check(
            "{volumes: [{name: v, configMap: {name: none, optional: true}}]}",
            expect![""],
        );
        check(
            "{volumes: [{name: v, configMap: {name: none}}]}",
            expect![[r#"
                error: configmap "none" not found
            "#]],
        );
    }

    #[test]
    fn a_projected_volume_joins_its_sources() {
        let volumes = "volumes: [{name: v, projected: {sources: [
            {serviceAccountToken: {path: token}},
            {configMap: {name: conf, items: [{key: a, path: ca.crt}]}},
            {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}]";
        check(
            &format!("{{containers: [{{name: c}}], {volumes}}}"),
            expect![[r#"
                ca.crt 644: 1
                labels 644: app="web"
                token 644: ey.j.x
            "#]],
        );
        check(
            &format!("{{securityContext: {{runAsUser: 1000}}, containers: [{{name: c}}], {volumes}}}"),
            expect![[r#"
                ca.crt 644: 1
                labels 644: app="web"
                token 600 uid=1000: ey.j.x
            "#]],
        );
    }
}
