//! Acting as somebody else, with no more than was asked for and allowed.

use http::StatusCode;
use serde_json::{Value, json};

use super::rule;
use crate::cluster::Cluster;

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Whom the server takes somebody for who sends these headers.
async fn taken_for(who: &Cluster, headers: &[(&str, &str)]) -> (StatusCode, Value) {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let (code, _, answer) = who.ask("POST", REVIEW, &all, "{}".to_owned()).await;
    match code {
        StatusCode::CREATED => (code, answer["status"]["userInfo"].clone()),
        _ => (code, answer["message"].clone()),
    }
}

#[tokio::test]
async fn every_claim_is_asked_about_and_kept() {
    let cluster = Cluster::start().await;
    let headers = [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-Scopes", "read"),
        ("Impersonate-Extra-Acme.io%2Fteam", "red"),
    ];
    let (code, user) = taken_for(&cluster, &headers).await;
    assert_eq!(code, StatusCode::CREATED, "{user}");
    assert_eq!(user["username"], "jane");
    assert_eq!(user["uid"], "u1");
    assert_eq!(user["groups"], json!(["dev", "system:authenticated"]));
    assert_eq!(user["extra"], json!({"scopes": ["read"], "acme.io/team": ["red"]}));

    cluster.grant("bob", "", rule("", "users", &["impersonate"])).await;
    let bob = cluster.as_user("bob");
    assert_eq!(taken_for(&bob, &headers[..1]).await.0, StatusCode::CREATED);
    for (at, what) in [
        (1, "uids"),
        (2, "groups"),
        (3, "userextras/scopes"),
        (4, "userextras/acme.io/team"),
    ] {
        let (code, told) = taken_for(&bob, &[headers[0], headers[at]]).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{what}: {told}");
    }
    for resource in ["uids", "userextras/scopes", "userextras/acme.io/team"] {
        cluster
            .grant("bob", "", rule("authentication.k8s.io", resource, &["impersonate"]))
            .await;
    }
    cluster.grant("bob", "", rule("", "groups", &["impersonate"])).await;
    let (code, user) = taken_for(&bob, &headers).await;
    assert_eq!(code, StatusCode::CREATED, "{user}");
}

#[tokio::test]
async fn nobody_becomes_somebody_by_being_anonymous() {
    let cluster = Cluster::start().await;
    let (_, user) = taken_for(&cluster, &[("Impersonate-User", "system:anonymous")]).await;
    // Whoever is nobody may not even ask who they are.
    assert!(
        user.as_str()
            .is_some_and(|told| told.contains("User \"system:anonymous\" cannot create")),
        "{user}"
    );
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    cluster.grant("system:anonymous", "", all).await;
    let (code, user) = taken_for(&cluster, &[("Impersonate-User", "system:anonymous")]).await;
    assert_eq!(code, StatusCode::CREATED, "{user}");
    assert_eq!(user["groups"], json!(["system:unauthenticated"]));
}

#[tokio::test]
async fn a_claim_without_a_user_is_refused_and_not_forgotten() {
    let cluster = Cluster::start().await;
    for header in ["Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-Scopes"] {
        let (code, told) = taken_for(&cluster, &[(header, "x")]).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{header}: {told}");
        let told = told.as_str().unwrap_or_default();
        assert!(told.ends_with("without impersonating a user name"), "{told}");
    }
    // Names need not be ASCII, and are not passed over for that.
    let (code, user) = taken_for(&cluster, &[("Impersonate-User", "j\u{fc}rgen")]).await;
    assert_eq!((code, &user["username"]), (StatusCode::CREATED, &json!("j\u{fc}rgen")));
}

#[tokio::test]
async fn service_accounts_come_with_their_groups() {
    let cluster = Cluster::start().await;
    cluster
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}}))
        .await;
    cluster
        .grant("bob", "team", rule("", "serviceaccounts", &["impersonate"]))
        .await;
    let bob = cluster.as_user("bob");
    let (code, user) = taken_for(&bob, &[("Impersonate-User", "system:serviceaccount:team:web")]).await;
    assert_eq!(code, StatusCode::CREATED, "{user}");
    let groups = json!([
        "system:serviceaccounts",
        "system:serviceaccounts:team",
        "system:authenticated"
    ]);
    assert_eq!(user["groups"], groups);
    for other in [
        "system:serviceaccount:kube-system:web",
        "system:serviceaccount:team:web:x",
        "jane",
    ] {
        let (code, told) = taken_for(&bob, &[("Impersonate-User", other)]).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{other}: {told}");
    }
}

/// The right to be somebody for one deed is not the right to any other.
#[tokio::test]
async fn constrained_rights_open_what_they_name() {
    let cluster = Cluster::start().await;
    cluster.grant("jane", "", rule("*", "*", &["*"])).await;
    let group = "authentication.k8s.io";
    cluster
        .grant("bob", "", rule(group, "users", &["impersonate:user-info"]))
        .await;
    cluster
        .grant("bob", "default", rule("", "pods", &["impersonate-on:user-info:list"]))
        .await;
    let bob = cluster.as_user("bob");
    let get = async |path: &str, headers: &[(&str, &str)]| bob.ask("GET", path, headers, String::new()).await.0;
    let jane = [("Impersonate-User", "jane")];
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(get(pods, &jane).await, StatusCode::OK);
    for refused in [
        "/api/v1/pods",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/pods/x",
    ] {
        assert_eq!(get(refused, &jane).await, StatusCode::FORBIDDEN, "{refused}");
    }
    let masters = [("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")];
    cluster
        .grant("bob", "", rule(group, "groups", &["impersonate:user-info"]))
        .await;
    assert_eq!(get(pods, &masters).await, StatusCode::FORBIDDEN);
}
