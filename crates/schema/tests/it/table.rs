use schema::{ListType, View};

use crate::kind;

#[test]
fn kinds_are_found_by_group_version_and_kind() {
    let schema = schema::builtin();
    for (group, version, name, expected) in [
        ("", "v1", "Pod", "core/v1.Pod"),
        ("", "v1", "Status", "meta/v1.Status"),
        ("", "v1", "List", "meta/v1.List"),
        ("apps", "v1", "DeleteOptions", "meta/v1.DeleteOptions"),
        ("meta.k8s.io", "v1", "Table", "meta/v1.Table"),
        ("autoscaling", "v1", "Scale", "autoscaling/v1.Scale"),
        ("policy", "v1", "Eviction", "policy/v1.Eviction"),
        (
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
            "authentication/v1.TokenRequest",
        ),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole", "rbac/v1.ClusterRole"),
        (
            "apiregistration.k8s.io",
            "v1",
            "APIService",
            "apiregistration/v1.APIService",
        ),
    ] {
        let found = schema.kind(group, version, name).map(|ty| ty.name.to_string());
        assert_eq!(found.as_deref(), Some(expected));
    }
    assert!(schema.kind("", "v1", "PodSpec").is_none(), "a struct is not a kind");
    assert!(schema.named("core/v1.PodSpec").is_some());
}

#[test]
fn fields_carry_what_patches_and_apply_need() {
    let spec = kind("v1", "Pod").field("spec").unwrap().target().unwrap();
    let containers = spec.field("containers").unwrap();
    assert_eq!(containers.merge_key(), Some("name"));
    assert_eq!(containers.list, ListType::Map);
    assert_eq!(
        containers.list_keys.iter().map(|key| &**key).collect::<Vec<_>>(),
        ["name"]
    );
    assert!(matches!(containers.view(), View::List(_)));
    assert_eq!(spec.field("nodeSelector").unwrap().atomic, Some(true));
    let volume = spec.field("volumes").unwrap().target().unwrap();
    assert!(volume.field("hostPath").is_some(), "inlined structs are flattened");
}
