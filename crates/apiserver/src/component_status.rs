//! ComponentStatuses: what the server finds when it looks at the store, the scheduler and the controllers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use api::{Error, Resource, Value};
use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::json;

use crate::body::Body;
use crate::call::Call;
use crate::errors::method_not_allowed;
use crate::{ApiServer, dial};

/// Of these upstream speaks in the singular.
static COMPONENT_STATUS: Resource =
    Resource::cluster("", "v1", "ComponentStatus", "componentstatus", "componentstatus");

/// How long a component may take to answer, and how much of its answer is shown.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 4096;

/// Where upstream's components serve on the same machine.
const COMPONENTS: [(&str, u16); 2] = [("scheduler", 10259), ("controller-manager", 10257)];
const STORE: &str = "etcd-0";

pub async fn run(call: &Call<'_>, verb: &str) -> Result<Response<Body>, Error> {
    match verb {
        "list" => {
            call.list_request()?;
            let all = all(call.server).await;
            call.presenter()?.list(json!({}), all)
        }
        "get" => {
            let name = &call.info.name;
            let found = all(call.server)
                .await
                .into_iter()
                .find(|one| one["metadata"]["name"] == name.as_str());
            let found = found.ok_or_else(|| Error::not_found(&COMPONENT_STATUS, name))?;
            call.presenter()?.value(StatusCode::OK, with_type(found))
        }
        _ => Err(method_not_allowed()),
    }
}

async fn all(server: &ApiServer) -> Vec<Value> {
    let mut found = Vec::new();
    for (name, port) in COMPONENTS {
        let outcome = match server.facts.runs_all_components() {
            // This process starts them again whatever happens to them.
            true => Ok("ok".to_owned()),
            false => ask(server, port).await,
        };
        found.push(status(name, outcome));
    }
    let store = server.registry.check_store().await.map(|()| "ok".to_owned());
    found.push(status(STORE, store));
    found
}

fn status(name: &str, outcome: Result<String, String>) -> Value {
    let (status, message) = match outcome {
        Ok(message) => ("True", message),
        Err(message) => ("False", message),
    };
    json!({
        "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": status, "message": message}],
    })
}

fn with_type(mut status: Value) -> Value {
    status["kind"] = COMPONENT_STATUS.kind.into();
    status["apiVersion"] = COMPONENT_STATUS.api_version().into();
    status
}

async fn ask(server: &ApiServer, port: u16) -> Result<String, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let asked = tokio::time::timeout(PATIENCE, ask_health(server, address)).await;
    let answered = asked.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
    answered.map_err(|error| format!("Get \"https://{address}/healthz\": {error}"))
}

async fn ask_health(server: &ApiServer, address: SocketAddr) -> Result<String, String> {
    let stream = dial::tls(server.insecure_tls.clone(), "localhost", &[address]).await;
    let stream = stream.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
        _ => error.to_string(),
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/healthz")
        .header(HOST, address.to_string())
        .body(Full::<Bytes>::default())
        .map_err(|error| error.to_string())?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        match code {
            StatusCode::OK => Ok(text),
            _ => Err(text),
        }
    };
    let answer = answered.await;
    connection.abort();
    answer
}
