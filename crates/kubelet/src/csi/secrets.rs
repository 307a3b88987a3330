//! Secrets and tokens that drivers are given with a call.

use std::collections::BTreeMap;

use api::kinds::secret::SECRET;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::Client;
use serde::Deserialize;
use serde_json::{Map, json};

use super::driver_object::TokenRequest;
use crate::pod::{Pod, SecretReference};
use crate::service_account_tokens;
use crate::volumes::DriverError;

/// The key under which drivers find the tokens of a pod's service account.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
/// The lifetime of a token that a CSIDriver gives none.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

pub type Attributes = BTreeMap<String, String>;

/// The values of a Secret; none without a reference. `field` is the reference's name, for the message.
pub async fn fetch(
    client: &Client,
    field: &'static str,
    reference: Option<&SecretReference>,
) -> Result<Attributes, DriverError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Secret {
        data: BTreeMap<String, String>,
    }
    let Some(reference) = reference else {
        return Ok(Attributes::new());
    };
    let secret = |why: String| DriverError::Secret {
        field,
        namespace: reference.namespace.clone(),
        name: reference.name.clone(),
        why,
    };
    let api = client.resource(&SECRET).in_namespace(reference.namespace.clone());
    let found: Secret = api
        .get(&reference.name)
        .await
        .map_err(|error| secret(error.to_string()))?;
    let decode = |(key, value): (String, String)| {
        let bytes = STANDARD
            .decode(value)
            .map_err(|_| secret(format!("{key} is not base64")))?;
        // CSI has no other values than text.
        let text = String::from_utf8(bytes).map_err(|_| secret(format!("the value of {key} is not UTF-8")))?;
        Ok((key, text))
    };
    found.data.into_iter().map(decode).collect()
}

/// Tokens of the pod's service account for the audiences that the driver asks for.
pub async fn tokens(client: &Client, pod: &Pod, requests: &[TokenRequest]) -> Result<Attributes, DriverError> {
    if requests.is_empty() {
        return Ok(Attributes::new());
    }
    let mut issued = Map::new();
    for request in requests {
        let audience = Some(request.audience.as_str()).filter(|audience| !audience.is_empty());
        let seconds = request.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS);
        let token = service_account_tokens::request(client, pod, audience, seconds)
            .await
            .map_err(DriverError::Token)?;
        let token = json!({"token": token.token, "expirationTimestamp": token.expiration_timestamp});
        issued.insert(request.audience.clone(), token);
    }
    Ok([(TOKENS.to_owned(), json!(issued).to_string())].into())
}

/// Who the pod is, for drivers that want to know.
pub fn pod_attributes(pod: &Pod, is_ephemeral: bool) -> Attributes {
    let metadata = &pod.metadata;
    let attributes = [
        ("pod.name", metadata.name.as_str()),
        ("pod.namespace", &metadata.namespace),
        ("pod.uid", &metadata.uid),
        ("serviceAccount.name", &pod.spec.service_account_name),
        ("ephemeral", if is_ephemeral { "true" } else { "false" }),
    ];
    let attribute = |(key, value): (&str, &str)| (format!("csi.storage.k8s.io/{key}"), value.to_owned());
    attributes.into_iter().map(attribute).collect()
}
