//! `karve certs`: which certificates this machine has and until when, and new ones on request.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use client::when::Moment;
use client::{Config, Source};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::layout::Layout;
use crate::run_file::RunFile;
use crate::{component, say, tls};

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CertsArgs {
    #[command(subcommand)]
    command: Option<CertsCommand>,
    /// Output format: `json`
    #[arg(long, short, value_parser = ["json"])]
    output: Option<String>,
}

#[derive(Subcommand, Clone, Debug)]
enum CertsCommand {
    /// Make the running process issue all its certificates again; connections stay open, the CAs do not change
    ///
    /// Example: karve certs rotate
    Rotate,
}

/// A certificate that was found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    name: String,
    subject: String,
    issuer: String,
    serial: String,
    expires: Moment,
    is_authority: bool,
}

pub async fn run(layout: &Layout, args: &CertsArgs) -> Result<()> {
    match &args.command {
        Some(CertsCommand::Rotate) => rotate(layout).await,
        None => show(&all(layout).await, args.output.is_some()),
    }
}

fn show(found: &[Found], as_json: bool) -> Result<()> {
    if as_json {
        let rows: Vec<Value> = found.iter().map(Found::json).collect();
        say::result(format_args!("{:#}", json!(rows)))?;
        return Ok(());
    }
    say::result(format_args!(
        "{:<28}{:<34}{:<24}{:<10}ISSUER",
        "CERTIFICATE", "SUBJECT", "EXPIRES", "LEFT"
    ))?;
    for certificate in found {
        let left = left(certificate.expires, Moment::now());
        say::result(format_args!(
            "{:<28}{:<34}{:<24}{left:<10}{}",
            certificate.name,
            certificate.subject,
            certificate.expires.to_time(),
            certificate.issuer
        ))?;
    }
    Ok(())
}

fn left(expires: Moment, now: Moment) -> String {
    match expires.since(now).as_secs() {
        0 => "expired".to_owned(),
        seconds if seconds < 2 * 86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Everything on the disk, and what the running servers show.
async fn all(layout: &Layout) -> Vec<Found> {
    let mut found = Vec::new();
    for (name, file) in [
        ("ca", "ca.crt"),
        ("front-proxy-ca", "front-proxy-ca.crt"),
        ("etcd-ca", "etcd-ca.crt"),
        ("etcd-client", "etcd-client.crt"),
        ("kubelet-client", "kubelet-client-current.pem"),
        ("kubelet-server", "kubelet-server-current.pem"),
    ] {
        found.extend(in_file(name, &layout.pki().join(file)));
    }
    found.extend(in_kubeconfig("kubeconfig", &layout.kubeconfig()));
    found.extend(shown_by_servers(layout).await);
    found
}

fn in_file(name: &str, path: &Path) -> Option<Found> {
    let pem = std::fs::read_to_string(path).ok()?;
    let der = tls::certificates(&pem).ok()?.into_iter().next()?;
    Found::parse(name, &der)
}

fn in_kubeconfig(name: &str, path: &Path) -> Option<Found> {
    let (certificate, _) = Config::from_kubeconfig(path, None).ok()?.client_certificate?;
    match certificate {
        Source::Data(pem) => {
            let der = tls::certificates(std::str::from_utf8(&pem).ok()?).ok()?;
            Found::parse(name, der.first()?)
        }
        // It is listed as the file that it is.
        Source::File(_) => None,
    }
}

async fn shown_by_servers(layout: &Layout) -> Vec<Found> {
    let run = RunFile::read(layout).ok().flatten().filter(RunFile::is_running);
    let Some(run) = run else { return Vec::new() };
    let mut found = Vec::new();
    if run.join.is_some()
        && let Some(address) = component::server_address(&run.url)
    {
        found.extend(shown_at("kube-apiserver (shown)", address).await);
    }
    found
}

async fn shown_at(name: &str, address: SocketAddr) -> Option<Found> {
    let der = client::shown_certificate(address, "kubernetes").await.ok()?;
    Found::parse(name, &der)
}

/// Asks the running process, and waits until what it shows is new.
async fn rotate(layout: &Layout) -> Result<()> {
    let run = RunFile::read(layout)?.filter(RunFile::is_running);
    let run = run.with_context(|| {
        format!(
            "cluster {} is not running on this machine; its certificates are renewed when it starts",
            layout.name
        )
    })?;
    let before = rotating(layout).await;
    ensure!(
        !before.is_empty(),
        "nothing to rotate: the certificates were passed as files or in a token file"
    );
    let pid = i32::try_from(run.pid).ok().and_then(Pid::from_raw);
    let pid = pid.with_context(|| format!("{} is not a process", run.pid))?;
    kill_process(pid, Signal::HUP).with_context(|| format!("failed to send the request to process {}", run.pid))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = rotating(layout).await;
        if !now.is_empty() && before.iter().all(|old| !now.iter().any(|new| new.serial == old.serial)) {
            return show(&now, false);
        }
        ensure!(
            Instant::now() < deadline,
            "the certificates were not rotated within {} s; see {}",
            PATIENCE.as_secs(),
            layout.log_file().display()
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Those that the running process makes anew.
async fn rotating(layout: &Layout) -> Vec<Found> {
    let mut found = shown_by_servers(layout).await;
    found.extend(in_file(
        "kubelet-client",
        &layout.pki().join("kubelet-client-current.pem"),
    ));
    found
}

impl Found {
    fn parse(name: &str, der: &[u8]) -> Option<Found> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let common_name = |name: &x509_parser::x509::X509Name<'_>| {
            let found = name.iter_common_name().next().and_then(|name| name.as_str().ok());
            found.unwrap_or_default().to_owned()
        };
        Some(Found {
            name: name.to_owned(),
            subject: common_name(certificate.subject()),
            issuer: common_name(certificate.issuer()),
            serial: certificate.raw_serial_as_string(),
            expires: Moment::from_seconds(certificate.validity().not_after.timestamp()),
            is_authority: certificate.is_ca(),
        })
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "subject": self.subject, "issuer": self.issuer, "serial": self.serial,
            "expires": self.expires.to_time(), "authority": self.is_authority,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig;
    use crate::pki::Authority;

    #[tokio::test]
    async fn what_is_on_the_disk_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "test".to_owned(),
            root: directory.path().to_owned(),
        };
        assert!(all(&layout).await.is_empty());
        layout.create().unwrap();
        let authority = Authority::open(&layout).unwrap();
        let admin = authority.client("kubernetes-admin", &["system:masters"]).unwrap();
        let text = kubeconfig::render(
            "test",
            "https://127.0.0.1:1",
            &authority.certificate_pem,
            "admin",
            &admin,
        );
        std::fs::write(layout.kubeconfig(), text).unwrap();
        std::fs::write(layout.pki().join("kubelet-client-current.pem"), "nonsense").unwrap();
        let found = all(&layout).await;
        let told: Vec<(&str, &str, &str, bool)> = found
            .iter()
            .map(|found| {
                (
                    found.name.as_str(),
                    found.subject.as_str(),
                    found.issuer.as_str(),
                    found.is_authority,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("ca", "kubernetes", "kubernetes", true),
                ("kubeconfig", "kubernetes-admin", "kubernetes", false)
            ]
        );
        assert!(!found[1].json().to_string().contains("PRIVATE"));
    }

    #[test]
    fn how_long_is_left_is_told_plainly() {
        let now = Moment::from_seconds(1_000_000);
        let left = |seconds: i64| left(Moment::from_seconds(1_000_000 + seconds), now);
        assert_eq!([left(-5), left(7200), left(10 * 86_400)], ["expired", "2h", "10d"]);
    }

    #[tokio::test]
    async fn nothing_is_asked_where_nothing_runs() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "test".to_owned(),
            root: directory.path().to_owned(),
        };
        let error = rotate(&layout).await.unwrap_err().to_string();
        assert!(error.contains("cluster test is not running on this machine"), "{error}");
    }
}
