//! The kubelet's server behind TLS.

use std::sync::Arc;

use bytes::Bytes;
use client::Body;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::server::{ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use serving::{
    Activity, AnyError, Connection, ConnectionLimits, Connections, HANDSHAKE_TIMEOUT, HEADER_TIMEOUT, client_id,
    http_server,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::certificate::CertificateError;
use super::upgrade::{self, Opened};
use super::{Refusal, Server, ServingCertificates, certificates};
use crate::auth::{Access, User, bearer};
use crate::options::{ServerOptions, ServingCertificate};

/// Nothing the kubelet is asked has a body of any size.
const MAX_BODY_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("failed to listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    #[error("the serving certificate cannot be used: {0}")]
    Certificate(#[source] CertificateError),
    #[error("the certificate authority of clients cannot be used: {0}")]
    ClientAuthority(#[source] CertificateError),
    #[error("client certificates cannot be verified: {0}")]
    ClientVerifier(#[from] VerifierBuilderError),
    #[error("failed to set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A socket that is ready to serve.
pub struct Listening {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    /// What it shows, for whoever renews it.
    pub certificates: Arc<ServingCertificates>,
}

pub async fn listen(options: &ServerOptions) -> Result<Listening, ServeError> {
    let shown: Arc<ServingCertificates> = Arc::default();
    let resolver: Arc<dyn ResolvesServerCert> = match &options.certificate {
        ServingCertificate::Renewed(resolver) => resolver.clone(),
        ServingCertificate::Given { chain, key } => {
            shown.set_current(chain, key).map_err(ServeError::Certificate)?;
            shown.clone()
        }
        ServingCertificate::Requested { .. } => shown.clone(),
    };
    let tls = Arc::new(tls_config(options, resolver)?);
    let listener = TcpListener::bind(options.address)
        .await
        .map_err(|source| ServeError::Listen {
            address: options.address.to_string(),
            source,
        })?;
    Ok(Listening {
        listener,
        tls,
        certificates: shown,
    })
}

/// Connections at a time. The API server's are many and of one client; strangers have no business here.
const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 4608,
    unidentified: 64,
    unidentified_on_loopback: 64,
    per_client: 4096,
};

/// Serves for as long as it is not dropped.
pub async fn serve(listening: Listening, options: ServerOptions, server: Arc<Server>) {
    let acceptor = TlsAcceptor::from(listening.tls);
    let connections = Connections::new(LIMITS);
    let serve = |stream, place| connection(stream, acceptor.clone(), options.clone(), server.clone(), place);
    match serving::accept(&listening.listener, &connections, serve).await {}
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    options: ServerOptions,
    server: Arc<Server>,
    place: Arc<Connection>,
) -> Result<(), AnyError> {
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let by_certificate = certificate.and_then(user_of);
    let activity = Activity::default();
    let used = activity.clone();
    let service = hyper::service::service_fn(move |request| {
        let (options, server, user) = (options.clone(), server.clone(), by_certificate.clone());
        let (place, busy) = (place.clone(), used.begin());
        async move {
            let response = answer(request, &options, &server, user, place).await;
            Ok::<_, std::convert::Infallible>(busy.until_sent(response))
        }
    });
    serving::serve(&http_server(), stream, service, &activity).await
}

async fn answer(
    request: Request<Incoming>,
    options: &ServerOptions,
    server: &Arc<Server>,
    by_certificate: Option<User>,
    place: Arc<Connection>,
) -> Response<Body> {
    let user = match admit(&request, options, server, by_certificate).await {
        Ok(user) => user,
        Err(refusal) => return refusal.response(),
    };
    if !place.identify(client_id(&user.name)) {
        return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many connections").response();
    }
    let (parts, body) = request.into_parts();
    if parts.headers.contains_key(header::UPGRADE) {
        return switch(Request::from_parts(parts, body), server, place).await;
    }
    let body = tokio::time::timeout(HEADER_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect());
    match body.await {
        Ok(Ok(body)) => server.answer(&Request::from_parts(parts, body.to_bytes())).await,
        Ok(Err(error)) => Refusal::bad_request(error.to_string()).response(),
        Err(_) => Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come").response(),
    }
}

/// Authenticates and authorizes. Returns who asks.
async fn admit(
    request: &Request<Incoming>,
    options: &ServerOptions,
    server: &Server,
    by_certificate: Option<User>,
) -> Result<User, Refusal> {
    let unauthorized = || Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized");
    let user = match (by_certificate, bearer(request.headers()), &options.authenticator) {
        (Some(user), ..) => user,
        (None, Some(token), Some(authenticator)) => {
            let known = authenticator.authenticate(token).await;
            let known = known.map_err(|error| Refusal::internal(error.to_string()))?;
            known.ok_or_else(unauthorized)?
        }
        _ => return Err(unauthorized()),
    };
    let wanted = Access::any_of(request, &server.shared.node_name);
    for access in &wanted {
        let allowed = options.authorizer.authorize(&user, access).await;
        if allowed.map_err(|error| Refusal::internal(error.to_string()))? {
            return Ok(user);
        }
    }
    let subresources: Vec<&str> = wanted.iter().map(|access| access.subresource).collect();
    Err(Refusal::new(
        StatusCode::FORBIDDEN,
        format!(
            "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}])",
            user.name,
            wanted.first().map_or("get", |access| access.verb),
            subresources.join(" ")
        ),
    ))
}

/// Switches protocols: the answer goes out first, then the connection is the stream's.
async fn switch(request: Request<Incoming>, server: &Arc<Server>, place: Arc<Connection>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut head = Request::from_parts(parts.clone(), Bytes::new());
    *head.extensions_mut() = http::Extensions::new();
    match upgrade::open(server, &head).await {
        Ok(opened) => hand_over(opened, Request::from_parts(parts, body), place),
        Err(refusal) => refusal.response(),
    }
}

/// Answers that protocols are switched, and gives the connection to the stream.
pub fn hand_over(opened: Opened, request: Request<Incoming>, place: Arc<Connection>) -> Response<Body> {
    let response = opened.response().map(|()| client::body_from_bytes(Bytes::new()));
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        match upgraded.await {
            Ok(stream) => opened.run(TokioIo::new(stream)).await,
            Err(error) => tracing::debug!(%error, "Failed to upgrade a connection"),
        }
        drop(place);
    });
    response
}

fn tls_config(options: &ServerOptions, shown: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, ServeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(ca).map_err(ServeError::ClientAuthority)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            // A client without a certificate may still have a token.
            let verifier = verifier.allow_unauthenticated().build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A verified certificate's common name is the user, its organizations are the groups.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
    let groups = groups.chain(["system:authenticated"]).map(str::to_owned).collect();
    Some(User {
        name,
        groups,
        ..User::default()
    })
}
