//! kube-rs, the client of most programs in Rust: it discovers, lists, watches, reflects, writes, applies and execs.

use anyhow::{Context, Result};

use super::World;
use crate::cluster::Karve;
use crate::peers;
use crate::tools::run;

pub fn works(world: &World) -> Result<()> {
    let program = peers::kube_rs()?;
    let cluster = Karve::start(&world.setup())?;
    run(cluster.inside(program).arg(cluster.kubeconfig())).with_context(|| cluster.last_words())
}
