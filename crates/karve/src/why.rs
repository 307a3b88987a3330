//! `karve why`: the question, its kubeconfig and how the answer is written.

use std::path::PathBuf;

use anyhow::{Context, Result};
use client::{Client, Config};

use crate::layout::Layout;
use crate::say;

#[derive(clap::Args)]
pub struct WhyArgs {
    /// Object to explain, such as pod/web-0 [default: report all problems in the cluster]
    #[arg(value_name = "KIND/NAME")]
    target: Option<String>,
    /// Namespace of the object [default: the kubeconfig's, or `default`; all namespaces without KIND/NAME]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Report problems in all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["namespace", "target"])]
    all_namespaces: bool,
    /// Kubeconfig of the API server [default: the cluster's own]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Output format: `json`
    #[arg(long, short, value_parser = ["json"])]
    output: Option<String>,
}

/// Prints the report.
pub async fn run(layout: &Layout, args: &WhyArgs) -> Result<()> {
    let path = args.kubeconfig.clone().unwrap_or_else(|| layout.kubeconfig());
    let config = Config::from_kubeconfig(&path, None).with_context(|| format!("failed to load {}", path.display()))?;
    let namespace = match (&args.namespace, &args.target) {
        (Some(namespace), _) => namespace.clone(),
        (None, None) => String::new(),
        (None, Some(_)) if config.namespace.is_empty() => "default".to_owned(),
        (None, Some(_)) => config.namespace.clone(),
    };
    let client = Client::connect(config)?;
    let scope = cli::why::Scope::parse(args.target.as_deref().unwrap_or_default(), &namespace)?;
    let facts = cli::why::read(&client, &scope).await?;
    let answer = cli::why::explain(&facts, &scope)?;
    match args.output {
        Some(_) => say::result(serde_json::to_string_pretty(&cli::why::render_json(&answer))?)?,
        None => say::result(cli::why::render(&answer).trim_end_matches('\n'))?,
    }
    Ok(())
}
