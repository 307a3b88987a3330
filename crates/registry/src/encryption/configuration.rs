//! `EncryptionConfiguration`, as the file of `--encryption-provider-config` has it.

use api::{FieldError, Path, Problems};
use auth::configuration::{self, ConfigurationError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::cipher::Algorithm;
use super::rules::{GroupResource, Provider, Rules};

const MORE_THAN_ONE: &str =
    "more than one provider specified in a single element, should split into different list elements";
const NO_PROVIDER: &str =
    "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";

// None of these has `Debug`: keys are in them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    resources: Vec<ResourceConfiguration>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ResourceConfiguration {
    resources: Vec<String>,
    providers: Vec<ProviderConfiguration>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProviderConfiguration {
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<Identity>,
    kms: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Identity {}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Key {
    name: String,
    secret: String,
}

/// Reads and checks the file.
pub(super) fn parse(text: &str) -> Result<Rules, ConfigurationError> {
    let file: File = configuration::parse(text, "EncryptionConfiguration", &["apiserver.config.k8s.io/v1"])?;
    let mut problems = Problems::default();
    let root = Path::new("resources");
    if file.resources.is_empty() {
        problems.extend([FieldError::required(&root, "at least one resources is required")]);
    }
    let mut rules = Rules::default();
    for (index, entry) in file.resources.iter().enumerate() {
        let path = root.index(index);
        check_resources(&entry.resources, &path.child("resources"), &mut problems);
        let providers = read_providers(&entry.providers, &path.child("providers"), &mut problems);
        for text in &entry.resources {
            let resource = GroupResource::parse(text);
            match masking(&rules, &resource) {
                Some(wider) => {
                    let detail = format!("resource {text:?} is masked by earlier rule {:?}", wider.to_string());
                    problems.extend([FieldError::invalid(&path.child("resources"), text.as_str(), detail)]);
                }
                None => rules.0.entry(resource).or_default().0.extend(providers.iter().cloned()),
            }
        }
    }
    match problems.is_empty() {
        true => Ok(rules),
        false => Err(ConfigurationError::Invalid(problems.into_vec())),
    }
}

/// An earlier rule that leaves nothing to this one.
fn masking(rules: &Rules, resource: &GroupResource) -> Option<GroupResource> {
    let wider = [GroupResource::any_in(&resource.group), GroupResource::any()];
    wider.into_iter().find(|wider| rules.0.contains_key(wider))
}

fn check_resources(resources: &[String], path: &Path, problems: &mut Problems) {
    if resources.is_empty() {
        problems.extend([FieldError::required(path, format!("at least one {path} is required"))]);
    }
    let parsed: Vec<GroupResource> = resources.iter().map(|text| GroupResource::parse(text)).collect();
    let (mut is_twice, mut overlaps) = (false, false);
    for (at, one) in parsed.iter().enumerate() {
        for other in parsed[..at].iter().chain(&parsed[at + 1..]) {
            is_twice |= one == other;
            let is_wider = one.group == other.group && one.resource == "*";
            overlaps |= one != other && (*one == GroupResource::any() || is_wider);
        }
    }
    let listed = || {
        resources
            .iter()
            .map(|text| api::Value::from(text.as_str()))
            .collect::<Vec<_>>()
    };
    if is_twice {
        let detail = "the same resource cannot be specified multiple times";
        problems.extend([FieldError::invalid(path, listed(), detail)]);
    }
    if overlaps {
        let detail = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as \
                      they will be masked";
        problems.extend([FieldError::invalid(path, listed(), detail)]);
    }
    for (index, text) in resources.iter().enumerate() {
        if let Some(detail) = why_not_encrypted(text) {
            problems.extend([FieldError::invalid(&path.index(index), text.as_str(), detail)]);
        }
    }
}

fn why_not_encrypted(text: &str) -> Option<&'static str> {
    let resource = GroupResource::parse(text);
    match (text, resource.group.as_str()) {
        _ if text.to_lowercase() != text => Some("resource name should not contain capital letters"),
        ("*", _) => Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        ("apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations", _) => {
            Some("resources which do not have REST API/s cannot be encrypted")
        }
        (_, "events.k8s.io") => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file",
        ),
        (_, "extensions") => Some("'extensions' group has been removed and cannot be used for encryption"),
        (_, "*") if resource.resource != "*" => Some("encrypting the same resource across groups is not supported"),
        _ => None,
    }
}

fn read_providers(providers: &[ProviderConfiguration], path: &Path, problems: &mut Problems) -> Vec<Provider> {
    if providers.is_empty() {
        problems.extend([FieldError::required(path, format!("at least one {path} is required"))]);
    }
    let indexed = providers.iter().enumerate();
    indexed
        .flat_map(|(index, provider)| read_provider(provider, &path.index(index), problems))
        .collect()
}

fn read_provider(provider: &ProviderConfiguration, path: &Path, problems: &mut Problems) -> Vec<Provider> {
    let by_key = [
        ("aesgcm", Algorithm::AesGcm, &provider.aesgcm),
        ("aescbc", Algorithm::AesCbc, &provider.aescbc),
        ("secretbox", Algorithm::Secretbox, &provider.secretbox),
    ];
    let given = by_key.iter().filter(|(_, _, keys)| keys.is_some()).count();
    let found = given + usize::from(provider.identity.is_some()) + usize::from(provider.kms.is_some());
    if found != 1 {
        let detail = if found == 0 { NO_PROVIDER } else { MORE_THAN_ONE };
        problems.extend([FieldError::invalid(path, "", detail)]);
        return Vec::new();
    }
    if provider.kms.is_some() {
        let detail = "KMS providers are not supported; use aesgcm, aescbc, secretbox or identity";
        problems.extend([FieldError::forbidden(&path.child("kms"), detail)]);
        return Vec::new();
    }
    for (name, algorithm, keys) in by_key {
        if let Some(keys) = keys {
            return read_keys(algorithm, keys, &path.child(name).child("keys"), problems);
        }
    }
    vec![Provider::Identity]
}

fn read_keys(algorithm: Algorithm, keys: &Keys, path: &Path, problems: &mut Problems) -> Vec<Provider> {
    if keys.keys.is_empty() {
        problems.extend([FieldError::required(path, "at least one keys is required")]);
    }
    let mut providers = Vec::new();
    for (index, key) in keys.keys.iter().enumerate() {
        let path = path.index(index);
        if key.name.is_empty() {
            problems.required(&path, "name", "name is a mandatory field for a key");
        }
        match read_secret(algorithm, &key.secret, &path.child("secret")) {
            Ok(secret) => providers.push(Provider::Key {
                algorithm,
                prefix: format!("{}{}:", algorithm.prefix(), key.name),
                secret,
            }),
            Err(problem) => problems.extend([problem]),
        }
    }
    providers
}

fn read_secret(algorithm: Algorithm, text: &str, path: &Path) -> Result<Vec<u8>, FieldError> {
    if text.is_empty() {
        return Err(FieldError::required(path, "secret is a mandatory field for a key"));
    }
    let secret = STANDARD
        .decode(text)
        .map_err(|_| FieldError::invalid(path, "REDACTED", "secrets must be base64 encoded"))?;
    let lengths = algorithm.key_bytes();
    if !lengths.contains(&secret.len()) {
        let expected: Vec<String> = lengths.iter().map(usize::to_string).collect();
        let detail = format!(
            "secret is not of the expected length, got {}, expected one of [{}]",
            secret.len(),
            expected.join(" ")
        );
        return Err(FieldError::invalid(path, "REDACTED", detail));
    }
    Ok(secret)
}
