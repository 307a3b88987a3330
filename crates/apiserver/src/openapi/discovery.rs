//! The requests that name no resource and tell what there is: versions, groups, resources, keys.

use std::collections::BTreeSet;

use api::Value;
use serde_json::{Map, json};

use super::types::{Types, frame};
use super::{descriptions, paths};

const JSON: &str = "application/json";
const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";
/// The fields of a version that older servers did not have.
const NEWER: [&str; 4] = [
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
];

/// A request and what it is answered with.
struct Row<'a> {
    path: &'a str,
    operation: &'a str,
    tag: &'a str,
    description: &'static str,
    answer: Answer,
}

enum Answer {
    /// A type of the fact table.
    Kind(&'static str),
    Version,
    /// A text of this media type.
    Text(&'static str),
}

const ROOTS: [Row<'static>; 5] = [
    Row {
        path: "/.well-known/openid-configuration/",
        operation: "getServiceAccountIssuerOpenIDConfiguration",
        tag: "WellKnown",
        description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
        answer: Answer::Text(JSON),
    },
    Row {
        path: "/api/",
        operation: "getCoreAPIVersions",
        tag: "core",
        description: "get available API versions",
        answer: Answer::Kind("meta/v1.APIVersions"),
    },
    Row {
        path: "/apis/",
        operation: "getAPIVersions",
        tag: "apis",
        description: "get available API versions",
        answer: Answer::Kind("meta/v1.APIGroupList"),
    },
    Row {
        path: "/openid/v1/jwks/",
        operation: "getServiceAccountIssuerOpenIDKeyset",
        tag: "openid",
        description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
        answer: Answer::Text("application/jwk-set+json"),
    },
    Row {
        path: "/version/",
        operation: "getCodeVersion",
        tag: "version",
        description: "get the version information for this server",
        answer: Answer::Version,
    },
];

/// The version-3 documents that belong to no group and version, by their paths below `/openapi/v3/`.
pub fn documents() -> impl Iterator<Item = (String, Value)> {
    let groups: BTreeSet<&str> = api::kinds::GROUP_VERSIONS.iter().map(|(group, _)| *group).collect();
    let named = groups.into_iter().filter(|group| !group.is_empty());
    let of_root = |row: &Row<'_>| (row.path.trim_matches('/').to_owned(), row.document());
    let of_group = |group| (format!("apis/{group}"), group_document(group));
    ROOTS.iter().map(of_root).chain(named.map(of_group))
}

/// Adds the list of a version's resources.
pub fn add_version(found: &mut Map<String, Value>, types: &mut Types, group: &str, version: &str) {
    let tag = paths::tag(group, version);
    let row = Row {
        path: &format!("/{}/", super::path_of(group, version)),
        operation: &format!("get{}APIResources", paths::capitalised(&tag)),
        tag: &tag,
        description: "get available resources",
        answer: Answer::Kind("meta/v1.APIResourceList"),
    };
    row.add(found, types);
}

fn group_document(group: &str) -> Value {
    let tag = paths::group_tag(group);
    let row = Row {
        path: &format!("/apis/{group}/"),
        operation: &format!("get{}APIGroup", paths::capitalised(&tag)),
        tag: &tag,
        description: "get information of a group",
        answer: Answer::Kind("meta/v1.APIGroup"),
    };
    row.document()
}

impl Row<'_> {
    fn add(&self, found: &mut Map<String, Value>, types: &mut Types) {
        let (media_type, schema) = match self.answer {
            Answer::Kind(name) => (JSON, reference(&types.need_named(name).unwrap_or_default())),
            Answer::Version => (JSON, reference(VERSION)),
            Answer::Text(media_type) => (media_type, json!({ "type": "string" })),
        };
        let operation = json!({
            "operationId": self.operation,
            "description": self.description,
            "tags": [self.tag],
            "responses": {
                "200": { "description": "OK", "content": { media_type: { "schema": schema } } },
                "401": { "description": "Unauthorized" },
            },
        });
        found.insert(self.path.to_owned(), json!({ "get": operation }));
    }

    /// A document of this request alone.
    fn document(&self) -> Value {
        let mut types = Types::default();
        let mut found = Map::new();
        self.add(&mut found, &mut types);
        let mut schemas = types.schemas();
        if let Answer::Version = self.answer {
            schemas.insert(VERSION.to_owned(), version_schema());
        }
        frame(found, schemas)
    }
}

fn reference(component: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{component}") })
}

/// A version is no kind and stands in no table: its fields are those that are answered.
fn version_schema() -> Value {
    let Value::Object(answered) = crate::version::version_info() else {
        return Value::Null;
    };
    let mut properties = Map::new();
    for name in answered.keys() {
        let mut property = json!({ "type": "string" });
        if let Some(text) = descriptions::of_field(VERSION, name) {
            property["description"] = text.into();
        }
        properties.insert(name.clone(), property);
    }
    let required = answered.keys().filter(|name| !NEWER.contains(&name.as_str()));
    json!({
        "type": "object",
        "description": descriptions::of_type(VERSION),
        "properties": properties,
        "required": required.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_root_and_each_group_has_a_document() {
        let documents: Map<String, Value> = documents().collect();
        let group = &documents["apis/rbac.authorization.k8s.io"];
        let get = &group["paths"]["/apis/rbac.authorization.k8s.io/"]["get"];
        assert_eq!(get["operationId"], "getRbacAuthorizationAPIGroup");
        assert_eq!(get["tags"], json!(["rbacAuthorization"]));
        let schemas = &group["components"]["schemas"];
        let kind = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup"]["x-kubernetes-group-version-kind"];
        assert_eq!(kind, &json!([{ "group": "", "kind": "APIGroup", "version": "v1" }]));
        let keys = &documents["openid/v1/jwks"]["paths"]["/openid/v1/jwks/"]["get"]["responses"]["200"];
        assert!(keys["content"]["application/jwk-set+json"].is_object(), "{keys}");
        let version = &documents["version"]["components"]["schemas"][VERSION];
        assert!(version["properties"]["major"]["description"].is_string());
        assert_eq!(version["required"].as_array().map(Vec::len), Some(9));
    }

    #[test]
    fn every_reference_is_to_a_component_of_its_document() {
        for (path, document) in documents() {
            let text = document.to_string();
            for reference in text.split("\"#/components/schemas/").skip(1) {
                let name = reference.split('"').next().unwrap_or_default();
                assert!(document["components"]["schemas"][name].is_object(), "{path}: {name}");
            }
        }
    }
}
