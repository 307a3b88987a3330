//! Policies for pods, and ways around them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::cluster::NODE_NAME;
use crate::image::{Image, Tar};
use crate::pods::{MAIN, Pod, Settled, container_of, pod_spec};
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::World;

pub const OTHER_SYSTEM: Case = Case {
    name: "requests/restricted-on-another-system",
    class: "",
    must_not: "A pod that says to be for Windows runs as root in a namespace that enforces `restricted`.",
    needs: &[],
    run: other_system,
};

fn restricted() -> Value {
    json!({"pod-security.kubernetes.io/enforce": "restricted"})
}

/// An image whose user is nobody and whose program is root's all the same.
fn setuid_image(world: &World) -> Result<&'static str> {
    let program = std::fs::read("/proc/self/exe")?;
    let layer = Tar::default().file("hostile", 0o4755, &program).finish();
    let name = "hostile.test/setuid:1";
    world.import(&Image::honest(name, vec![layer]).with_config("User", json!("65534")))?;
    Ok(name)
}

fn other_system(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(restricted())?;
    let user = world.user_of(
        &namespace,
        json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]),
    )?;
    let main = container_of(
        setuid_image(world)?,
        &["status", "Uid", "then", "status", "CapEff", "then", "wait"],
    );
    let mut spec = pod_spec(vec![main], json!([]));
    spec["securityContext"] = json!({"runAsNonRoot": true});
    let plain = user.post(
        &namespace.path("pods"),
        &json!({"metadata": {"name": "plain"}, "spec": spec}),
    )?;
    ensure!(
        plain.status == 403,
        "a pod without restrictions was let in: {}",
        plain.summary()
    );

    spec["os"] = json!({"name": "windows"});
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    spec["nodeName"] = json!(NODE_NAME);
    let made = user.post(
        &namespace.path("pods"),
        &json!({"metadata": {"name": "windows"}, "spec": spec}),
    )?;
    if !made.is_success() {
        return blocked(made.summary());
    }
    let pod = Pod {
        namespace: &namespace,
        name: "windows".to_owned(),
    };
    match pod.settled()? {
        Settled::Ran => succeeded(format!("the pod runs: {:?}", pod.log(MAIN)?)),
        Settled::Refused(why) => blocked(why),
    }
}
