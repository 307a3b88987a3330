//! Bodies that are small until somebody reads them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::client::{JSON, MERGE_PATCH};
use crate::image::gzip;
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const BOMBS: Case = Case {
    name: "floods/bombs",
    class: "",
    must_not: "A small JSON, YAML, protobuf, gzip, regular expression, patch or selector takes the server's memory or time.",
    needs: &[],
    run: bombs,
};

const MEMORY: u64 = 512 << 20;
const TIME: Duration = Duration::from_secs(20);

type Bomb = (
    &'static str,
    &'static str,
    String,
    Vec<(&'static str, &'static str)>,
    Vec<u8>,
);

fn bombs(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let path = namespace.path("configmaps");
    world
        .admin
        .must_post(&path, &json!({"metadata": {"name": "target"}, "data": {"k": "v"}}))?;
    let mut attempts = Vec::new();
    for (what, method, path, headers, body) in all(&path)? {
        let (before, begun) = (world.cluster.peak_memory()?, Instant::now());
        // Ending the connection is an answer too.
        let answer = world
            .user("administrator", &["system:masters"])?
            .send(method, &path, &headers, &body);
        let (took, grown) = (begun.elapsed(), world.cluster.peak_memory()?.saturating_sub(before));
        let said = answer.map_or_else(|error| format!("{error:#}"), |answer| answer.summary());
        attempts.push(match took < TIME && grown < MEMORY {
            true => Verdict::Blocked(format!("{what}: {took:.1?}, {} MB; {said}", grown >> 20)),
            false => Verdict::Succeeded(format!("{what} took {took:.1?} and {} MB; {said}", grown >> 20)),
        });
        let honest = world.admin.get("/readyz").with_context(|| format!("after {what}"))?;
        ensure!(honest.is_success(), "after {what}: {}", honest.summary());
    }
    judge(&attempts)
}

fn all(path: &str) -> Result<Vec<Bomb>> {
    let json = |body: String| (vec![("Content-Type", JSON)], body.into_bytes());
    let yaml = "application/yaml";
    let target = format!("{path}/target");
    let mut aliases = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..30 {
        aliases += &format!(
            "a{level}: &a{level} [*a{0},*a{0},*a{0},*a{0},*a{0},*a{0},*a{0},*a{0},*a{0}]\n",
            level - 1
        );
    }
    let deep = json(format!("{}{}", "{\"a\":".repeat(500_000), "1"));
    let arrays = json(format!("{{\"metadata\":{}", "[".repeat(1_000_000)));
    let operations: Vec<serde_json::Value> = (0..9_000)
        .map(|_| json!({"op": "copy", "from": "/data", "path": "/data/x"}))
        .collect();
    let nested = vec![0x0a; 1 << 20];
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bombs.hostile.test"},
        "spec": {"group": "hostile.test", "scope": "Cluster", "names": {"plural": "bombs", "kind": "Bomb"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}, "t": {"type": "string", "pattern": "((((a{1,1000}){1,1000}){1,1000}){1,1000})"}},
                "x-kubernetes-validations": [{"rule": "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a+b+c == d))))"}]}}}}}]},
    });
    let selector = format!("{path}?labelSelector={}", "a%20in%20(b)%2C".repeat(3_000));
    Ok(vec![
        ("deep JSON", "POST", path.to_owned(), deep.0, deep.1),
        ("arrays without end", "POST", path.to_owned(), arrays.0, arrays.1),
        (
            "YAML aliases",
            "POST",
            path.to_owned(),
            vec![("Content-Type", yaml)],
            aliases.into_bytes(),
        ),
        (
            "deep YAML",
            "POST",
            path.to_owned(),
            vec![("Content-Type", yaml)],
            "[".repeat(500_000).into_bytes(),
        ),
        (
            "nested protobuf",
            "POST",
            path.to_owned(),
            vec![("Content-Type", "application/vnd.kubernetes.protobuf")],
            [b"k8s\0".to_vec(), nested].concat(),
        ),
        (
            "gzip",
            "POST",
            path.to_owned(),
            vec![("Content-Type", JSON), ("Content-Encoding", "gzip")],
            gzip((0..64).map(|_| vec![b' '; 1 << 20]))?,
        ),
        (
            "copies of copies",
            "PATCH",
            target.clone(),
            vec![("Content-Type", "application/json-patch+json")],
            serde_json::to_vec(&operations)?,
        ),
        (
            "a deep merge",
            "PATCH",
            target,
            vec![("Content-Type", MERGE_PATCH)],
            format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000)).into_bytes(),
        ),
        (
            "a regular expression and a rule",
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            vec![("Content-Type", JSON)],
            definition.to_string().into_bytes(),
        ),
        ("a long selector", "GET", selector, vec![], Vec::new()),
        (
            "a body beyond all bounds",
            "POST",
            path.to_owned(),
            vec![("Content-Type", JSON)],
            vec![b' '; 8 << 20],
        ),
    ])
}
