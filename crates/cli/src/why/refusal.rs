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
                format!("The PriorityClass \"{name}\" of the pod template does not exist."),
            )
            .next("Create the PriorityClass, or correct priorityClassName.")
        },
    },
    Refusal {
        words: "because it is being terminated",
        explain: |_, namespace| {
            Finding::broken(
                "namespace-terminating",
                "Its namespace is being deleted, so nothing new can be made there.",
            )
            .because_of(Reference::new(&NAMESPACE, "", namespace))
        },
    },
    Refusal {
        words: "usage per",
        explain: |_, _| {
            Finding::broken(
                "limit-range",
                "A LimitRange of the namespace forbids what the pods ask for.",
            )
            .next("Change resources in the pod template, or the LimitRange: kubectl get limitrange -o yaml")
        },
    },
    Refusal {
        words: "ValidatingAdmissionPolicy",
        explain: |message, _| {
            let name = between(message, "ValidatingAdmissionPolicy '", "'").unwrap_or("?");
            Finding::broken(
                "admission-policy",
                format!("The ValidatingAdmissionPolicy \"{name}\" refuses the pods."),
            )
            .next("Change the pod template to what the policy wants.")
        },
    },
    Refusal {
        words: "is invalid:",
        explain: |_, _| {
            Finding::broken("template-invalid", "The template makes objects that are not valid.")
                .next("Correct the field that the message names.")
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
            "The API server refuses what its controller wants to create.",
        ),
    };
    finding.detail(format!("The API server says: {message}"))
}

fn quota(message: &str, namespace: &str) -> Finding {
    let name = between(message, "exceeded quota: ", ",").unwrap_or("?");
    let requested = between(message, "requested: ", ", used:").unwrap_or("?");
    let used = between(message, "used: ", ", limited:").unwrap_or("?");
    let limited = message.split_once("limited: ").map_or("?", |(_, limited)| limited);
    Finding::broken(
        "quota-exceeded",
        format!("The ResourceQuota \"{name}\" does not allow it: {requested} more, with {used} used, is over {limited}."),
    )
    .next(format!("Raise the quota (kubectl -n {namespace} edit resourcequota {name}), or delete or shrink something in the namespace."))
    .because_of(Reference::new(&RESOURCE_QUOTA, namespace, name))
}

fn quota_needs_requests(message: &str, _: &str) -> Finding {
    let name = between(message, "failed quota: ", ":").unwrap_or("?");
    let fields = message.split_once("must specify ").map_or("?", |(_, fields)| fields);
    Finding::broken(
        "quota-needs-requests",
        format!("The ResourceQuota \"{name}\" wants every pod to say how much it uses, and these do not: {fields}."),
    )
    .next("Set resources.requests and resources.limits in the pod template, or defaults by a LimitRange.")
}

fn pod_security(message: &str, namespace: &str) -> Finding {
    let level = between(message, "violates PodSecurity \"", "\"").unwrap_or("?");
    let rules = message
        .split_once(&format!("\"{level}\": "))
        .map_or("", |(_, rules)| rules);
    Finding::broken("pod-security", format!("The namespace enforces the pod security standard \"{level}\", which the pods violate."))
        .details(rules.split("), ").filter(|rule| !rule.is_empty()).map(|rule| match rule.contains('(') && !rule.ends_with(')') {
            true => format!("{rule})"),
            false => rule.to_owned(),
        }))
        .next(format!(
            "Correct securityContext in the pod template, or lower the standard: kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=LEVEL --overwrite"
        ))
}

fn webhook_fails(message: &str, _: &str) -> Finding {
    let name = between(message, "failed calling webhook \"", "\"").unwrap_or("?");
    Finding::broken("webhook-fails", format!("The admission webhook \"{name}\" cannot be asked, and its failurePolicy is Fail."))
        .next("Mend the server behind the webhook, or set failurePolicy: Ignore in its configuration: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations")
}

fn webhook_denies(message: &str, _: &str) -> Finding {
    let name = between(message, "admission webhook \"", "\"").unwrap_or("?");
    let why = message.split_once("denied the request").map_or("", |(_, why)| why);
    Finding::broken(
        "webhook-denies",
        format!("The admission webhook \"{name}\" denies it{why}."),
    )
    .next("Change the template to what the webhook wants.")
}

fn service_account(message: &str, namespace: &str) -> Finding {
    let name = between(message, "serviceaccount \"", "\"").unwrap_or("?");
    Finding::broken(
        "service-account-missing",
        format!("The ServiceAccount \"{name}\" of the pod template does not exist."),
    )
    .next(format!(
        "Create it: kubectl -n {namespace} create serviceaccount {name}"
    ))
}
