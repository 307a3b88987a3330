//! `/healthz`, `/livez` and `/readyz`: one named check each for what can be wrong.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Response, StatusCode};

use crate::body::Body;
use crate::request::Query;
use crate::{ApiServer, respond};

/// How long the store may take to confirm that it is there.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// What a check looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Done before the server listens at all, so whoever reads the answer knows that it passed.
    BeforeServing,
    Store,
    /// Only readiness: whoever is shutting down is still alive.
    Shutdown,
}

/// Under upstream's names where upstream has the same check.
const CHECKS: &[(&str, Look)] = &[
    ("ping", Look::BeforeServing),
    ("etcd", Look::Store),
    ("poststarthook/start-system-namespaces-controller", Look::BeforeServing),
    ("poststarthook/rbac/bootstrap-roles", Look::BeforeServing),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        Look::BeforeServing,
    ),
    (
        "poststarthook/priority-and-fairness-config-producer",
        Look::BeforeServing,
    ),
    ("shutdown", Look::Shutdown),
];

/// Answers for `/healthz`, `/livez`, `/readyz` and for single checks below them.
pub async fn answer(server: &ApiServer, endpoint: &str, check: &[&str], query: &Query) -> Option<Response<Body>> {
    let checks = CHECKS
        .iter()
        .filter(|(_, look)| endpoint == "readyz" || *look != Look::Shutdown);
    if !check.is_empty() {
        let name = check.join("/");
        let (_, look) = checks.into_iter().find(|(found, _)| *found == name)?;
        return Some(match passes(server, *look).await {
            true => respond::text(StatusCode::OK, "ok"),
            false => respond::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal server error: reason withheld\n",
            ),
        });
    }
    let mut report = String::new();
    let (mut passed, excluded) = (true, query.all("exclude"));
    for (name, look) in checks {
        let excused = excluded.iter().any(|excluded| excluded == name);
        let passes = excused || passes(server, *look).await;
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

async fn passes(server: &ApiServer, look: Look) -> bool {
    match look {
        Look::BeforeServing => true,
        Look::Shutdown => server.ready.load(Ordering::Acquire),
        Look::Store => {
            let asked = tokio::time::timeout(STORE_PATIENCE, server.registry.latest()).await;
            asked.is_ok_and(|answer| answer.is_ok())
        }
    }
}
