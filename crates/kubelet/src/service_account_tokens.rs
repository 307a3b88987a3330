//! Tokens of pods' service accounts, asked for from the API.

use client::Client;
use serde::Deserialize;
use serde_json::json;

use crate::moment::Moment;
use crate::pod::Pod;

/// A token as the API issued it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedToken {
    pub token: String,
    pub expiration_timestamp: Moment,
}

/// Asks for a token that is good for as long as the pod is there, for the API server itself if no audience is named.
pub async fn request(
    client: &Client,
    pod: &Pod,
    audience: Option<&str>,
    seconds: i64,
) -> Result<IssuedToken, client::Error> {
    #[derive(Deserialize)]
    struct Answer {
        status: IssuedToken,
    }
    let account = match pod.spec.service_account_name.as_str() {
        "" => "default",
        account => account,
    };
    let metadata = &pod.metadata;
    let audiences: Vec<&str> = audience.into_iter().collect();
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid},
        },
    });
    let accounts = client.resource(&api::kinds::service_account::SERVICE_ACCOUNT);
    let api = accounts.in_namespace(metadata.namespace.clone()).subresource("token");
    Ok(api.create_for::<Answer>(account, &body).await?.status)
}
