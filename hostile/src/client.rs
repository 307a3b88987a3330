//! A client of one identity, on a connection that is kept.

use std::net::SocketAddr;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::wire::exec::{self, Executed};
use crate::wire::http1::{Connection, Response};
use crate::wire::tls::{self, ClientStream, Identity};

pub const JSON: &str = "application/json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

pub struct Client {
    address: SocketAddr,
    identity: Option<Identity>,
    token: Option<String>,
    kept: Mutex<Option<Connection<ClientStream>>>,
}

impl Client {
    /// Nobody in particular.
    pub fn anonymous(address: SocketAddr) -> Self {
        Self {
            address,
            identity: None,
            token: None,
            kept: Mutex::new(None),
        }
    }

    pub fn with_certificate(address: SocketAddr, identity: Identity) -> Self {
        Self {
            identity: Some(identity),
            ..Self::anonymous(address)
        }
    }

    pub fn with_token(address: SocketAddr, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..Self::anonymous(address)
        }
    }

    pub fn get(&self, path: &str) -> Result<Response> {
        self.send("GET", path, &[], &[])
    }

    pub fn delete(&self, path: &str) -> Result<Response> {
        self.send("DELETE", path, &[], &[])
    }

    pub fn post(&self, path: &str, object: &Value) -> Result<Response> {
        self.body("POST", path, JSON, object)
    }

    pub fn put(&self, path: &str, object: &Value) -> Result<Response> {
        self.body("PUT", path, JSON, object)
    }

    pub fn merge(&self, path: &str, change: &Value) -> Result<Response> {
        self.body("PATCH", path, MERGE_PATCH, change)
    }

    pub fn apply(&self, path: &str, object: &Value) -> Result<Response> {
        self.body(
            "PATCH",
            &format!("{path}?fieldManager=hostile&force=true"),
            APPLY_PATCH,
            object,
        )
    }

    pub fn body(&self, method: &str, path: &str, content_type: &str, object: &Value) -> Result<Response> {
        self.send(
            method,
            path,
            &[("Content-Type", content_type)],
            object.to_string().as_bytes(),
        )
    }

    /// The same, where anything but success is an error: for what the attack stands on.
    pub fn must_get(&self, path: &str) -> Result<Value> {
        must("GET", path, self.get(path)?)
    }

    pub fn must_post(&self, path: &str, object: &Value) -> Result<Value> {
        must("POST", path, self.post(path, object)?)
    }

    pub fn must_merge(&self, path: &str, change: &Value) -> Result<Value> {
        must("PATCH", path, self.merge(path, change)?)
    }

    pub fn must_delete(&self, path: &str) -> Result<Value> {
        must("DELETE", path, self.delete(path)?)
    }

    /// One request. A kept connection that the server has closed meanwhile is opened once more.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response> {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut all = vec![("Accept", JSON)];
        all.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        all.extend_from_slice(headers);
        let kept = self.kept.lock().ok().and_then(|mut kept| kept.take());
        if let Some(mut connection) = kept
            && let Ok(response) = connection.request(method, path, &all, body)
        {
            self.keep(connection, &response);
            return Ok(response);
        }
        let mut connection = self.connect()?;
        let response = connection
            .request(method, path, &all, body)
            .with_context(|| format!("{method} {path}"))?;
        self.keep(connection, &response);
        Ok(response)
    }

    fn keep(&self, connection: Connection<ClientStream>, response: &Response) {
        let closes = response
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if let (false, Ok(mut kept)) = (closes, self.kept.lock()) {
            *kept = Some(connection);
        }
    }

    /// A connection for one's own use.
    pub fn connect(&self) -> Result<Connection<ClientStream>> {
        Ok(Connection::over(tls::connect(
            self.address,
            self.identity.as_ref(),
            &[b"http/1.1"],
        )?))
    }

    /// One that speaks HTTP/2.
    pub fn connect_http2(&self) -> Result<ClientStream> {
        tls::connect(self.address, self.identity.as_ref(), &[b"h2"])
    }

    /// Runs a command in a container and waits for its end.
    pub fn execute(&self, namespace: &str, pod: &str, container: &str, command: &[&str]) -> Result<Executed> {
        let path = exec_path(namespace, pod, container, command);
        let mut connection = self.connect()?;
        let response = exec::open(&mut connection, &path)?;
        ensure!(
            response.status == 101,
            "exec in {namespace}/{pod}: {}",
            response.summary()
        );
        exec::collect(&mut connection).with_context(|| format!("exec in {namespace}/{pod}: {command:?}"))
    }
}

pub fn exec_path(namespace: &str, pod: &str, container: &str, command: &[&str]) -> String {
    let words: Vec<String> = command
        .iter()
        .map(|word| format!("&command={}", percent_encoded(word)))
        .collect();
    format!(
        "/api/v1/namespaces/{namespace}/pods/{pod}/exec?container={container}&stdout=true&stderr=true{}",
        words.concat()
    )
}

pub fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn must(method: &str, path: &str, response: Response) -> Result<Value> {
    ensure!(response.is_success(), "{method} {path}: {}", response.summary());
    Ok(response.json())
}
