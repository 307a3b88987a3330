//! The way of a request, top to bottom in the order in which it happens.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use admission::Remarks;
use api::Error;
use auth::User;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderName, Request, Response};
use hyper::upgrade::OnUpgrade;
use registry::remarks;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::audit_trail::{self, Trail};
use crate::body::{self, Body, RequestBody};
use crate::call::Call;
use crate::fairness::{self, Class};
use crate::negotiate::{self, Encoding};
use crate::peer::Peer;
use crate::request::{Query, RequestInfo};
use crate::resolve::{Resolved, resolve};
use crate::respond::with_warnings;
use crate::{ApiServer, aggregator, connect, deadline, gate, nonresource, respond};

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

impl ApiServer {
    /// Answers one request. Never fails and never panics: whatever goes wrong becomes a Status.
    pub async fn handle(self: Arc<Self>, request: Request<RequestBody>, peer: Peer) -> Response<Body> {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let encoding = negotiate::error_encoding(request.headers(), &query);
        let info = match RequestInfo::parse(request.method(), request.uri().path(), &query) {
            Ok(info) => Arc::new(info),
            Err(bad) => return respond::bad_path(&bad),
        };
        let (begun, long_running) = (Instant::now(), fairness::is_long_running(&info));
        let _in_flight = self.metrics.enter(&info, long_running);
        let remarks: Arc<Remarks> = Arc::default();
        let trail = self.auditor.as_ref().map(|auditor| {
            let about = (&*info, long_running);
            Trail::new(auditor, &request, peer.address(), about, &remarks)
        });
        let server = self.clone();
        let passed = info.clone();
        // Boxed here once, so that what holds connections need not know the pipeline's whole type.
        let passing: BoxFuture<'static, Result<Response<Body>, Error>> = Box::pin(async move {
            let limit = deadline::of_request(&passed, &query, long_running)?;
            deadline::within(limit, server.pass(request, &passed, query, &peer, encoding)).await
        });
        let passing = remarks::collect(Arc::clone(&remarks), audit_trail::follow(trail.clone(), passing));
        let answer = AssertUnwindSafe(passing).catch_unwind().await;
        let response = self.answer(answer, encoding, trail.as_deref());
        let response = with_warnings(response, &remarks.warnings());
        let waited = remarks.waiting_time();
        let response = self.metrics.answered(&info, response, begun.elapsed(), waited);
        match trail {
            Some(trail) => trail.answered(response),
            None => response,
        }
    }

    fn answer(
        &self,
        passed: std::thread::Result<Result<Response<Body>, Error>>,
        encoding: Encoding,
        trail: Option<&Trail>,
    ) -> Response<Body> {
        match passed {
            Ok(answer) => {
                if let (Some(trail), Err(error)) = (trail, &answer) {
                    trail.failed(error);
                }
                self.or_status(answer, encoding)
            }
            Err(_) => {
                if let Some(trail) = trail {
                    trail.panicked();
                }
                error!("A request handler panicked; the request was answered with an internal error");
                respond::error(&Error::internal("the request could not be handled"), encoding)
            }
        }
    }

    fn or_status(&self, answer: Result<Response<Body>, Error>, encoding: Encoding) -> Response<Body> {
        answer.unwrap_or_else(|error| {
            if let Some(trail) = audit_trail::current() {
                trail.failed(&error);
            }
            if error.code() >= 500 {
                warn!(code = error.code(), %error, "A request failed in the server");
            }
            respond::error(&error, encoding)
        })
    }

    async fn pass(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        info: &RequestInfo,
        query: Query,
        peer: &Peer,
        encoding: Encoding,
    ) -> Result<Response<Body>, Error> {
        let (parts, body) = request.into_parts();

        // Who is it? Everything after this knows a user, be it `system:anonymous`.
        let user = gate::authenticate(&self.gate, &self.registry, peer, (&parts.headers, &info.path)).await;
        self.note_user(peer, &user);
        let trail = audit_trail::current();
        if let Some(trail) = &trail {
            trail.authenticated(user.as_deref().ok(), info);
        }
        let own = user?;

        // A user who may do so acts as somebody else from here on.
        let user = gate::impersonate(&self.gate, &self.registry, own.clone(), &parts.headers, (info, &query))?;
        if let Some(trail) = trail.filter(|_| !Arc::ptr_eq(&own, &user)) {
            trail.impersonated(&user);
        }

        // Too much at once waits its turn or is turned away before it costs anything.
        let width = fairness::width(info, &query, |info| self.stored_objects(info));
        let asked = Instant::now();
        let (class, ticket) = self.fairness.enter(&user, info, width).await;
        remarks::current().waited(asked.elapsed());
        let answer = match ticket {
            Ok(_held) => {
                self.pass_gate(Request::from_parts(parts, body), info, query, user)
                    .await
            }
            Err(error) => Err(error),
        };
        Ok(with_flow_control_headers(self.or_status(answer, encoding), class))
    }

    fn note_user(&self, peer: &Peer, user: &Result<Arc<User>, Error>) {
        self.metrics
            .authenticated(user.as_ref().ok().map(|user| user.name.as_str()));
        if let Peer::Tls {
            certificate: Some(certificate),
            ..
        } = peer
        {
            let now = schema::time::now().seconds;
            self.metrics.certificate_used(certificate.expires - now);
        }
    }

    /// About how many objects there are of what a request asks for.
    fn stored_objects(&self, info: &RequestInfo) -> usize {
        let served = self.registry.find(&info.group, &info.version, &info.resource);
        served.map_or(0, |served| served.ring.objects())
    }

    async fn pass_gate(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        info: &RequestInfo,
        query: Query,
        user: Arc<User>,
    ) -> Result<Response<Body>, Error> {
        // What is it about? Whoever comes after this goes by the one answer.
        let resolved = resolve(&self.registry, &self.aggregation, info, request.method());

        // May this user do that?
        let authorized = gate::authorize(&self.gate, &self.registry, &user, (info, &resolved), &query).await;
        self.metrics.authorized(authorized.is_ok());
        authorized?;

        let resource = match resolved {
            Resolved::Resource(resource) => resource,
            Resolved::NotServed(reason) => return nonresource::not_served_response(self, reason, info),

            // Another server serves that group and version.
            Resolved::Remote(remote) => {
                return aggregator::forward(self, &remote, &user, (info, &query), request).await;
            }

            // Paths that name no resource: discovery, health, OpenAPI, version.
            Resolved::Path => return nonresource::run(self, info, &query, &user, request).await,
        };

        // Connections that switch protocols or stream are passed on to nodes as they are.
        if connect::is_connect(&resource) {
            return connect::run(self, &resource, &user, &query, request).await;
        }

        // Only now is the body read: nobody without rights fills our memory.
        let (mut parts, body) = request.into_parts();
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let body = body::read(body).await?;
        self.metrics.body_read(info, body.len());
        if let Some(trail) = audit_trail::current() {
            trail.body_read(&parts.headers, &body);
        }

        // Decode, default, mutate, validate, admit and store: see `verbs` and `registry`.
        Call::new(self, resource, user, (query, &parts.headers, body))
            .with_upgrade(upgrade)
            .run()
            .await
    }
}

/// Tells the client by which flow schema and priority level its request was treated.
fn with_flow_control_headers(mut response: Response<Body>, class: Class) -> Response<Body> {
    let uids = [
        (FLOW_SCHEMA, class.flow_schema_uid),
        (PRIORITY_LEVEL, class.priority_level_uid),
    ];
    for (name, uid) in uids {
        response.headers_mut().extend(uid.map(|uid| (name, uid)));
    }
    response
}
