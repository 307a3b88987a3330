//! What is in a volume that is made from objects: pure, from the pod and the objects to files.

use std::collections::BTreeMap;

use super::atomic::{File, Payload};
use crate::container::fields::{self, Facts};
use crate::objects::{Found, Kind};
use crate::pod::{DownwardSource, KeyToPath, Pod, Projection, TokenProjection, Volume};

const DEFAULT_MODE: u32 = 0o644;
const TOKEN_MODE: u32 = 0o600;

/// Everything a payload is made from.
pub struct Sources<'a> {
    pub pod: &'a Pod,
    pub found: &'a Found,
    pub facts: &'a Facts,
    /// Service account tokens by the path they are projected to.
    pub tokens: &'a BTreeMap<String, String>,
}

/// A reference to keys of a ConfigMap or Secret.
struct Keys<'a> {
    kind: Kind,
    name: &'a str,
    items: &'a [KeyToPath],
    mode: u32,
    optional: bool,
}

/// The files of a volume, or none if it is not made from objects.
pub fn payload(volume: &Volume, sources: &Sources<'_>) -> Option<Result<Payload, String>> {
    let mut files = Payload::new();
    let mode = |mode: Option<u32>| mode.unwrap_or(DEFAULT_MODE);
    let done = if let Some(source) = &volume.config_map {
        let keys = Keys {
            kind: Kind::ConfigMap,
            name: &source.name,
            items: &source.items,
            mode: mode(source.default_mode),
            optional: source.optional,
        };
        add_keys(&mut files, keys, sources)
    } else if let Some(source) = &volume.secret {
        let keys = Keys {
            kind: Kind::Secret,
            name: &source.secret_name,
            items: &source.items,
            mode: mode(source.default_mode),
            optional: source.optional,
        };
        add_keys(&mut files, keys, sources)
    } else if let Some(source) = &volume.downward_api {
        add_fields(&mut files, source, mode(source.default_mode), sources)
    } else if let Some(projected) = &volume.projected {
        let mode = mode(projected.default_mode);
        let mut all = projected.sources.iter();
        all.try_for_each(|source| add_projection(&mut files, source, mode, sources))
    } else {
        return None;
    };
    Some(done.map(|()| files))
}

fn add_projection(files: &mut Payload, source: &Projection, mode: u32, sources: &Sources<'_>) -> Result<(), String> {
    if let Some(source) = &source.config_map {
        let keys = Keys {
            kind: Kind::ConfigMap,
            name: &source.name,
            items: &source.items,
            mode,
            optional: source.optional,
        };
        return add_keys(files, keys, sources);
    }
    if let Some(source) = &source.secret {
        let keys = Keys {
            kind: Kind::Secret,
            name: &source.secret_name,
            items: &source.items,
            mode,
            optional: source.optional,
        };
        return add_keys(files, keys, sources);
    }
    if let Some(source) = &source.downward_api {
        return add_fields(files, source, mode, sources);
    }
    if let Some(source) = &source.service_account_token {
        return add_token(files, source, mode, sources);
    }
    let names: Vec<&String> = source.other.keys().collect();
    Err(format!("projected sources {names:?} are not supported by this node"))
}

fn add_keys(files: &mut Payload, keys: Keys<'_>, sources: &Sources<'_>) -> Result<(), String> {
    if keys.optional && !sources.found.exists(keys.kind, keys.name) {
        return Ok(());
    }
    let data = sources.found.get(keys.kind, keys.name)?;
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
                let what = keys.kind.title().to_lowercase();
                return Err(format!("{what} references non-existent {what} key: {}", item.key));
            }
        }
    }
    Ok(())
}

fn add_fields(files: &mut Payload, source: &DownwardSource, mode: u32, sources: &Sources<'_>) -> Result<(), String> {
    for item in &source.items {
        let content = if let Some(reference) = &item.field_ref {
            fields::field(sources.pod, &reference.field_path, sources.facts)?
        } else if let Some(reference) = &item.resource_field_ref {
            fields::resource(sources.pod, "", reference, sources.facts)?
        } else {
            return Err(format!("downward API item {:?} has no source", item.path));
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
fn add_token(files: &mut Payload, source: &TokenProjection, mode: u32, sources: &Sources<'_>) -> Result<(), String> {
    let token = sources
        .tokens
        .get(&source.path)
        .ok_or("the service account token has not been issued")?;
    let group = sources.pod.spec.security_context.fs_group;
    let uid = common_user(sources.pod).filter(|_| group.is_none());
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
    use std::sync::Arc;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::objects::Data;

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
        let sources = Sources {
            pod: &pod,
            found: &found,
            facts: &Facts::default(),
            tokens: &BTreeMap::from([("token".to_owned(), "ey.j.x".to_owned())]),
        };
        let text = match payload(&pod.spec.volumes[0], &sources) {
            None => "no payload\n".to_owned(),
            Some(Err(error)) => format!("error: {error}\n"),
            Some(Ok(files)) => files
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
