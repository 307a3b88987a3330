//! `karve up`: the whole cluster in this process.

use anyhow::Result;
use auth::User;
use clap::Args;
use client::Client;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinHandle;

use crate::component::apiserver::{self, ApiServerArgs, Running};
use crate::component::{controllers, scheduler};
use crate::layout::Layout;
use crate::stop;
use crate::supervise::supervise;

/// Flags of `karve up`.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    #[command(flatten)]
    pub server: ApiServerArgs,
}

pub async fn run(layout: Layout, args: UpArgs) -> Result<()> {
    let begun = Instant::now();
    let running = apiserver::start(&layout, &args.server).await?;
    let server = running.server.clone();
    let stop = stop::on_signal();
    let components = start_control_plane(&running);
    eprintln!(
        "serving {} after {} ms; try: kubectl --kubeconfig {} get all -A",
        running.url,
        begun.elapsed().as_millis(),
        layout.kubeconfig().display()
    );
    ::apiserver::serve(server.clone(), running.listener, running.tls, stop).await?;
    components.iter().for_each(JoinHandle::abort);
    server.stop().await;
    Ok(())
}

fn start_control_plane(running: &Running) -> Vec<JoinHandle<()>> {
    let root_ca = running.authority.certificate_pem.clone();
    let client = in_process(running, "system:kube-controller-manager", &["system:masters"]);
    let controllers = supervise("controllers", move || {
        let options = controllers::options(client.clone(), Some(root_ca.clone()), Vec::new());
        async move {
            ::controllers::run(options).await;
            Ok(())
        }
    });
    let client = in_process(running, "system:kube-scheduler", &[]);
    let scheduler = supervise("scheduler", move || {
        let options = scheduler::options(client.clone());
        async move {
            ::scheduler::run(options).await;
            Ok(())
        }
    });
    vec![controllers, scheduler]
}

/// A client of a component in this process, with that component's own rights.
fn in_process(running: &Running, user: &str, groups: &[&str]) -> Client {
    let user = User::system(user, groups);
    Client::new(Arc::new(::apiserver::InProcess::new(running.server.clone(), user)))
}
