//! What the server says about itself: versions, groups and kinds, built in and new.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use kube::runtime::{conditions, wait::await_condition};
use kube::{Api, Client, core::GroupVersionKind, discovery};
use serde_json::json;
use tokio::time::timeout;

use crate::{NAMESPACE, PATIENCE, object, refused};

pub async fn knows_the_server(client: Client) -> Result<()> {
    let version = client.apiserver_version().await?;
    ensure!(
        (version.major.as_str(), version.minor.as_str()) == ("1", "36"),
        "the server is {version:?}"
    );
    let plain = Discovery::new(client.clone()).run().await?;
    let aggregated = Discovery::new(client.clone()).run_aggregated().await?;
    for found in [&plain, &aggregated] {
        let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let (resource, abilities) = found.resolve_gvk(&kind).context("Deployments are known")?;
        ensure!(
            resource.plural == "deployments" && abilities.scope == Scope::Namespaced,
            "found {resource:?}"
        );
        ensure!(abilities.supports_operation(verbs::WATCH), "they can be watched");
    }
    let [plain, aggregated] = [plain, aggregated].map(|found| found.groups().count());
    ensure!(
        plain == aggregated && plain > 15,
        "{plain} groups, aggregated {aggregated}"
    );
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?;
    ensure!(nodes.items.len() == 1, "there are {} nodes", nodes.items.len());
    Ok(())
}

pub async fn knows_new_kinds(client: Client) -> Result<()> {
    const NAME: &str = "boats.rust.example.com";
    let size = json!({"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}});
    let schema = json!({"type": "object", "properties": {"spec": size}});
    let definition: CustomResourceDefinition = object(json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "rust.example.com",
            "names": {"kind": "Boat", "plural": "boats", "singular": "boat", "listKind": "BoatList"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    }))?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await?;
    timeout(
        PATIENCE,
        await_condition(definitions.clone(), NAME, conditions::is_crd_established()),
    )
    .await??;

    let kind = GroupVersionKind::gvk("rust.example.com", "v1", "Boat");
    let (resource, _) = discovery::pinned_kind(&client, &kind).await?;
    let boats: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
    boats
        .create(&PostParams::default(), &boat("karve", 3, &resource))
        .await?;
    let size = boats.get("karve").await?.data["spec"]["size"].clone();
    ensure!(size == 3, "the boat has the size {size}");
    refused(
        422,
        "Invalid",
        boats.create(&PostParams::default(), &boat("none", 0, &resource)).await,
    )?;
    boats.delete("karve", &DeleteParams::default()).await?;
    definitions.delete(NAME, &DeleteParams::default()).await?;
    Ok(())
}

fn boat(name: &str, size: u32, resource: &ApiResource) -> DynamicObject {
    DynamicObject::new(name, resource).data(json!({"spec": {"size": size}}))
}
