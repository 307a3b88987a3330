//! What lists, tables and discovery documents say once and do not repeat.

use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::{CONFIG_MAPS, fetch, with_config_map};

#[tokio::test]
async fn items_of_lists_do_not_repeat_the_kind_of_their_list() {
    let cluster = with_config_map().await;
    for path in [
        CONFIG_MAPS.to_owned(),
        format!("{CONFIG_MAPS}?limit=1"),
        format!("{CONFIG_MAPS}?labelSelector=!none"),
        format!("{CONFIG_MAPS}?pretty=true"),
    ] {
        let (code, list) = cluster.get(&path).await;
        assert_eq!(
            (code, &list["kind"]),
            (StatusCode::OK, &json!("ConfigMapList")),
            "{path}"
        );
        let item = &list["items"][0];
        assert_eq!(item["metadata"]["namespace"], "default", "{path}: {item}");
        assert!(
            item.get("kind").is_none() && item.get("apiVersion").is_none(),
            "{path}: {item}"
        );
    }
}

#[tokio::test]
async fn only_the_first_table_of_a_watch_says_what_its_columns_are() {
    let cluster = with_config_map().await;
    let (code, answer) = cluster.post(CONFIG_MAPS, &json!({ "metadata": { "name": "b" } })).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    // A second watch gets the same events, and its own first one.
    for _ in 0..2 {
        let (_, _, text) = fetch(&cluster, &path, &[("accept", accept)]).await;
        let events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("an event"))
            .collect();
        assert!(events.len() >= 2, "{text}");
        let definitions: Vec<bool> = events
            .iter()
            .map(|event| event["object"]["columnDefinitions"].is_array())
            .collect();
        assert!(definitions[0] && !definitions[1..].contains(&true), "{text}");
        assert!(
            events
                .iter()
                .all(|event| event["object"]["rows"][0]["cells"].is_array()),
            "{text}"
        );
    }
}

#[tokio::test]
async fn aggregated_discovery_is_not_sent_to_those_who_have_it() {
    let cluster = with_config_map().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let ask = async |path: &str, tag: &str| {
        let request = Request::builder().uri(path).header("accept", accept);
        let request = request
            .header("if-none-match", tag)
            .body(Bytes::new())
            .expect("a request");
        cluster.send_whole(request).await
    };
    for path in ["/api", "/apis"] {
        let first = ask(path, "\"other\"").await;
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()["cache-control"], "public");
        let tag = first.headers()["etag"].to_str().expect("a tag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 2, "{tag}");
        let second = ask(path, &tag).await;
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(second.headers()["etag"], tag);
    }
}
