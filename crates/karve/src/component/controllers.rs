//! `karve kube-controller-manager`: the controllers alone, against any API server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use auth::authenticate::SigningKey;
use clap::Args;
use client::{Client, Config, QueueMetrics, ServiceAccounts};
use controllers::{Accounts, ControllersOptions, Settings, SigningAuthority, TokenSigner};

use super::serving::{self, ServingArgs};
use super::{LeaderElectionArgs, host_name, lead, marks};
use crate::layout::read;

const NAME: &str = "kube-controller-manager";
/// Where upstream serves.
const PORT: u16 = 10257;
/// Where the controllers' service accounts are.
pub const ACCOUNTS_NAMESPACE: &str = "kube-system";

/// Upstream's flags of kube-controller-manager, as far as they are supported.
#[derive(Args, Clone, Debug)]
pub struct ControllersArgs {
    /// Kubeconfig of the API server
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Controllers to run: `*` for all, NAME to enable, `-NAME` to disable one
    #[arg(long, value_delimiter = ',', default_value = "*")]
    controllers: Vec<String>,
    /// CA certificate that is published as kube-root-ca.crt in every namespace, PEM [default: the kubeconfig's CA]
    #[arg(long)]
    root_ca_file: Option<PathBuf>,
    /// CA certificate that signs approved CertificateSigningRequests, PEM
    #[arg(long, requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Private key of --cluster-signing-cert-file, PEM
    #[arg(long, requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// Private key that signs the tokens of service account Secrets, PEM; without it, these Secrets get no token
    #[arg(long)]
    service_account_private_key_file: Option<PathBuf>,
    /// Assign a block of --cluster-cidr to every node
    #[arg(long, requires = "cluster_cidr")]
    allocate_node_cidrs: bool,
    /// CIDR range of all pods
    #[arg(long, value_delimiter = ',')]
    cluster_cidr: Vec<String>,
    /// Run each controller with the credentials of its own service account
    #[arg(long)]
    use_service_account_credentials: bool,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    election: LeaderElectionArgs,
}

pub async fn run(default_kubeconfig: PathBuf, args: ControllersArgs) -> Result<()> {
    let path = args.kubeconfig.unwrap_or(default_kubeconfig);
    let config = Config::from_kubeconfig(&path, None).with_context(|| format!("failed to load {}", path.display()))?;
    let root_ca = match &args.root_ca_file {
        Some(path) => Some(read(path)?),
        None => super::authority_of(&config)?,
    };
    let signing = match (&args.cluster_signing_cert_file, &args.cluster_signing_key_file) {
        (Some(certificate), Some(key)) => Some(SigningAuthority {
            certificate_pem: read(certificate)?,
            key_pem: read(key)?,
        }),
        _ => None,
    };
    let key_file = args.service_account_private_key_file.as_ref();
    let token_signer = key_file.map(|path| token_signer(&read(path)?)).transpose()?;
    let client = Client::connect(config.clone())?;
    let accounts: Option<Accounts> = match args.use_service_account_credentials {
        true => {
            let accounts = ServiceAccounts::connect(&config, client.named(NAME), ACCOUNTS_NAMESPACE)?;
            Some(Arc::new(move |name| accounts.transport(name)))
        }
        false => None,
    };
    let disabled = disabled(&args.controllers)?;
    let settings = Settings {
        root_ca,
        signing,
        token_signer,
        cluster_cidrs: if args.allocate_node_cidrs {
            args.cluster_cidr
        } else {
            Vec::new()
        },
        ..Settings::default()
    };
    let queues: Arc<QueueMetrics> = Arc::default();
    let _serving = serving::serve(NAME, &args.serving, PORT, &client, queues.clone()).await?;
    let _telling = marks::tell(&client);
    lead(&client, NAME, &args.election, move |client| {
        controllers::run(ControllersOptions {
            disabled: disabled.clone(),
            ..options(client, accounts.clone(), settings.clone(), queues.clone())
        })
    })
    .await;
    Ok(())
}

/// What signs the tokens in Secrets of service accounts, from the PEM text of a key.
pub fn token_signer(pem: &str) -> Result<TokenSigner> {
    let key = SigningKey::from_pem(pem).context("invalid key for service account tokens")?;
    let accounts = auth::authenticate::ServiceAccounts::new(Vec::new(), Vec::new(), Some(key), Vec::new());
    Ok(TokenSigner::new(Arc::new(accounts)))
}

pub fn options(
    client: Client,
    accounts: Option<Accounts>,
    settings: Settings,
    queues: Arc<QueueMetrics>,
) -> ControllersOptions {
    ControllersOptions {
        client,
        accounts,
        host: host_name(),
        settings,
        disabled: Vec::new(),
        queues,
    }
}

/// The rows that are not to run.
fn disabled(wanted: &[String]) -> Result<Vec<String>> {
    let names: Vec<&str> = controllers::table().iter().map(|row| row.name).collect();
    for entry in wanted.iter().filter(|entry| *entry != "*") {
        let name = entry.trim_start_matches('-');
        anyhow::ensure!(
            names.contains(&name),
            "--controllers {name}: unknown controller; available: {}",
            names.join(", ")
        );
    }
    let all = wanted.iter().any(|entry| entry == "*");
    let runs = |name: &str| match all {
        true => !wanted.iter().any(|entry| entry.strip_prefix('-') == Some(name)),
        false => wanted.iter().any(|entry| entry == name),
    };
    Ok(names
        .into_iter()
        .filter(|name| !runs(name))
        .map(str::to_owned)
        .collect())
}
