//! Streams at URLs: what stands beside a runtime's CRI socket, so that another kubelet can exec, attach and forward ports.
//!
//! A URL is good for one connection and a short time. Who does not know its token gets nothing; it listens on loopback
//! only, since the kubelet that passes clients on is on the same machine.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::Body;
use cri::{Error, Runtime, StreamUrls, v1};
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serving::{Activity, AnyError, Connection, ConnectionLimits, Connections, http_server};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::exec::Options;
use super::upgrade::{self, Offer};
use super::{Refusal, serve};

/// All connections come from this machine.
const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 4608,
    unidentified: 512,
    unidentified_on_loopback: 512,
    per_client: 4096,
};
/// URLs that were given out and not used yet.
const MAX_OFFERS: usize = 1000;
/// How long a URL is good.
const OFFER_LIFE: Duration = Duration::from_secs(60);
const TOKEN_BYTES: usize = 16;

/// Answers at the URLs that it gave out.
pub struct StreamServer {
    runtime: Arc<dyn Runtime>,
    listener: TcpListener,
    port: u16,
    offers: Mutex<HashMap<String, (Instant, Offer)>>,
}

impl StreamServer {
    pub async fn bind(runtime: Arc<dyn Runtime>) -> std::io::Result<Arc<StreamServer>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Arc::new(StreamServer {
            runtime,
            port: listener.local_addr()?.port(),
            listener,
            offers: Mutex::default(),
        }))
    }

    /// Serves for as long as it is not dropped.
    pub async fn serve(self: Arc<Self>) {
        let connections = Connections::new(LIMITS);
        let serve = |stream, place| self.clone().connection(stream, place);
        match serving::accept(&self.listener, &connections, serve).await {}
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, place: Arc<Connection>) -> Result<(), AnyError> {
        let activity = Activity::default();
        let used = activity.clone();
        let service = hyper::service::service_fn(move |request| {
            let (server, place, busy) = (self.clone(), place.clone(), used.begin());
            async move {
                let response = server.answer(request, place).await;
                Ok::<_, std::convert::Infallible>(busy.until_sent(response))
            }
        });
        serving::serve(&http_server().http1_only(), stream, service, &activity).await
    }

    async fn answer(&self, request: Request<Incoming>, place: Arc<Connection>) -> Response<Body> {
        if !request.headers().contains_key(header::UPGRADE) {
            return Refusal::bad_request("Upgrade request required").response();
        }
        let Some(offer) = self.take(request.uri().path()) else {
            return Refusal::not_found("404 page not found").response();
        };
        // All who know a URL are the kubelet.
        if !place.identify(0) {
            return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many connections").response();
        }
        match upgrade::open_offer(&self.runtime, offer, request.headers()).await {
            Ok(opened) => serve::hand_over(opened, request, place),
            Err(refusal) => refusal.response(),
        }
    }

    fn offer(&self, verb: &str, offer: Offer) -> cri::Result<String> {
        let token = token()?;
        let mut offers = self.offers.lock();
        offers.retain(|_, (since, _)| since.elapsed() < OFFER_LIFE);
        if offers.len() >= MAX_OFFERS {
            let message = "maximum number of in-flight requests exceeded";
            return Err(Error::new(cri::Code::ResourceExhausted, message));
        }
        let path = format!("/{verb}/{token}");
        let url = format!("http://{}:{}{path}", Ipv4Addr::LOCALHOST, self.port);
        offers.insert(path, (Instant::now(), offer));
        Ok(url)
    }

    fn take(&self, path: &str) -> Option<Offer> {
        let (since, offer) = self.offers.lock().remove(path)?;
        (since.elapsed() < OFFER_LIFE).then_some(offer)
    }

    async fn command(&self, verb: &str, container_id: String, options: Options) -> cri::Result<String> {
        if !options.stdin && !options.stdout && !options.stderr {
            return Err(Error::invalid("one of stdin, stdout, or stderr must be set"));
        }
        let request = v1::ContainerStatusRequest {
            container_id,
            verbose: false,
        };
        let status = self.runtime.container_status(request).await?.status.unwrap_or_default();
        if status.state() != v1::ContainerState::ContainerRunning {
            return Err(Error::precondition(format!("container {:?} is not running", status.id)));
        }
        let container_id = status.id;
        self.offer(verb, Offer::Command { container_id, options })
    }
}

#[async_trait]
impl StreamUrls for StreamServer {
    async fn exec(&self, request: v1::ExecRequest) -> cri::Result<v1::ExecResponse> {
        if request.cmd.is_empty() {
            return Err(Error::invalid("a command must be given"));
        }
        let options = Options::of_exec(&request);
        let url = self.command("exec", request.container_id, options).await?;
        Ok(v1::ExecResponse { url })
    }

    async fn attach(&self, request: v1::AttachRequest) -> cri::Result<v1::AttachResponse> {
        let options = Options::of_attach(&request);
        let url = self.command("attach", request.container_id, options).await?;
        Ok(v1::AttachResponse { url })
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> cri::Result<v1::PortForwardResponse> {
        let ports = request.port.iter().map(|port| {
            let fitting = u16::try_from(*port).ok().filter(|port| *port > 0);
            fitting.ok_or_else(|| Error::invalid(format!("{port} is not a port")))
        });
        let ports = ports.collect::<cri::Result<Vec<u16>>>()?;
        let asked = v1::PodSandboxStatusRequest {
            pod_sandbox_id: request.pod_sandbox_id,
            verbose: false,
        };
        let status = self.runtime.pod_sandbox_status(asked).await?.status.unwrap_or_default();
        if status.state() != v1::PodSandboxState::SandboxReady {
            return Err(Error::precondition(format!("sandbox {:?} is not ready", status.id)));
        }
        let sandbox = status.id;
        let url = self.offer("portforward", Offer::Ports { sandbox, ports })?;
        Ok(v1::PortForwardResponse { url })
    }
}

fn token() -> cri::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| Error::internal("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every container runs, every sandbox is ready, and what runs in them says one word.
    struct Fake;

    #[async_trait]
    impl Runtime for Fake {
        async fn container_status(
            &self,
            request: v1::ContainerStatusRequest,
        ) -> cri::Result<v1::ContainerStatusResponse> {
            let state = match request.container_id.as_str() {
                "ended" => v1::ContainerState::ContainerExited,
                _ => v1::ContainerState::ContainerRunning,
            };
            let status = v1::ContainerStatus {
                id: request.container_id,
                state: state.into(),
                ..v1::ContainerStatus::default()
            };
            Ok(v1::ContainerStatusResponse {
                status: Some(status),
                ..v1::ContainerStatusResponse::default()
            })
        }

        async fn open_exec(&self, request: v1::ExecRequest) -> cri::Result<cri::StreamTarget> {
            let said = request.cmd.join(" ").into_bytes();
            Ok(cri::StreamTarget::Native(cri::Streams {
                stdin: None,
                stdout: Some(Box::new(std::io::Cursor::new(said))),
                stderr: None,
                resize: tokio::sync::mpsc::channel(1).0,
                exit: Box::pin(async { Ok(cri::ExecStatus { exit_code: 3 }) }),
            }))
        }
    }

    fn exec(container: &str) -> v1::ExecRequest {
        v1::ExecRequest {
            container_id: container.to_owned(),
            cmd: vec!["hello".to_owned()],
            stdout: true,
            ..v1::ExecRequest::default()
        }
    }

    #[tokio::test]
    async fn a_command_runs_once_at_its_url() {
        use tokio::io::AsyncReadExt;
        let server = StreamServer::bind(Arc::new(Fake)).await.unwrap();
        tokio::spawn(server.clone().serve());
        let url = server.exec(exec("web")).await.unwrap().url;
        let options = Options::of_exec(&exec("web"));
        let mut streams = super::super::remote::command(&url, &options).await.unwrap();
        let mut said = String::new();
        streams.stdout.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");
        assert_eq!(streams.exit.await.unwrap().exit_code, 3);
        let again = super::super::remote::command(&url, &options).await;
        assert!(again.is_err_and(|error| error.to_string().contains("404")));
    }

    #[tokio::test]
    async fn containers_that_do_not_run_are_refused() {
        let server = StreamServer::bind(Arc::new(Fake)).await.unwrap();
        let refused = server.exec(exec("ended")).await.unwrap_err();
        assert_eq!(refused.code, cri::Code::FailedPrecondition);
        let mut deaf = exec("web");
        deaf.stdout = false;
        assert_eq!(server.exec(deaf).await.unwrap_err().code, cri::Code::InvalidArgument);
    }

    #[tokio::test]
    async fn unused_urls_are_bounded() {
        let server = StreamServer::bind(Arc::new(Fake)).await.unwrap();
        for _ in 0..MAX_OFFERS {
            server.exec(exec("web")).await.unwrap();
        }
        let refused = server.exec(exec("web")).await.unwrap_err();
        assert_eq!(refused.code, cri::Code::ResourceExhausted);
    }
}
