//! Why the API server refused to create what a controller wanted.

use api::kinds::namespace::NAMESPACE;
use api::kinds::resource_quota::RESOURCE_QUOTA;

use super::finding::{Finding, Reference};
use super::look::between;

/// The words of a refusal, and what is found by them.
struct Refusal {
    words: &'static str,
    explain: fn(&str, &str) -> Finding,
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        words: "exceeded quota:",
        explain: quota,
    },
    Refusal {
        words: "failed quota:",
        explain: quota_needs_requests,
    },
    Refusal {
        words: "violates PodSecurity",
        explain: pod_security,
    },
    Refusal {
        words: "failed calling webhook",
        explain: webhook_fails,
    },
    Refusal {
        words: "denied the request",
        explain: webhook_denies,
    },
    Refusal {
        words: "error looking up service account",
        explain: service_account,
    },
    Refusal {
        words: "no PriorityClass with name",
        explain: |message, _| {
            let name = between(message, "no PriorityClass with name ", " was found").unwrap_or("?");
            Finding::broken(
                "priority-class-missing",
                format!("PriorityClass \"{name}\" of the pod template does not exist."),
            )
            .next("Create the PriorityClass, or correct priorityClassName.")
        },
    },
    Refusal {
        words: "because it is being terminated",
        explain: |_, namespace| {
            Finding::broken(
                "namespace-terminating",
                "Its namespace is being deleted, so no new objects can be created in it.",
            )
            .because_of(Reference::new(&NAMESPACE, "", namespace))
        },
    },
    Refusal {
        words: "usage per",
        explain: |_, _| {
            Finding::broken(
                "limit-range",
                "A LimitRange in the namespace rejects the resources of the pods.",
            )
            .next("Change resources in the pod template or in the LimitRange: kubectl get limitrange -o yaml")
        },
    },
    Refusal {
        words: "ValidatingAdmissionPolicy",
        explain: |message, _| {
            let name = between(message, "ValidatingAdmissionPolicy '", "'").unwrap_or("?");
            Finding::broken(
                "admission-policy",
                format!("ValidatingAdmissionPolicy \"{name}\" rejects the pods."),
            )
            .next("Change the pod template so that it complies with the policy.")
        },
    },
    Refusal {
        words: "is invalid:",
        explain: |_, _| {
            Finding::broken("template-invalid", "The template produces invalid objects.")
                .next("Correct the field in the message.")
        },
    },
];

/// What a refusal means; one that is not known is told in the server's words.
pub fn explain(message: &str, namespace: &str) -> Finding {
    let refusal = REFUSALS.iter().find(|refusal| message.contains(refusal.words));
    let finding = match refusal {
        Some(refusal) => (refusal.explain)(message, namespace),
        None => Finding::broken(
            "create-refused",
            "The API server rejects the objects that its controller tries to create.",
        ),
    };
    finding.detail(format!("API server: {message}"))
}

fn quota(message: &str, namespace: &str) -> Finding {
    let name = between(message, "exceeded quota: ", ",").unwrap_or("?");
    let requested = between(message, "requested: ", ", used:").unwrap_or("?");
    let used = between(message, "used: ", ", limited:").unwrap_or("?");
    let limited = message.split_once("limited: ").map_or("?", |(_, limited)| limited);
    Finding::broken(
        "quota-exceeded",
        format!("ResourceQuota \"{name}\" is exceeded: requested {requested}, used {used}, limited to {limited}."),
    )
    .next(format!(
        "Raise the quota (kubectl -n {namespace} edit resourcequota {name}), or reduce the usage in the namespace."
    ))
    .because_of(Reference::new(&RESOURCE_QUOTA, namespace, name))
}

fn quota_needs_requests(message: &str, _: &str) -> Finding {
    let name = between(message, "failed quota: ", ":").unwrap_or("?");
    let fields = message.split_once("must specify ").map_or("?", |(_, fields)| fields);
    Finding::broken(
        "quota-needs-requests",
        format!("ResourceQuota \"{name}\" requires values that the pods do not set: {fields}."),
    )
    .next("Set resources.requests and resources.limits in the pod template, or define defaults with a LimitRange.")
}

fn pod_security(message: &str, namespace: &str) -> Finding {
    let level = between(message, "violates PodSecurity \"", "\"").unwrap_or("?");
    let rules = message
        .split_once(&format!("\"{level}\": "))
        .map_or("", |(_, rules)| rules);
    Finding::broken("pod-security", format!("The pods violate the Pod Security Standard \"{level}\" that the namespace enforces."))
        .details(rules.split("), ").filter(|rule| !rule.is_empty()).map(|rule| match rule.contains('(') && !rule.ends_with(')') {
            true => format!("{rule})"),
            false => rule.to_owned(),
        }))
        .next(format!(
            "Correct securityContext in the pod template, or enforce a less strict level: kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=LEVEL --overwrite"
        ))
}

fn webhook_fails(message: &str, _: &str) -> Finding {
    let name = between(message, "failed calling webhook \"", "\"").unwrap_or("?");
    Finding::broken("webhook-fails", format!("Calling admission webhook \"{name}\" fails, and its failurePolicy is Fail."))
        .next("Fix the server behind the webhook, or set failurePolicy: Ignore in its configuration: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations")
}

fn webhook_denies(message: &str, _: &str) -> Finding {
    let name = between(message, "admission webhook \"", "\"").unwrap_or("?");
    let why = message.split_once("denied the request").map_or("", |(_, why)| why);
    Finding::broken(
        "webhook-denies",
        format!("Admission webhook \"{name}\" denies the request{why}."),
    )
    .next("Change the template so that the webhook accepts it.")
}

fn service_account(message: &str, namespace: &str) -> Finding {
    let name = between(message, "serviceaccount \"", "\"").unwrap_or("?");
    Finding::broken(
        "service-account-missing",
        format!("ServiceAccount \"{name}\" of the pod template does not exist."),
    )
    .next(format!(
        "Create it: kubectl -n {namespace} create serviceaccount {name}"
    ))
}
