use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use super::*;
use crate::container::fields::Facts;
use crate::moment::Moment;
use crate::objects::Found;
use crate::pod::Pod;
use crate::testing::in_mount_namespace;
use crate::volumes;

/// A node's directories, with a directory of data outside of the kubelet's.
struct Scene {
    paths: Paths,
    data: PathBuf,
}

impl Scene {
    fn new(dir: &Path) -> Scene {
        let (root, data) = (dir.join("k"), dir.join("data"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&data).unwrap();
        fs::write(data.join("precious"), "kept").unwrap();
        let paths = Paths::new(&root, &root).with_local_volumes(dir.join("volumes"));
        Scene { paths, data }
    }

    fn set_up(&self, uid: &str, bound: &BoundVolume) -> Result<MountedVolume, String> {
        self.set_up_as(uid, "{}", bound)
    }

    fn set_up_as(&self, uid: &str, security: &str, bound: &BoundVolume) -> Result<MountedVolume, String> {
        let pod: Pod = serde_saphyr::from_str(&format!(
            "metadata: {{name: web, namespace: ns, uid: {uid}}}\n\
             spec: {{securityContext: {security}, volumes: [{{name: v, persistentVolumeClaim: {{claimName: c}}}}]}}"
        ))
        .unwrap();
        let request = SetUp {
            paths: &self.paths,
            pod: &pod,
            volume: &pod.spec.volumes[0],
            found: &Found::default(),
            facts: &Facts::default(),
            tokens: &BTreeMap::new(),
            image: None,
            claim: Some(bound),
            published: None,
            now: Moment::default(),
        };
        volumes::set_up(&request).map_err(|error| error.to_string())
    }

    fn local(&self, more: &str) -> BoundVolume {
        bound(&format!("local: {{path: {:?}}}, {more}", self.data))
    }

    fn is_intact(&self) -> bool {
        fs::read_to_string(self.data.join("precious")).is_ok_and(|text| text == "kept")
    }
}

fn bound(spec: &str) -> BoundVolume {
    BoundVolume {
        claim: "c".to_owned(),
        volume: serde_saphyr::from_str(&format!("{{metadata: {{name: pv1}}, spec: {{{spec}}}}}")).unwrap(),
        read_only: false,
    }
}

fn path_of(mounted: &MountedVolume) -> &Path {
    mounted.path().expect("a path")
}

#[test]
fn the_table_is_sorted() {
    assert!(TYPES.iter().map(|known| known.field()).is_sorted());
}

#[test]
fn a_local_directory_is_bound_and_outlives_its_pod() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let volume = scene.local("");
        for _ in 0..2 {
            let mounted = scene.set_up("u1", &volume).unwrap();
            assert_eq!(path_of(&mounted), scene.paths.volume("u1", "local-volume", "pv1"));
            assert_eq!(fs::read_to_string(path_of(&mounted).join("precious")).unwrap(), "kept");
            assert_eq!(mounted.claim.as_deref(), Some("c"));
        }
        let second = scene.set_up("u2", &volume).unwrap();
        fs::write(path_of(&second).join("more"), "x").unwrap();
        volumes::tear_down(&scene.paths, "u1").unwrap();
        assert!(!scene.paths.volumes("u1").exists());
        assert!(
            path_of(&second).join("more").exists(),
            "the other pod's mount is its own"
        );
        volumes::tear_down(&scene.paths, "u2").unwrap();
        assert!(scene.is_intact() && scene.data.join("more").exists());
    });
}

/// Should a mount point have files of its own, they are nobody's to remove.
#[test]
fn tear_down_removes_no_file_below_a_mount_point() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let place = scene.paths.volume("u1", "local-volume", "pv1");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("f"), "x").unwrap();
        assert!(volumes::tear_down(&scene.paths, "u1").is_err());
        assert!(place.join("f").exists());
    });
}

#[test]
fn a_claim_for_reading_is_mounted_for_reading() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let volume = BoundVolume {
            read_only: true,
            ..scene.local("")
        };
        let mounted = scene.set_up("u1", &volume).unwrap();
        assert!(mounted.read_only);
        assert!(fs::write(path_of(&mounted).join("f"), "x").is_err());
        fs::write(scene.data.join("f"), "x").unwrap();
    });
}

#[test]
fn mount_options_are_honoured_or_refused() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let mounted = scene.set_up("u1", &scene.local("mountOptions: [nodev, ro]")).unwrap();
        assert!(fs::write(path_of(&mounted).join("f"), "x").is_err());
        let refused = scene.set_up("u2", &scene.local("mountOptions: [data=journal]"));
        let message = "MountVolume.SetUp failed for volume \"pv1\" : mount option \"data=journal\" is not supported for a \
                       local volume that is a directory";
        assert_eq!(refused, Err(message.to_owned()));
        let place = Dir::open(&scene.paths.volume("u2", "local-volume", "pv1")).unwrap();
        assert!(!beneath::is_mount_root(place).unwrap(), "nothing is half mounted");
        let refused = scene.set_up("u3", &bound("hostPath: {path: /tmp}, mountOptions: [ro]"));
        let message = "MountVolume.MountOptionSupport check failed for volume \"pv1\" : Mount options are not supported \
                       for this volume type";
        assert_eq!(refused, Err(message.to_owned()));
    });
}

#[test]
fn a_volume_for_one_pod_is_given_to_one_pod() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let in_use = "MountVolume.SetUp failed for volume \"pv1\" : volume uses the ReadWriteOncePod access mode and is \
                      already in use by another pod";
        let shared = format!("hostPath: {{path: {:?}}}, accessModes: [ReadWriteOncePod]", scene.data);
        for volume in [scene.local("accessModes: [ReadWriteOncePod]"), bound(&shared)] {
            scene.set_up("u1", &volume).unwrap();
            assert_eq!(scene.set_up("u2", &volume), Err(in_use.to_owned()));
            scene.set_up("u1", &volume).unwrap();
            volumes::tear_down(&scene.paths, "u1").unwrap();
            scene.set_up("u2", &volume).unwrap();
            volumes::tear_down(&scene.paths, "u2").unwrap();
        }
        assert!(scene.is_intact());
    });
}

#[test]
fn paths_are_held_to_what_they_say() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let check = |spec: String| {
            let error = scene.set_up("u1", &bound(&spec)).map(|mounted| mounted.source);
            error.map_err(|error| error.replace(&dir.display().to_string(), ""))
        };
        let failed = |what: &str| Err(format!("MountVolume.SetUp failed for volume \"pv1\" : {what}"));
        let at = |path: &str| format!("{}/{path}", dir.display());
        let missing = check(format!("local: {{path: {:?}}}", at("none")));
        assert_eq!(missing, failed("path \"/none\" does not exist"));
        for field in ["local", "hostPath"] {
            let outside = check(format!("{field}: {{path: {:?}}}", at("k/../data")));
            assert_eq!(
                outside,
                failed("invalid path: /k/../data must be absolute and must not contain '..'")
            );
        }
        let file = check(format!("local: {{path: {:?}}}", at("data/precious")));
        assert_eq!(
            file,
            failed("path \"/data/precious\" is neither a directory nor a block device")
        );
        let block = check(format!("local: {{path: {:?}}}, volumeMode: Block", at("data")));
        assert_eq!(block, failed("path \"/data\" is not a block device"));
        let wrong_type = check(format!("hostPath: {{path: {:?}, type: File}}", at("data")));
        assert_eq!(wrong_type, failed("hostPath type check failed: /data is not a file"));
        let unknown = check("nfs: {server: a}, capacity: {storage: 1Gi}".to_owned());
        assert_eq!(unknown, failed("volumes of type nfs are not supported by this node"));
        // An administrator may lead a volume elsewhere.
        symlink(&scene.data, dir.join("link")).unwrap();
        assert!(check(format!("local: {{path: {:?}}}", at("link"))).is_ok());
    });
}

#[test]
fn the_first_pod_of_a_volume_decides_about_its_group() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let group = || fs::metadata(scene.data.join("precious")).unwrap().gid();
        scene.set_up_as("u1", "{fsGroup: 1234}", &scene.local("")).unwrap();
        assert_eq!(group(), 1234);
        scene.set_up_as("u2", "{fsGroup: 4321}", &scene.local("")).unwrap();
        assert_eq!(group(), 1234);
        for uid in ["u1", "u2"] {
            volumes::tear_down(&scene.paths, uid).unwrap();
        }
        let read_only = BoundVolume {
            read_only: true,
            ..scene.local("")
        };
        scene.set_up_as("u3", "{fsGroup: 4321}", &read_only).unwrap();
        assert_eq!(group(), 1234);
    });
}

fn provisioned_volume(name: &str, path: &str) -> BoundVolume {
    let volume = format!(
        "{{metadata: {{name: {name:?}, annotations: {{karve.dev/provisioned-by: local}}}}, spec: {{local: {{path: {path:?}}}}}}}"
    );
    BoundVolume {
        volume: serde_saphyr::from_str(&volume).unwrap(),
        ..bound("")
    }
}

#[test]
fn a_provisioned_directory_is_made_once_and_removed_when_nobody_uses_it() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        let volume = provisioned_volume("pv1", "/anywhere/volumes/pv1");
        let mounted = scene.set_up("u1", &volume).unwrap();
        let directory = dir.join("volumes/pv1");
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o777);
        assert_eq!(fs::metadata(dir.join("volumes")).unwrap().mode() & 0o7, 0);
        fs::write(path_of(&mounted).join("f"), "x").unwrap();
        assert!(provisioned::is_in_use(&scene.paths, "pv1").unwrap());
        volumes::tear_down(&scene.paths, "u1").unwrap();
        assert!(directory.join("f").exists(), "data outlives its pod");
        assert!(!provisioned::is_in_use(&scene.paths, "pv1").unwrap());
        // What a pod left: a link out of the volume, and what somebody mounted into it.
        symlink(&scene.data, directory.join("link")).unwrap();
        fs::create_dir(directory.join("m")).unwrap();
        rustix::mount::mount_bind(&scene.data, directory.join("m")).unwrap();
        assert!(provisioned::remove(&scene.paths, "pv1").is_err());
        assert!(directory.join("f").exists() && scene.is_intact());
        rustix::mount::unmount(directory.join("m"), rustix::mount::UnmountFlags::empty()).unwrap();
        provisioned::remove(&scene.paths, "pv1").unwrap();
        assert!(!directory.exists() && scene.is_intact());
        provisioned::remove(&scene.paths, "pv1").unwrap();
    });
}

#[test]
fn a_provisioned_directory_is_nowhere_else() {
    in_mount_namespace(|dir| {
        let scene = Scene::new(dir);
        for (name, path) in [
            ("..", "/v/.."),
            ("a/b", "/v/a/b"),
            ("pv1", "/v/pv2"),
            ("pv1", "/v/pv1/.."),
        ] {
            assert!(
                scene.set_up("u1", &provisioned_volume(name, path)).is_err(),
                "{name} {path}"
            );
        }
        for name in ["..", ".", "", "a/b", "../data"] {
            assert!(provisioned::remove(&scene.paths, name).is_err(), "{name}");
        }
        // Somebody put a link where the directory is to be.
        fs::create_dir_all(dir.join("volumes")).unwrap();
        symlink(&scene.data, dir.join("volumes/pv1")).unwrap();
        assert!(scene.set_up("u1", &provisioned_volume("pv1", "/v/pv1")).is_err());
        provisioned::remove(&scene.paths, "pv1").unwrap();
        assert!(scene.is_intact());
    });
}
