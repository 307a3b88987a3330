//! Certificates that are replaced while the process runs, before they expire.
//!
//! Whoever shows one takes it from a [`Renewed`] for every connection; [`keep`] makes them anew when it is time, when
//! this machine has got another address, and when `karve certs rotate` asks for it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::layout::read;
use crate::pki::Identity;
use crate::tls;

/// The part of its life after which a certificate is replaced, in percent.
const RENEWAL_PERCENT: u64 = 66;
/// How often it is looked whether one is due: clocks are set, machines sleep and addresses change at any time.
const CHECK: Duration = Duration::from_secs(60);

/// Makes a certificate for what is true now.
type Make = Box<dyn Fn() -> Result<Identity> + Send + Sync>;
/// What a certificate was made for; it is made anew when this changes.
type Occasion = Box<dyn Fn() -> String + Send + Sync>;

pub struct Renewed {
    name: &'static str,
    make: Make,
    occasion: Occasion,
    /// Whether making it again gives one that is valid for longer.
    ages: bool,
    current: RwLock<Current>,
}

struct Current {
    identity: Identity,
    certified: Arc<CertifiedKey>,
    made_for: String,
    due: SystemTime,
}

impl Renewed {
    /// A certificate that only time outdates.
    pub fn new(
        name: &'static str,
        make: impl Fn() -> Result<Identity> + Send + Sync + 'static,
    ) -> Result<Arc<Renewed>> {
        Renewed::for_occasion(name, String::new, make)
    }

    /// A certificate that is made anew when `occasion` says something else, too.
    pub fn for_occasion(
        name: &'static str,
        occasion: impl Fn() -> String + Send + Sync + 'static,
        make: impl Fn() -> Result<Identity> + Send + Sync + 'static,
    ) -> Result<Arc<Renewed>> {
        Renewed::build(name, Box::new(occasion), Box::new(make), true)
    }

    /// A certificate that somebody else renews in files.
    pub fn from_files(name: &'static str, certificate: &Path, key: &Path) -> Result<Arc<Renewed>> {
        let paths = (certificate.to_owned(), key.to_owned());
        let again = paths.clone();
        let make = move || {
            Ok(Identity {
                certificate_pem: read(&paths.0)?,
                key_pem: read(&paths.1)?,
            })
        };
        let occasion = move || [&again.0, &again.1].map(|path| read(path).unwrap_or_default()).concat();
        Renewed::build(name, Box::new(occasion), Box::new(make), false)
    }

    fn build(name: &'static str, occasion: Occasion, make: Make, ages: bool) -> Result<Arc<Renewed>> {
        let made_for = occasion();
        let identity = make()?;
        Ok(Arc::new(Renewed {
            name,
            current: RwLock::new(Current::new(identity, made_for)?),
            make,
            occasion,
            ages,
        }))
    }

    /// What is shown now.
    pub fn identity(&self) -> Identity {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.identity.clone()
    }

    fn is_due(&self, now: SystemTime) -> bool {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (self.ages && current.due <= now) || current.made_for != (self.occasion)()
    }

    /// Makes it anew. What was shown before stays until all of that has succeeded.
    fn renew(&self) -> Result<()> {
        let made_for = (self.occasion)();
        let identity = (self.make)()?;
        let current = Current::new(identity, made_for)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(())
    }

    fn certified(&self) -> Arc<CertifiedKey> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.certified.clone()
    }
}

impl Current {
    fn new(identity: Identity, made_for: String) -> Result<Current> {
        let chain = tls::certificates(&identity.certificate_pem)?;
        let due = due(chain.first().context("the file contains no certificate")?)?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, tls::key(&identity.key_pem)?, &provider)?;
        Ok(Current {
            identity,
            certified: Arc::new(certified),
            made_for,
            due,
        })
    }
}

/// When a certificate is to be replaced.
fn due(der: &[u8]) -> Result<SystemTime> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der)
        .ok()
        .context("the file contains an invalid certificate")?;
    let validity = certificate.validity();
    let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
    let (from, to) = (seconds(validity.not_before), seconds(validity.not_after));
    Ok(UNIX_EPOCH + Duration::from_secs(from + to.saturating_sub(from) * RENEWAL_PERCENT / 100))
}

impl fmt::Debug for Renewed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Renewed")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified())
    }
}

impl ResolvesClientCert for Renewed {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Keeps certificates current, for ever. `also` is done with every look, for what is kept in files.
pub async fn keep(all: Vec<Arc<Renewed>>, also: impl Fn() -> Result<()>) {
    let mut asked = hangup();
    loop {
        let is_asked = tokio::select! {
            () = tokio::time::sleep(CHECK) => false,
            () = recv(&mut asked) => true,
        };
        renew_due(&all, UNIX_EPOCH + clock::since_epoch(), is_asked);
        if let Err(error) = also() {
            warn!(
                error = format!("{error:#}"),
                "Failed to renew the administrator's kubeconfig"
            );
        }
    }
}

fn renew_due(all: &[Arc<Renewed>], now: SystemTime, is_asked: bool) {
    for renewed in all {
        if !is_asked && !renewed.is_due(now) {
            continue;
        }
        match renewed.renew() {
            Ok(()) => info!(certificate = renewed.name, "Renewed a certificate"),
            Err(error) => {
                warn!(
                    certificate = renewed.name,
                    error = format!("{error:#}"),
                    "Failed to renew a certificate"
                );
            }
        }
    }
}

/// The signal by which `karve certs rotate` asks.
pub fn hangup() -> Option<Signal> {
    signal(SignalKind::hangup()).ok()
}

pub async fn recv(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustls::pki_types::ServerName;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::pki;
    use crate::tls::Clients;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn counted() -> (Arc<AtomicUsize>, Arc<Renewed>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let renewed = Renewed::new("test", move || {
            counter.fetch_add(1, Ordering::Relaxed);
            pki::self_signed("test", &["localhost"])
        });
        (made, renewed.unwrap())
    }

    #[test]
    fn a_certificate_is_made_anew_long_before_it_expires_and_for_years() {
        let (made, renewed) = counted();
        let start = SystemTime::now();
        renew_due(std::slice::from_ref(&renewed), start + 200 * DAY, false);
        assert_eq!(made.load(Ordering::Relaxed), 1, "it is good for months");
        // By a clock that was moved the new one, of the real date, is due again at once.
        for year in 1..=10 {
            renew_due(std::slice::from_ref(&renewed), start + year * 365 * DAY, false);
        }
        assert_eq!(made.load(Ordering::Relaxed), 11);
        renew_due(std::slice::from_ref(&renewed), start, true);
        assert_eq!(made.load(Ordering::Relaxed), 12, "somebody asked");
    }

    #[test]
    fn a_certificate_is_made_anew_for_another_address_and_a_failure_changes_nothing() {
        let address = Arc::new(Mutex::new("10.0.0.1".to_owned()));
        let (now, asked) = (address.clone(), address.clone());
        let renewed = Renewed::for_occasion(
            "test",
            move || now.lock().unwrap().clone(),
            move || match asked.lock().unwrap().as_str() {
                "" => anyhow::bail!("there is no address"),
                address => pki::self_signed("test", &[address]),
            },
        )
        .unwrap();
        let shown = || renewed.certified().cert[0].clone();
        let first = shown();
        renew_due(std::slice::from_ref(&renewed), SystemTime::now(), false);
        assert_eq!(shown(), first);
        *address.lock().unwrap() = String::new();
        renew_due(std::slice::from_ref(&renewed), SystemTime::now(), false);
        assert_eq!(shown(), first, "it could not be made");
        *address.lock().unwrap() = "10.0.0.2".to_owned();
        renew_due(std::slice::from_ref(&renewed), SystemTime::now(), false);
        assert_ne!(shown(), first);
    }

    #[test]
    fn files_are_read_anew_when_they_change_and_are_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("crt"), directory.path().join("key"));
        let write = |identity: &Identity| {
            std::fs::write(&certificate, &identity.certificate_pem).unwrap();
            std::fs::write(&key, &identity.key_pem).unwrap();
        };
        write(&pki::self_signed("one", &["a"]).unwrap());
        let renewed = Renewed::from_files("test", &certificate, &key).unwrap();
        let first = renewed.certified().cert.clone();
        let look = |after: Duration| {
            renew_due(std::slice::from_ref(&renewed), SystemTime::now() + after, false);
            renewed.certified().cert.clone()
        };
        assert_eq!(look(1000 * DAY), first, "time alone changes nothing");
        let other = pki::self_signed("two", &["a"]).unwrap();
        std::fs::write(&certificate, &other.certificate_pem).unwrap();
        assert_eq!(look(Duration::ZERO), first, "the key is still the old one's");
        write(&other);
        assert_ne!(look(Duration::ZERO), first);
    }

    /// Connections show what is current when they are opened, on both sides.
    #[tokio::test]
    async fn a_server_shows_the_new_certificate_without_a_restart() {
        let (_, renewed) = counted();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let identity = pki::self_signed("old", &["localhost"]).unwrap();
        let mut config = tls::server(&identity, &Clients::Unknown).unwrap();
        config.cert_resolver = renewed.clone();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ended = acceptor.accept(stream).await;
            }
        });
        let shown = async || {
            let stream = TcpStream::connect(address).await.unwrap();
            let connector = TlsConnector::from(tls::client(None, None).unwrap());
            let name = ServerName::try_from("localhost").unwrap();
            let stream = connector.connect(name, stream).await.unwrap();
            stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
        };
        let first = shown().await;
        assert_eq!(shown().await, first);
        renewed.renew().unwrap();
        assert_ne!(shown().await, first);
        serving.abort();
    }
}
