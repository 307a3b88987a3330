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
enum Check {
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
const CHECKS: &[(&str, Check)] = &[
    ("ping", Check::BeforeServing),
    ("log", Check::BeforeServing),
    ("etcd", Check::Store),
    ("etcd-readiness", Check::Ready),
    ("informer-sync", Check::Ready),
    (
        "poststarthook/start-apiserver-admission-initializer",
        Check::BeforeServing,
    ),
    ("poststarthook/generic-apiserver-start-informers", Check::BeforeServing),
    (
        "poststarthook/priority-and-fairness-config-consumer",
        Check::BeforeServing,
    ),
    ("poststarthook/priority-and-fairness-filter", Check::BeforeServing),
    ("poststarthook/storage-object-count-tracker-hook", Check::BeforeServing),
    ("poststarthook/start-apiextensions-informers", Check::BeforeServing),
    ("poststarthook/start-apiextensions-controllers", Check::BeforeServing),
    ("poststarthook/crd-informer-synced", Check::BeforeServing),
    ("poststarthook/start-system-namespaces-controller", Check::BeforeServing),
    (
        "poststarthook/start-cluster-authentication-info-controller",
        Check::BeforeServing,
    ),
    ("poststarthook/storage-readiness", Check::BeforeServing),
    (
        "poststarthook/start-service-ip-repair-controllers",
        Check::BeforeServing,
    ),
    ("poststarthook/rbac/bootstrap-roles", Check::BeforeServing),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        Check::BeforeServing,
    ),
    (
        "poststarthook/priority-and-fairness-config-producer",
        Check::BeforeServing,
    ),
    ("poststarthook/bootstrap-controller", Check::BeforeServing),
    (
        "poststarthook/start-kubernetes-service-cidr-controller",
        Check::BeforeServing,
    ),
    ("poststarthook/start-kube-aggregator-informers", Check::BeforeServing),
    (
        "poststarthook/apiservice-status-local-available-controller",
        Check::BeforeServing,
    ),
    (
        "poststarthook/apiservice-status-remote-available-controller",
        Check::BeforeServing,
    ),
    ("poststarthook/apiservice-registration-controller", Check::BeforeServing),
    ("poststarthook/apiservice-discovery-controller", Check::BeforeServing),
    ("poststarthook/kube-apiserver-autoregistration", Check::BeforeServing),
    ("autoregister-completion", Check::BeforeServing),
    ("poststarthook/apiservice-openapi-controller", Check::BeforeServing),
    ("poststarthook/apiservice-openapiv3-controller", Check::BeforeServing),
    ("store-quota", Check::Quota),
    ("shutdown", Check::Shutdown),
];

/// Answers for `/healthz`, `/livez`, `/readyz` and for single checks below them.
pub async fn answer(server: &ApiServer, endpoint: &str, check: &[&str], query: &Query) -> Option<Response<Body>> {
    let checks = CHECKS
        .iter()
        .filter(|(_, check)| endpoint == "readyz" || !matches!(check, Check::Shutdown | Check::Quota | Check::Ready));
    if !check.is_empty() {
        let name = check.join("/");
        let (_, check) = checks.into_iter().find(|(found, _)| *found == name)?;
        return Some(match check_one(server, *check).await {
            Ok(()) => respond::text(StatusCode::OK, "ok"),
            Err(why) => respond::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {why}\n"),
            ),
        });
    }
    let mut report = String::new();
    let (mut passed, excluded) = (true, query.all("exclude"));
    for (name, check) in checks {
        let excused = excluded.iter().any(|excluded| excluded == name);
        let passes = excused || check_one(server, *check).await.is_ok();
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

async fn check_one(server: &ApiServer, check: Check) -> Result<(), String> {
    match check {
        Check::BeforeServing | Check::Ready => Ok(()),
        Check::Shutdown => match server.ready.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err("process is shutting down".into()),
        },
        Check::Store => server.registry.check_store().await,
        Check::Quota => server.registry.check_quota(),
    }
}
