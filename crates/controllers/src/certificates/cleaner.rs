//! Requests for certificates are deleted when nobody needs them any more.

use std::sync::Arc;
use std::time::Duration;

use api::Fields;
use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Key};

use super::SigningRequest;
use crate::conditions;
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::created;
use crate::plan::{Action, Delete, Plan};

pub const ROW: Row = Row {
    name: "certificatesigningrequest-cleaner",
    account: "certificate-controller",
    queue: "certificate_cleaner",
    workers: 1,
    start,
};

/// How long requests stay after they were decided, and how long they may wait for it.
const DECIDED: Duration = Duration::from_secs(3600);
const PENDING: Duration = Duration::from_secs(24 * 3600);

struct Controller {
    requests: Arc<Cache<SigningRequest>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let requests = setup.cache::<SigningRequest>(&CERTIFICATE_SIGNING_REQUEST);
    setup.watch_own(&requests);
    Box::new(Controller { requests })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let request = self.requests.get_key(key.as_str());
        Ok(request.map_or_else(Plan::nothing, |request| plan(&request, attempt.now)))
    }
}

fn plan(request: &SigningRequest, now: Moment) -> Plan {
    let mut plan = Plan::default();
    if request.metadata.is_deleting() {
        return plan;
    }
    let expires = expires(request);
    if expires > now {
        plan.again_after(expires.since(now));
    } else {
        let delete = Delete::new(&CERTIFICATE_SIGNING_REQUEST, &request.metadata);
        plan.actions.push(Action::Delete(delete));
    }
    plan
}

/// The earliest reason counts. A request that was approved but never signed waits as long as one that nobody looked at.
fn expires(request: &SigningRequest) -> Moment {
    let is_issued = !request.status.text("certificate").is_empty();
    let decided = ["Approved", "Denied", "Failed"].iter().filter_map(|kind| {
        let condition = conditions::find(request.status.list("conditions"), kind)?;
        let since = Moment::parse(condition.text("lastUpdateTime"))?;
        (*kind != "Approved" || is_issued).then(|| since.plus(DECIDED))
    });
    let pending = created(&request.metadata).plus(PENDING);
    decided.fold(pending, Moment::min)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object};

    fn check(status: &str, expected: Expect) {
        let metadata = "metadata: {name: node, creationTimestamp: '2026-01-01T00:00:00Z'}";
        let request = object(&format!("{metadata}\nstatus: {status}"));
        expected.assert_eq(&plan(&request, noon()).to_string());
    }

    #[test]
    fn decided_requests_go_after_an_hour_and_others_after_a_day() {
        check(
            "{}",
            expect![[r#"
            again after 43200s
        "#]],
        );
        let approved = "conditions: [{type: Approved, lastUpdateTime: '2026-01-01T10:00:00Z'}]";
        check(
            &format!("{{{approved}}}"),
            expect![[r#"
            again after 43200s
        "#]],
        );
        check(
            &format!("{{{approved}, certificate: LS0t}}"),
            expect![[r#"
            delete certificatesigningrequests node
        "#]],
        );
        check(
            "{conditions: [{type: Denied, lastUpdateTime: '2026-01-01T11:30:00Z'}]}",
            expect![[r#"
            again after 1800s
        "#]],
        );
    }
}
