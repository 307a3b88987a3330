use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use store::codec::Codec;

use super::cipher::{Algorithm, seal_secretbox};
use super::{EncryptedEtcdCodec, Encryption};

const ROOT: &str = "/registry";
const PLACE: &str = "/registry/secrets/default/a";
/// Keys of 16, 24 and 32 bytes.
const KEYS: [&str; 3] = [
    "MDEyMzQ1Njc4OWFiY2RlZg==",
    "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3",
    "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
];

/// What kube-apiserver v1.36.4 put into etcd below `/registry/RESOURCE/default/a`: resource, kind, provider, key and value.
const OF_UPSTREAM: [(&str, &str, &str, &str, &str); 3] = [
    (
        "secrets",
        "Secret",
        "aesgcm",
        KEYS[1],
        "azhzOmVuYzphZXNnY206djE6a2V5MToeNreK6Hcatc60YPtYYugMFqShqCJ9A2mSF3in6v3fQut3v9U8gj0WR15nFUhHsWS5vFkM\
     PhEcuvxwpvRjmJCqmMZ/l2/9Sw1gUpopFfqqhgp4UBH7DOskRk5R2xcfOMRp/3nHQdThvlcK+DtftrA+MNcjXVWFRBUoR22T0YE6\
     TqqRLW63fqoVmNXMhhEMH10XBSxa8U7Z9oilVR0Ca/OXqpAYjXupmgDn3OJBpfAnbk7RFs7K6NQmVbOl1kpkHr0QsMSE9Y5nphx8\
     PWnBUZhWvLeOGjN9yumzO0wH7Wq5vk/9+VIFxuRmlmBFU6hpd5hlq6plAQ==",
    ),
    (
        "configmaps",
        "ConfigMap",
        "aescbc",
        KEYS[2],
        "azhzOmVuYzphZXNjYmM6djE6a2V5MTqRJk6nk2f6xBf0snse6+cPQL6Wc9Q5Qf8QYT5g/rZ7tJJ7hppRxduwjz9qD+4jYkhJV4ir\
     CCBb42vvmkKFTFoMi5wG8mUDVDG4U2UsZtwCnfJm7ISQ+BsYSxK3t3md6RvZsTTDUFGV4qLD82C8z5maEoJeWpK8Xnq8hcD87vwf\
     Dtzc0FoNe9hOY7qgClrW6BOgrhioS7im0fjMK1uknKgK7lO3D7B/VaLYnrMIxdmnQe1lH8QE/rR8NuYhR8aHQnuGMHd9EyV74YJI\
     7ifes6X2qGGYeSUfHhDCZTlTx1L8RQ==",
    ),
    (
        "serviceaccounts",
        "ServiceAccount",
        "secretbox",
        KEYS[2],
        "azhzOmVuYzpzZWNyZXRib3g6djE6a2V5MToLJ8rKeluufS791MalrC5yz1AL7mQQBWpn+Ffrs0lfW4ix1v08V4prCdRNBvb5+B8A\
     PXoRh+kUjj1I5ovb/svOAkvFVrfs00FmNq4gJ3Gmf0s4gVfaL2ln3OccD7/0xYNEkJ2XCREEwelfT+L61Jl/bjNNL7cWGHP9gP31\
     yRVf9o17fU6ejOndIbR7oZhM",
    ),
];

fn configuration(resources: &str, providers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
         resources: [{{resources: [{resources}], providers: [{providers}]}}]\n"
    )
}

fn key(provider: &str, name: &str, secret: &str) -> String {
    format!("{{{provider}: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
}

fn encryption(resources: &str, providers: &str) -> Encryption {
    Encryption::parse(ROOT, &configuration(resources, providers)).expect("a sound configuration")
}

fn problem(resources: &str, providers: &str) -> String {
    let parsed = Encryption::parse(ROOT, &configuration(resources, providers));
    parsed.err().expect("a faulty configuration").to_string()
}

#[test]
fn values_lie_under_upstreams_prefixes_and_come_back() {
    let plain = Bytes::from_static(br#"{"kind":"Secret","data":{"password":"aHVudGVyMg=="}}"#);
    for (provider, keys) in [("aesgcm", &KEYS[..]), ("aescbc", &KEYS[..]), ("secretbox", &KEYS[2..])] {
        for secret in keys {
            let encryption = encryption("secrets", &key(provider, "key1", secret));
            for length in [0, 1, 15, 16, 17, plain.len()] {
                let plain = plain.slice(..length);
                let stored = encryption.to_disk(PLACE, &plain).unwrap();
                let prefix = format!("k8s:enc:{provider}:v1:key1:");
                assert!(stored.starts_with(prefix.as_bytes()));
                assert!(memchr::memmem::find(&stored, b"kind").is_none());
                assert_ne!(
                    stored,
                    encryption.to_disk(PLACE, &plain).unwrap(),
                    "no nonce comes twice"
                );
                assert_eq!(encryption.from_disk(PLACE, &stored).unwrap(), plain);
            }
        }
    }
}

/// From "Cryptography in NaCl" by D. J. Bernstein, section 10.
#[test]
fn secretbox_is_that_of_nacl() {
    let bytes = |text: &str| -> Vec<u8> {
        let digits = text.as_bytes().chunks(2);
        digits
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    let secret = bytes("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
    let nonce = bytes("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
    let plain = bytes(
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41d\
         b66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a0\
         89bc76897040e082f937763848645e0705",
    );
    let stored = seal_secretbox(&secret, nonce.clone().try_into().unwrap(), &plain).unwrap();
    assert_eq!(stored[..24], nonce);
    assert_eq!(stored[24..40], bytes("f3ffc7703f9400e52a7dfb4b3d3305d9"));
    assert_eq!(stored[40..48], bytes("8e993b9f48681273"));
    assert_eq!(Algorithm::Secretbox.open(&secret, PLACE, &stored).unwrap(), plain);
}

#[test]
fn what_upstream_encrypted_is_read() {
    for (resource, kind, provider, secret, value) in OF_UPSTREAM {
        let codec = EncryptedEtcdCodec(encryption(resource, &key(provider, "key1", secret)).into());
        let value = Bytes::from(STANDARD.decode(value).unwrap());
        let place = format!("/registry/{resource}/default/a");
        let object: api::Value = serde_json::from_slice(&codec.from_disk(&place, &value).unwrap()).unwrap();
        assert_eq!(object["kind"], kind);
        assert_eq!(object["metadata"]["name"], "a");
        if kind == "Secret" {
            assert_eq!(object["data"]["pw"], "aHVudGVyMg==");
        }
    }
}

#[test]
fn a_value_that_was_moved_or_changed_is_not_read() {
    let plain = Bytes::from_static(b"{\"kind\":\"Secret\"}");
    for provider in ["aesgcm", "aescbc", "secretbox"] {
        let encryption = encryption("secrets", &key(provider, "key1", KEYS[2]));
        let stored = encryption.to_disk(PLACE, &plain).unwrap();
        let moved = encryption.from_disk("/registry/secrets/default/b", &stored);
        // Only AES-GCM binds values to their keys, in upstream too.
        assert_eq!(moved.is_err(), provider == "aesgcm", "{provider}");
        for length in 0..stored.len() {
            let cut = encryption.from_disk(PLACE, &stored.slice(..length));
            assert!(cut.is_err(), "{provider} cut to {length} bytes");
        }
        if provider != "aescbc" {
            for at in stored.len() - plain.len()..stored.len() {
                let mut changed = stored.to_vec();
                changed[at] ^= 1;
                assert!(
                    encryption.from_disk(PLACE, &changed.into()).is_err(),
                    "{provider}, byte {at}"
                );
            }
        }
    }
}

#[test]
fn the_first_provider_writes_and_all_read() {
    let plain = Bytes::from_static(b"{\"kind\":\"Secret\"}");
    let (old, new) = (key("aescbc", "old", KEYS[0]), key("aesgcm", "new", KEYS[2]));
    let before = encryption("secrets", &format!("{old}, {{identity: {{}}}}"));
    let after = encryption("secrets", &format!("{new}, {old}"));
    let by_old = before.to_disk(PLACE, &plain).unwrap();
    assert_eq!(
        before.from_disk(PLACE, &plain).unwrap(),
        plain,
        "identity reads plain text"
    );
    assert_eq!(after.from_disk(PLACE, &by_old).unwrap(), plain);
    assert!(
        after
            .to_disk(PLACE, &plain)
            .unwrap()
            .starts_with(b"k8s:enc:aesgcm:v1:new:")
    );
    let refused = after.from_disk(PLACE, &plain).unwrap_err().to_string();
    assert_eq!(
        refused, "no matching prefix found",
        "plain text is refused without identity"
    );

    let back = encryption("secrets", &format!("{{identity: {{}}}}, {old}"));
    assert_eq!(
        back.from_disk(PLACE, &by_old).unwrap(),
        plain,
        "identity first leads back to plain text"
    );
    assert_eq!(back.to_disk(PLACE, &plain).unwrap(), plain);

    let same_name = encryption("secrets", &format!("{}, {old}", key("aescbc", "old", KEYS[2])));
    assert_eq!(
        same_name.from_disk(PLACE, &by_old).unwrap(),
        plain,
        "a key that was replaced under its name"
    );
    let other_name = encryption("secrets", &key("aescbc", "other", KEYS[0]));
    let refused = other_name.from_disk(PLACE, &by_old).unwrap_err().to_string();
    assert_eq!(refused, "no matching key was found for the provided AES transformer");
}

#[test]
fn only_named_resources_are_encrypted() {
    let provider = key("aesgcm", "k", KEYS[2]);
    let plain = Bytes::from_static(b"{}");
    let custom = "/registry/example.com/widgets/default/w";
    let deployment = "/registry/deployments/default/d";
    for (resources, place, is_encrypted) in [
        ("secrets", PLACE, true),
        ("secrets", "/registry/secretsx/default/a", false),
        ("secrets", "/registry/configmaps/default/secrets/", false),
        ("secrets", "/other/secrets/default/a", false),
        ("configmaps", PLACE, false),
        ("deployments.apps", deployment, true),
        ("'*.apps'", deployment, true),
        ("'*.'", deployment, false),
        ("'*.'", PLACE, true),
        ("services", "/registry/services/specs/default/s", true),
        ("services", "/registry/services/endpoints/default/s", false),
        ("endpoints", "/registry/services/endpoints/default/s", true),
        ("widgets.example.com", custom, true),
        ("'*.*'", custom, true),
        ("'*.*'", "/registry/ranges/serviceips", false),
        ("events", "/registry/events/default/e", true),
    ] {
        let stored = encryption(resources, &provider).to_disk(place, &plain).unwrap();
        assert_eq!(stored != plain, is_encrypted, "{resources} {place}");
    }
}

#[test]
fn what_is_encrypted_is_not_taken_for_plain_text() {
    let stored = Bytes::from_static(b"k8s:enc:aescbc:v1:key1:0123456789abcdef");
    let error = Encryption::none(ROOT).from_disk(PLACE, &stored).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("identity transformer tried to read encrypted data")
    );
    let identity = encryption("secrets", "{identity: {}}");
    assert!(identity.from_disk(PLACE, &stored).is_err());
}

#[test]
fn etcd_gets_protobuf_that_is_encrypted() {
    let object =
        Bytes::from_static(br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"default"}}"#);
    let codec = EncryptedEtcdCodec(encryption("secrets", &key("aesgcm", "k", KEYS[2])).into());
    let stored = codec.to_disk(PLACE, &object).unwrap();
    assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:k:"));
    assert!(codec.0.from_disk(PLACE, &stored).unwrap().starts_with(b"k8s\0"));
    let read = codec.from_disk(PLACE, &stored).unwrap();
    let kind = |bytes: &[u8]| serde_json::from_slice::<api::Value>(bytes).unwrap()["kind"].clone();
    assert_eq!(kind(&read), kind(&object));
}

#[test]
fn a_faulty_configuration_is_refused_in_upstreams_words() {
    let good = key("aescbc", "k", KEYS[0]);
    for (resources, providers, why) in [
        (
            "secrets",
            key("aescbc", "k", "c2hvcnQ="),
            "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected \
             length, got 5, expected one of [16 24 32]",
        ),
        (
            "secrets",
            key("secretbox", "k", KEYS[0]),
            "secret is not of the expected length, got 16, expected one of [32]",
        ),
        ("secrets", key("aesgcm", "k", "'%%%'"), "secrets must be base64 encoded"),
        (
            "secrets",
            key("aesgcm", "''", KEYS[0]),
            "name is a mandatory field for a key",
        ),
        (
            "secrets",
            key("aesgcm", "k", "''"),
            "secret is a mandatory field for a key",
        ),
        (
            "secrets",
            "{aesgcm: {keys: []}}".to_owned(),
            "at least one keys is required",
        ),
        (
            "secrets",
            String::new(),
            "at least one resources[0].providers is required",
        ),
        ("", good.clone(), "at least one resources[0].resources is required"),
        (
            "secrets",
            "{}".to_owned(),
            "provider does not contain any of the expected providers",
        ),
        (
            "secrets",
            "{identity: {}, aesgcm: {keys: []}}".to_owned(),
            "more than one provider specified in a single element",
        ),
        (
            "secrets",
            "{kms: {apiVersion: v2, name: x, endpoint: 'unix:///x'}}".to_owned(),
            "KMS providers are not supported",
        ),
        (
            "Secrets",
            good.clone(),
            "resource name should not contain capital letters",
        ),
        (
            "'*'",
            good.clone(),
            "use '*.' to encrypt all the resources from core API group",
        ),
        (
            "'secrets.*'",
            good.clone(),
            "encrypting the same resource across groups is not supported",
        ),
        (
            "events.events.k8s.io",
            good.clone(),
            "Use 'events' instead in the config file",
        ),
        (
            "secrets, secrets",
            good.clone(),
            "the same resource cannot be specified multiple times",
        ),
        ("secrets, '*.'", good.clone(), "using overlapping resources"),
        ("secrets, '*.*'", good.clone(), "using overlapping resources"),
        ("secrets", "{rot13: {}}".to_owned(), "unknown field `rot13`"),
    ] {
        let error = problem(resources, &providers);
        assert!(error.contains(why), "{error}");
        assert!(!error.contains(KEYS[0]), "{error}");
    }
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - {{resources: ['*.'], providers: [{good}]}}\n- {{resources: [secrets], providers: [{good}]}}\n"
    );
    let error = Encryption::parse(ROOT, &text)
        .err()
        .expect("a rule that is never used")
        .to_string();
    assert!(
        error.contains("resource \"secrets\" is masked by earlier rule \"*.\""),
        "{error}"
    );
}

#[test]
fn a_faulty_change_leaves_the_old_configuration() {
    let encryption = encryption("secrets", &key("aesgcm", "k", KEYS[2]));
    assert!(encryption.replace("kind: Nonsense").is_err());
    let stored = encryption.to_disk(PLACE, &Bytes::from_static(b"{}")).unwrap();
    assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:k:"));
    encryption.replace(&configuration("secrets", "{identity: {}}")).unwrap();
    assert_eq!(encryption.to_disk(PLACE, &Bytes::from_static(b"{}")).unwrap(), "{}");
}
