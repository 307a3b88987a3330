//! A server on loopback that says whatever a test wants it to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What is answered to a path with a body. `None` answers never.
pub type Answer = Box<dyn Fn(&str, &[u8]) -> Option<Response<Full<Bytes>>> + Send>;

pub struct Scripted {
    pub url: String,
    /// The authority of its certificate, PEM.
    pub authority: String,
    answer: Arc<Mutex<Answer>>,
    calls: Arc<AtomicUsize>,
}

impl Scripted {
    /// A server that answers nothing but 404 until it is told to.
    pub async fn start() -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let (authority, tls) = identity();
        let acceptor = TlsAcceptor::from(tls);
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Box::new(|_, _| Some(reply(404, "no")))));
        let calls = Arc::new(AtomicUsize::new(0));
        let (answers, counted) = (answer.clone(), calls.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answers, counted) = (acceptor.clone(), answers.clone(), counted.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (answers, counted) = (answers.clone(), counted.clone());
                        async move {
                            counted.fetch_add(1, Ordering::SeqCst);
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await?.to_bytes();
                            let answer = answers.lock()(&path, &body);
                            match answer {
                                Some(answer) => Ok::<_, hyper::Error>(answer),
                                None => std::future::pending().await,
                            }
                        }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ended = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Scripted {
            url,
            authority,
            answer,
            calls,
        }
    }

    pub fn answer(&self, answer: impl Fn(&str, &[u8]) -> Option<Response<Full<Bytes>>> + Send + 'static) {
        *self.answer.lock() = Box::new(answer);
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// A kubeconfig that names a path of this server.
    pub fn kubeconfig(&self, directory: &std::path::Path, path: &str) -> std::path::PathBuf {
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.authority);
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: hook\n\
             clusters: [{{name: hook, cluster: {{server: \"{}{path}\", certificate-authority-data: {authority}}}}}]\n\
             contexts: [{{name: hook, context: {{cluster: hook, user: hook}}}}]\n\
             users: [{{name: hook, user: {{}}}}]\n",
            self.url
        );
        let file = directory.join("hook.kubeconfig");
        std::fs::write(&file, text).expect("a file");
        file
    }
}

pub fn reply(code: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
    response
}

fn identity() -> (String, Arc<ServerConfig>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("names");
    let leaf = params.signed_by(&key, &issuer).expect("a certificate");
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)
        .expect("a configuration");
    (authority.pem(), Arc::new(tls))
}
