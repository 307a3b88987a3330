//! Images that cannot be pulled.

use api::Value;
use api::kinds::pod::POD;

use super::{Container, containers, owner_hint};
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::Look;

/// What registries and runtimes say, and what that means. The first row that has one of its words wins.
struct Answer {
    words: &'static [&'static str],
    cause: &'static str,
    meaning: &'static str,
    remedies: &'static [&'static str],
}

const ANSWERS: &[Answer] = &[
    Answer {
        words: &["couldn't parse image", "invalid reference format", "InvalidImageName"],
        cause: "image-invalid-name",
        meaning: "the image name is invalid",
        remedies: &["Use the format HOST/PATH:TAG, in lower case."],
    },
    Answer {
        words: &["toomanyrequests", "429", "rate limit"],
        cause: "image-rate-limit",
        meaning: "the registry's rate limit is exceeded",
        remedies: &["Wait, or authenticate with imagePullSecrets."],
    },
    Answer {
        words: &[
            "unauthorized",
            "401",
            "403",
            "authentication required",
            "access denied",
            "pull access denied",
            "denied:",
        ],
        cause: "image-credentials",
        meaning: "the registry denies access",
        remedies: &[
            "Create credentials (kubectl create secret docker-registry NAME --docker-server=…) and reference them in spec.imagePullSecrets.",
            "Registries also deny access to repositories that do not exist: check the name.",
        ],
    },
    Answer {
        words: &[
            "no such host",
            "failed to lookup",
            "name resolution",
            "Temporary failure in name",
        ],
        cause: "image-registry-unknown-host",
        meaning: "the node cannot resolve the registry's host name",
        remedies: &["Check the host in the image name, and DNS on the node (/etc/resolv.conf)."],
    },
    Answer {
        words: &["x509", "certificate", "tls:", "TLS"],
        cause: "image-registry-certificate",
        meaning: "the node does not trust the registry's certificate",
        remedies: &["Install the registry's CA certificate on the node, or correct the registry's certificate."],
    },
    Answer {
        words: &[
            "connection refused",
            "i/o timeout",
            "timed out",
            "deadline exceeded",
            "unreachable",
            "dial tcp",
            "could not connect",
            "no route to host",
            "Connection refused",
            "error sending request",
        ],
        cause: "image-registry-unreachable",
        meaning: "the registry is unreachable",
        remedies: &["Check that the node can reach the registry, including proxies and firewalls."],
    },
    Answer {
        words: &["no space left"],
        cause: "image-no-space",
        meaning: "the node's disk is full",
        remedies: &["Free space on the node."],
    },
    Answer {
        words: &["no match for platform", "no matching manifest", "platform"],
        cause: "image-platform",
        meaning: "the image is not available for the node's platform",
        remedies: &["Use an image built for the node's architecture: kubectl get nodes -L kubernetes.io/arch"],
    },
    Answer {
        words: &[
            "not found",
            "manifest unknown",
            "404",
            "NAME_UNKNOWN",
            "MANIFEST_UNKNOWN",
            "does not exist",
            "no such image",
        ],
        cause: "image-not-found",
        meaning: "the registry has no such image or tag",
        remedies: &["Check the name and the tag."],
    },
];

const REASONS: &[&str] = &[
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

pub fn cannot_be_pulled(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let containers = containers(pod).into_iter();
    let failing = containers.filter(|container| REASONS.contains(&container.status.str("state.waiting.reason")));
    failing.map(|container| explain(facts, pod, &container)).collect()
}

fn explain(facts: &Facts, pod: &Value, container: &Container<'_>) -> Finding {
    let image = container.spec.str("image");
    let reason = container.status.str("state.waiting.reason");
    let of = format!("Image \"{image}\" of {}", container.called());
    let change = format!(
        "Change the image: kubectl -n {} set image {} {}=IMAGE",
        pod.namespace(),
        owner_hint(pod),
        container.name()
    );
    match reason {
        "InvalidImageName" => {
            return Finding::broken("image-invalid-name", format!("{of} has an invalid name."))
                .detail(container.status.str("state.waiting.message"))
                .next(change);
        }
        "ErrImageNeverPull" => {
            return Finding::broken(
                "image-never-pulled",
                format!("{of} is not on the node, and imagePullPolicy is Never."),
            )
            .next("Import it on the node (karve image import FILE), or set imagePullPolicy: IfNotPresent.");
        }
        _ => (),
    }
    let said = said(facts, pod, container);
    let Some(answer) = ANSWERS
        .iter()
        .find(|answer| answer.words.iter().any(|word| said.contains(word)))
    else {
        return Finding::broken("image-pull", format!("{of} cannot be pulled."))
            .detail(format!("Error: {said}"))
            .next(change);
    };
    let mut finding = Finding::broken(answer.cause, format!("{of} cannot be pulled: {}.", answer.meaning))
        .detail(format!("Error: {said}"));
    if answer.cause == "image-credentials" {
        finding = finding.details(secrets(facts, pod));
    }
    for remedy in answer.remedies {
        finding = finding.next(*remedy);
    }
    finding.next(change)
}

/// The state of a container that waits for its next try repeats the answer, or the events have it.
fn said(facts: &Facts, pod: &Value, container: &Container<'_>) -> String {
    let message = container.status.str("state.waiting.message");
    let image = container.spec.str("image");
    let is_answer = |message: &&str| message.contains("Failed to pull image") && message.contains(image);
    let mut events = facts.events(&POD, pod).map(|event| event.str("message"));
    let is_bare =
        message.is_empty() || (message.starts_with("Back-off pulling image") && !message.contains("ErrImagePull:"));
    let from_events = if is_bare { events.find(is_answer) } else { None };
    let said = from_events.unwrap_or(message);
    // The back-off says what it backs off from last.
    said.split_once("ErrImagePull: ")
        .map_or(said, |(_, said)| said)
        .to_owned()
}

fn secrets(facts: &Facts, pod: &Value) -> Vec<String> {
    let names: Vec<&str> = pod
        .items("spec.imagePullSecrets")
        .iter()
        .map(|secret| secret.str("name"))
        .collect();
    let mut lines = vec![match names.is_empty() {
        true => "The pod has no imagePullSecrets, so the image is pulled anonymously.".to_owned(),
        false => format!("imagePullSecrets of the pod: {}.", names.join(", ")),
    }];
    if let Some(event) = facts.event(&POD, pod, "FailedToRetrieveImagePullSecret") {
        lines.push(event.str("message").to_owned());
    }
    lines
}
