//! Holds pods to the Secrets that their service account lists, when the account is annotated so.

use api::{Fields, Value};

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// The values that Go takes for true, as upstream reads the annotation.
const TRUE: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];

/// What the fields of a pod's containers are called in messages.
const CONTAINERS: [(&str, &str); 3] = [
    ("initContainers", "init container"),
    ("containers", "container"),
    EPHEMERAL,
];
const EPHEMERAL: (&str, &str) = ("ephemeralContainers", "ephemeral container");

/// Why a new pod may not have what it refers to. Upstream overlooks Secrets in projected volumes; here they count as well,
/// since the files in the container would be the same.
pub fn validate_pod(account: &Value, spec: &Value) -> Result<(), String> {
    if !is_enforced(account) {
        return Ok(());
    }
    for volume in spec.list("volumes") {
        let projected = volume["projected"].list("sources").iter();
        let named = projected.filter(|source| source.has("secret"));
        let named = named.map(|source| ("projected.sources.secret.name", source["secret"].text("name")));
        let whole = volume.has("secret");
        let whole = whole.then(|| ("secret.secretName", volume["secret"].text("secretName")));
        for (field, secret) in whole.into_iter().chain(named) {
            check(account, secret, || format!("volume with {field}=\"{secret}\""))?;
        }
    }
    for containers in CONTAINERS {
        validate_containers(account, spec, containers)?;
    }
    let allowed = account.list("imagePullSecrets");
    for (index, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        let secret = secret.text("name");
        if !allowed.iter().any(|allowed| allowed.text("name") == secret) {
            let account = account["metadata"].text("name");
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {account} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Why a pod that is there already may not get its ephemeral containers, the only ones that can be added to it.
pub fn validate_ephemeral_containers(account: &Value, spec: &Value) -> Result<(), String> {
    match is_enforced(account) {
        true => validate_containers(account, spec, EPHEMERAL),
        false => Ok(()),
    }
}

fn is_enforced(account: &Value) -> bool {
    TRUE.contains(&account["metadata"]["annotations"].text(ENFORCE))
}

fn validate_containers(account: &Value, spec: &Value, (field, what): (&str, &str)) -> Result<(), String> {
    for container in spec.list(field) {
        let name = container.text("name");
        for variable in container.list("env") {
            if variable["valueFrom"].has("secretKeyRef") {
                let secret = variable["valueFrom"]["secretKeyRef"].text("name");
                let variable = variable.text("name");
                check(account, secret, || {
                    format!("{what} {name} with envVar {variable} referencing secret.secretName=\"{secret}\"")
                })?;
            }
        }
        for source in container.list("envFrom") {
            if source.has("secretRef") {
                let secret = source["secretRef"].text("name");
                check(account, secret, || {
                    format!("{what} {name} with envFrom referencing secret.secretName=\"{secret}\"")
                })?;
            }
        }
    }
    Ok(())
}

fn check(account: &Value, secret: &str, reference: impl FnOnce() -> String) -> Result<(), String> {
    let mut allowed = account.list("secrets").iter();
    if allowed.any(|allowed| allowed.text("name") == secret) {
        return Ok(());
    }
    let (reference, account) = (reference(), account["metadata"].text("name"));
    Err(format!(
        "{reference} is not allowed because service account {account} does not reference that secret"
    ))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn account(enforced: &str) -> Value {
        json!({
            "metadata": {"name": "limited", "annotations": {ENFORCE: enforced}},
            "secrets": [{"name": "own"}],
            "imagePullSecrets": [{"name": "registry"}],
        })
    }

    /// Every way in which a pod can refer to a Secret.
    fn references(secret: &str) -> Vec<Value> {
        let variable =
            json!({"name": "c", "env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]});
        let source = json!({"name": "c", "envFrom": [{"secretRef": {"name": secret}}]});
        let mut all = vec![
            json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]}),
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": secret}}]}}]}),
        ];
        for (field, _) in CONTAINERS {
            all.push(json!({field: [{"name": "plain"}, variable]}));
            all.push(json!({field: [{"name": "plain"}, source]}));
        }
        all
    }

    #[test]
    fn a_pod_has_only_secrets_that_its_account_lists() {
        let refused = references("other").into_iter();
        let refused = refused.map(|spec| validate_pod(&account("true"), &spec).unwrap_err());
        expect![[r#"
            volume with secret.secretName="other" is not allowed because service account limited does not reference that secret
            volume with projected.sources.secret.name="other" is not allowed because service account limited does not reference that secret
            init container c with envVar V referencing secret.secretName="other" is not allowed because service account limited does not reference that secret
            init container c with envFrom referencing secret.secretName="other" is not allowed because service account limited does not reference that secret
            container c with envVar V referencing secret.secretName="other" is not allowed because service account limited does not reference that secret
            container c with envFrom referencing secret.secretName="other" is not allowed because service account limited does not reference that secret
            ephemeral container c with envVar V referencing secret.secretName="other" is not allowed because service account limited does not reference that secret
            ephemeral container c with envFrom referencing secret.secretName="other" is not allowed because service account limited does not reference that secret"#]]
        .assert_eq(&refused.collect::<Vec<_>>().join("\n"));
        for spec in references("own") {
            assert_eq!(validate_pod(&account("true"), &spec), Ok(()), "{spec}");
        }
    }

    #[test]
    fn secrets_for_images_have_a_list_of_their_own() {
        let pulls = |name: &str| json!({"imagePullSecrets": [{"name": "registry"}, {"name": name}]});
        expect![[r#"imagePullSecrets[1].name="own" is not allowed because service account limited does not reference that imagePullSecret"#]]
            .assert_eq(&validate_pod(&account("true"), &pulls("own")).unwrap_err());
        assert_eq!(validate_pod(&account("true"), &pulls("registry")), Ok(()));
    }

    #[test]
    fn an_account_without_the_annotation_lets_everything_through() {
        for spec in references("other") {
            assert_eq!(validate_pod(&json!({"metadata": {"name": "free"}}), &spec), Ok(()));
            for (value, enforced) in [
                ("1", true),
                ("T", true),
                ("True", true),
                ("false", false),
                ("yes", false),
                ("", false),
            ] {
                assert_eq!(validate_pod(&account(value), &spec).is_err(), enforced, "{value:?}");
            }
        }
    }
}
