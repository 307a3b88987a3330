use std::fs;
use std::path::Path;

use super::*;
use crate::testing::in_mount_namespace;

fn pod(volumes: &str) -> Pod {
    serde_saphyr::from_str(&format!(
        "metadata: {{name: web, namespace: ns, uid: u1}}\nspec: {{volumes: {volumes}}}"
    ))
    .unwrap()
}

/// Sets up every volume of a pod in the kubelet's directory `root`.
fn set_up_all(root: &Path, pod: &Pod) -> BTreeMap<String, Result<MountedVolume, String>> {
    let paths = Paths::new(root, root);
    let set_up = |volume: &Volume| {
        let request = SetUp {
            paths: &paths,
            pod,
            volume,
            found: &Found::default(),
            facts: &Facts::default(),
            tokens: &BTreeMap::new(),
            image: Some("sha256:1"),
            claim: None,
            published: None,
            now: Moment::default(),
        };
        (
            volume.name.clone(),
            super::set_up(&request).map_err(|error| error.to_string()),
        )
    };
    pod.spec.volumes.iter().map(set_up).collect()
}

#[test]
fn the_table_is_sorted_and_each_type_answers_to_its_own_field_only() {
    let fields: Vec<&str> = TYPES.iter().map(|known| known.field()).collect();
    assert!(fields.is_sorted(), "{fields:?}");
    for known in TYPES {
        let volume: Volume = serde_saphyr::from_str(&format!("name: v\n{}: {{}}", known.field())).unwrap();
        let answering: Vec<&str> = TYPES
            .iter()
            .filter(|known| known.is_type_of(&volume))
            .map(|known| known.field())
            .collect();
        assert_eq!(answering, [known.field()]);
    }
    let nothing: Volume = serde_saphyr::from_str("name: v").unwrap();
    assert_eq!(type_of(&nothing).map(|known| known.field()), Some("emptyDir"));
}

#[test]
fn an_unknown_type_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = set_up_all(dir.path(), &pod("[{name: v, flocker: {datasetName: x}}]"));
    let error = "MountVolume.SetUp failed for volume \"v\" : volumes of type flocker are not supported by this node";
    assert_eq!(mounted["v"], Err(error.to_owned()));
}

#[test]
fn what_the_kubelet_writes_is_read_only() {
    in_mount_namespace(|dir| {
        let pod = pod(
            "[{name: a, emptyDir: {}}, {name: b, hostPath: {path: /x}}, {name: c, configMap: {name: a, optional: true}}, \
             {name: d, secret: {secretName: a, optional: true}}, {name: e, projected: {sources: []}}, \
             {name: f, downwardAPI: {items: []}}, {name: g, image: {reference: i}}]",
        );
        let mounted = set_up_all(dir, &pod);
        let read_only: Vec<bool> = mounted
            .values()
            .map(|volume| volume.as_ref().unwrap().read_only)
            .collect();
        assert_eq!(read_only, [false, false, true, true, true, true, true]);
    });
}

#[test]
fn a_kubelet_that_starts_finds_what_was_set_up_and_ends_it() {
    in_mount_namespace(|dir| {
        let paths = Paths::new(dir, dir);
        let pod = pod(
            "[{name: a, emptyDir: {}}, {name: b, emptyDir: {medium: Memory}}, {name: c, secret: {secretName: a, \
                       optional: true}}]",
        );
        set_up_all(dir, &pod);
        let found = reconstruct::found_volumes(&paths, "u1").unwrap();
        let shown: Vec<(&str, &str, bool)> = found
            .iter()
            .map(|found| {
                let known = found.volume_type().map(|known| known.field());
                (found.name.as_str(), known.unwrap_or_default(), found.path.is_dir())
            })
            .collect();
        assert_eq!(
            shown,
            [("a", "emptyDir", true), ("b", "emptyDir", true), ("c", "secret", true)]
        );
        assert_eq!(pods_on_disk(&paths).unwrap(), ["u1"]);
        tear_down(&paths, "u1").unwrap();
        assert!(!paths.volumes("u1").exists());
        tear_down(&paths, "u1").unwrap();
    });
}

/// Whatever a pod managed to have mounted in its volume: it is unmounted, and its content stays.
#[test]
fn tear_down_removes_nothing_through_a_mount_or_a_link() {
    in_mount_namespace(|dir| {
        let (root, outside) = (dir.join("k"), dir.join("outside"));
        fs::create_dir_all(outside.join("below")).unwrap();
        fs::write(outside.join("below/kept"), "x").unwrap();
        let paths = Paths::new(&root, &root);
        fs::create_dir(&root).unwrap();
        let pod = pod("[{name: a, emptyDir: {}}]");
        let mounted = set_up_all(&root, &pod);
        let volume = mounted["a"].as_ref().unwrap().path().unwrap().clone();
        std::os::unix::fs::symlink(&outside, volume.join("link")).unwrap();
        for inside in [volume.join("m"), paths.volumes("u1").join("kubernetes.io~unknown/v")] {
            fs::create_dir_all(&inside).unwrap();
            rustix::mount::mount_bind(&outside, &inside).unwrap();
        }
        tear_down(&paths, "u1").unwrap();
        assert!(!paths.volumes("u1").exists());
        assert_eq!(fs::read_to_string(outside.join("below/kept")).unwrap(), "x");
    });
}
