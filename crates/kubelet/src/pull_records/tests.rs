//! Images that were pulled with a secret are for those who have it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const IMAGE: &str = "registry.example/team/app:1";
const ID: &str = "sha256:0123";

fn opened() -> (tempfile::TempDir, PullRecords) {
    let dir = tempfile::tempdir().unwrap();
    let records = PullRecords::open(dir.path()).unwrap();
    (dir, records)
}

fn secret(namespace: &str, uid: &str, credential: &str) -> SecretCredential {
    SecretCredential {
        uid: uid.to_owned(),
        namespace: namespace.to_owned(),
        name: "pull".to_owned(),
        credential_hash: credential.to_owned(),
    }
}

fn pull(records: &PullRecords, image: &str, credentials: Credentials) {
    records.begin(image).unwrap().succeeded(ID, &credentials);
}

#[test]
fn an_image_that_no_kubelet_pulled_is_for_everybody() {
    let (_dir, records) = opened();
    assert_eq!(records.access(IMAGE, ID), Access::Granted);
}

#[test]
fn an_image_that_was_pulled_with_a_secret_is_for_those_who_have_it() {
    let (_dir, records) = opened();
    pull(&records, IMAGE, Credentials::secret(secret("a", "1", "x")));
    assert_eq!(records.access(IMAGE, ID), Access::WithCredentials);
    assert_eq!(
        records.access("registry.example/team/app@sha256:99", ID),
        Access::WithCredentials
    );
    assert!(!records.admits(IMAGE, ID, &[]));
    assert!(!records.admits(IMAGE, ID, &[secret("b", "2", "y")]));
    // The same name in the same namespace, but another secret: the old one was deleted.
    assert!(!records.admits(IMAGE, ID, &[secret("a", "2", "y")]));
    // By any other name it may be another registry's word: the image must be pulled by that name.
    for name in [
        "team/app:1",
        "registry.example/team/app2",
        "other.example/team/app:1",
        ID,
    ] {
        assert_eq!(records.access(name, ID), Access::Denied, "{name}");
        assert!(!records.admits(name, ID, &[secret("a", "1", "x")]), "{name}");
    }
    assert!(records.admits(IMAGE, ID, &[secret("b", "2", "y"), secret("a", "1", "x")]));
}

#[test]
fn a_fitting_secret_is_remembered_under_its_new_name_or_credential() {
    let (_dir, records) = opened();
    pull(&records, IMAGE, Credentials::secret(secret("a", "1", "x")));
    // The same credential in another namespace; then that secret's credential changes.
    assert!(records.admits(IMAGE, ID, &[secret("b", "2", "x")]));
    assert!(records.admits(IMAGE, ID, &[secret("b", "2", "z")]));
    assert!(records.admits(IMAGE, ID, &[secret("c", "3", "z")]));
    // A credential that could not be digested fits no other such.
    pull(&records, "other", Credentials::secret(secret("a", "1", "")));
    assert!(!records.admits("other", ID, &[secret("b", "2", "")]));
}

#[test]
fn a_record_does_not_grow_without_end() {
    let (_dir, records) = opened();
    pull(&records, IMAGE, Credentials::secret(secret("a", "1", "x")));
    for number in 0..200 {
        assert!(records.admits(IMAGE, ID, &[secret("n", &format!("u{number}"), "x")]));
    }
    let files = records.files.lock();
    let record = files.pulled(ID).flatten().unwrap();
    assert_eq!(
        record.credential_mapping[repository(IMAGE)].kubernetes_secrets.len(),
        MAX_ADDED_SECRETS
    );
}

#[test]
fn a_pull_without_credentials_opens_an_image_to_everybody() {
    let (_dir, records) = opened();
    pull(&records, IMAGE, Credentials::secret(secret("a", "1", "x")));
    pull(&records, IMAGE, Credentials::none());
    assert_eq!(records.access(IMAGE, ID), Access::Granted);
    pull(&records, IMAGE, Credentials::secret(secret("b", "2", "y")));
    assert_eq!(records.access(IMAGE, ID), Access::Granted);
}

#[test]
fn an_image_on_its_way_is_nobodys() {
    let (_dir, records) = opened();
    let (first, second) = (records.begin(IMAGE).unwrap(), records.begin(IMAGE).unwrap());
    assert_eq!(records.access(IMAGE, ID), Access::Denied);
    drop(first);
    assert_eq!(records.access(IMAGE, ID), Access::Denied);
    drop(second);
    assert_eq!(records.access(IMAGE, ID), Access::Granted);
}

#[test]
fn records_are_kept_for_root_alone_and_survive_a_restart() {
    let (dir, records) = opened();
    pull(&records, IMAGE, Credentials::secret(secret("a", "1", "x")));
    std::mem::forget(records.begin("cut/short:1").unwrap());
    std::mem::forget(records.begin("never/came:1").unwrap());
    drop(records);
    for part in ["pulled", "pulling"] {
        let dir = dir.path().join("image_manager").join(part);
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(dir.join("sha256-0.tmp"), "{").unwrap();
    }
    let records = PullRecords::open(dir.path()).unwrap();
    assert_eq!(records.access(IMAGE, ID), Access::WithCredentials);
    assert!(records.admits(IMAGE, ID, &[secret("a", "1", "x")]));
    // What became of the pull that was cut short is not known, so it must be pulled again.
    let image = v1::Image {
        id: "sha256:cut".to_owned(),
        repo_tags: vec!["cut/short:1".to_owned()],
        ..v1::Image::default()
    };
    assert_eq!(records.access("cut/short:1", &image.id), Access::Denied);
    records.adopt(std::slice::from_ref(&image));
    assert_eq!(records.access("cut/short:1", &image.id), Access::Denied);
    assert_eq!(records.access("never/came:1", "sha256:other"), Access::Denied);
    // Also when another pod names the same image otherwise.
    assert_eq!(records.access("cut/short", &image.id), Access::Denied);
    assert!(!dir.path().join("image_manager/pulled/sha256-0.tmp").exists());
}

#[test]
fn what_cannot_be_read_grants_nothing() {
    let (dir, records) = opened();
    pull(&records, IMAGE, Credentials::none());
    drop(records);
    let pulled = dir.path().join("image_manager/pulled");
    let file = fs::read_dir(&pulled).unwrap().flatten().next().unwrap().path();
    let good = fs::read_to_string(&file).unwrap();
    for bad in [
        "",
        "{",
        r#"{"kind":"ImagePulledRecord"}"#,
        &good.replace("nodePods", "everyPods"),
    ] {
        fs::write(&file, bad).unwrap();
        let records = PullRecords::open(dir.path()).unwrap();
        assert_eq!(records.access(IMAGE, ID), Access::Denied, "{bad}");
    }
    // A record under another's name is not that one's.
    fs::write(&file, good.replace(ID, "sha256:ffff")).unwrap();
    let records = PullRecords::open(dir.path()).unwrap();
    assert_eq!(records.access(IMAGE, "sha256:ffff"), Access::Granted);
    pull(&records, IMAGE, Credentials::secret(secret("a", "1", "x")));
    assert_eq!(records.access(IMAGE, ID), Access::WithCredentials);
}

#[test]
fn upstreams_records_are_read_and_written() {
    let (dir, records) = opened();
    let text = concat!(
        r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","#,
        r#""imageRef":"sha256:0123","credentialMapping":{"docker.io/testing/test":{"kubernetesSecrets":"#,
        r#"[{"uid":"u","namespace":"default","name":"pull","credentialHash":"testsecrethash"}],"#,
        r#""kubernetesServiceAccounts":[{"uid":"s","namespace":"default","name":"sa"}]}}}"#,
        "\n"
    );
    drop(records);
    let path = dir.path().join("image_manager/pulled").join(files::file_name(ID));
    fs::write(&path, text).unwrap();
    let records = PullRecords::open(dir.path()).unwrap();
    let image = "docker.io/testing/test:v1";
    assert_eq!(records.access(image, ID), Access::WithCredentials);
    assert!(records.admits(image, ID, &[secret("default", "u", "testsecrethash")]));
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing has changed");
    assert!(records.admits(image, ID, &[secret("default", "u", "changed")]));
    let written = fs::read_to_string(&path).unwrap();
    let expected = text.replace("testsecrethash", "changed");
    let without_time = |text: &str| text.split("\"imageRef\"").nth(1).unwrap().to_owned();
    assert_eq!(without_time(&written), without_time(&expected));
}

#[test]
fn records_of_images_that_are_gone_are_pruned() {
    let (dir, records) = opened();
    pull(&records, IMAGE, Credentials::none());
    let count = || fs::read_dir(dir.path().join("image_manager/pulled")).unwrap().count();
    records.prune(&BTreeSet::new(), Moment(0));
    assert_eq!(count(), 1, "it was changed after the images were listed");
    let later = Moment(Moment::now().0 + 10_000);
    records.prune(&BTreeSet::from([ID]), later);
    assert_eq!(count(), 1);
    records.prune(&BTreeSet::new(), later);
    assert_eq!(count(), 0);
}

#[test]
fn files_are_named_as_upstream_names_them() {
    // One of those that upstream's own tests have.
    assert_eq!(
        files::file_name("testimageref-sa"),
        "sha256-917e8b3439bf8a7a6f37ffd2d2ddfdfafac8a251bf214a0be39675742b420b1a"
    );
}

#[test]
fn names_lose_their_tags_and_digests() {
    for (image, expected) in [
        ("busybox", "busybox"),
        ("busybox:1", "busybox"),
        ("host:5000/a/b", "host:5000/a/b"),
        ("host:5000/a/b:1@sha256:00", "host:5000/a/b"),
        ("a@sha256:00", "a"),
    ] {
        assert_eq!(repository(image), expected);
    }
}
