//! `/healthz`, `/livez` and `/readyz`: one named check each for what can be wrong.
//!
//! As upstream does, the overview withholds why a check failed, because everybody may see it; the path of a single check,
//! such as `/readyz/etcd`, says why.

use std::sync::atomic::Ordering;

use http::{Response, StatusCode};

use crate::body::Body;
use crate::request::Query;
use crate::{ApiServer, respond};

/// What a check looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Done before the server listens at all, so whoever reads the answer knows that it passed.
    BeforeServing,
    /// Whether the store answers and takes writes.
    Store,
    /// Only readiness, and done before the server listens.
    Ready,
    /// Only readiness: a restart frees nothing.
    Quota,
    /// Only readiness: whoever is shutting down is still alive.
    Shutdown,
}

/// Under upstream's names and in its order. Where upstream has a hook that runs after the start, the same is done here before
/// the server listens; what it has and this server does not do is not in the list.
const CHECKS: &[(&str, Look)] = &[
    ("ping", Look::BeforeServing),
    ("log", Look::BeforeServing),
    ("etcd", Look::Store),
    ("etcd-readiness", Look::Ready),
    ("informer-sync", Look::Ready),
    (
        "poststarthook/start-apiserver-admission-initializer",
        Look::BeforeServing,
    ),
    ("poststarthook/generic-apiserver-start-informers", Look::BeforeServing),
    (
        "poststarthook/priority-and-fairness-config-consumer",
        Look::BeforeServing,
    ),
    ("poststarthook/priority-and-fairness-filter", Look::BeforeServing),
    ("poststarthook/storage-object-count-tracker-hook", Look::BeforeServing),
    ("poststarthook/start-apiextensions-informers", Look::BeforeServing),
    ("poststarthook/start-apiextensions-controllers", Look::BeforeServing),
    ("poststarthook/crd-informer-synced", Look::BeforeServing),
    ("poststarthook/start-system-namespaces-controller", Look::BeforeServing),
    (
        "poststarthook/start-cluster-authentication-info-controller",
        Look::BeforeServing,
    ),
    ("poststarthook/storage-readiness", Look::BeforeServing),
    ("poststarthook/start-service-ip-repair-controllers", Look::BeforeServing),
    ("poststarthook/rbac/bootstrap-roles", Look::BeforeServing),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        Look::BeforeServing,
    ),
    (
        "poststarthook/priority-and-fairness-config-producer",
        Look::BeforeServing,
    ),
    ("poststarthook/bootstrap-controller", Look::BeforeServing),
    (
        "poststarthook/start-kubernetes-service-cidr-controller",
        Look::BeforeServing,
    ),
    ("poststarthook/start-kube-aggregator-informers", Look::BeforeServing),
    (
        "poststarthook/apiservice-status-local-available-controller",
        Look::BeforeServing,
    ),
    (
        "poststarthook/apiservice-status-remote-available-controller",
        Look::BeforeServing,
    ),
    ("poststarthook/apiservice-registration-controller", Look::BeforeServing),
    ("poststarthook/apiservice-discovery-controller", Look::BeforeServing),
    ("poststarthook/kube-apiserver-autoregistration", Look::BeforeServing),
    ("autoregister-completion", Look::BeforeServing),
    ("poststarthook/apiservice-openapi-controller", Look::BeforeServing),
    ("poststarthook/apiservice-openapiv3-controller", Look::BeforeServing),
    ("store-quota", Look::Quota),
    ("shutdown", Look::Shutdown),
];

/// Answers for `/healthz`, `/livez`, `/readyz` and for single checks below them.
pub async fn answer(server: &ApiServer, endpoint: &str, check: &[&str], query: &Query) -> Option<Response<Body>> {
    let checks = CHECKS
        .iter()
        .filter(|(_, look)| endpoint == "readyz" || !matches!(look, Look::Shutdown | Look::Quota | Look::Ready));
    if !check.is_empty() {
        let name = check.join("/");
        let (_, look) = checks.into_iter().find(|(found, _)| *found == name)?;
        return Some(match check_one(server, *look).await {
            Ok(()) => respond::text(StatusCode::OK, "ok"),
            Err(why) => respond::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {why}\n"),
            ),
        });
    }
    let mut report = String::new();
    let (mut passed, excluded) = (true, query.all("exclude"));
    for (name, look) in checks {
        let excused = excluded.iter().any(|excluded| excluded == name);
        let passes = excused || check_one(server, *look).await.is_ok();
        if !excused {
            server.metrics.health.checked(endpoint, name, passes);
        }
        passed &= passes;
        report += &match (excused, passes) {
            (true, _) => format!("[+]{name} excluded: ok\n"),
            (_, true) => format!("[+]{name} ok\n"),
            (_, false) => format!("[-]{name} failed: reason withheld\n"),
        };
    }
    let verbose = query.first("verbose").is_some();
    Some(match passed {
        true if !verbose => respond::text(StatusCode::OK, "ok"),
        true => respond::text(StatusCode::OK, format!("{report}{endpoint} check passed\n")),
        false => respond::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{report}{endpoint} check failed\n"),
        ),
    })
}

async fn check_one(server: &ApiServer, look: Look) -> Result<(), String> {
    match look {
        Look::BeforeServing | Look::Ready => Ok(()),
        Look::Shutdown => match server.ready.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err("process is shutting down".into()),
        },
        Look::Store => server.registry.check_store().await,
        Look::Quota => server.registry.check_quota(),
    }
}
