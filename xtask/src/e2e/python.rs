//! The Python client, a client that nobody here wrote: it lists, watches, creates, patches, applies, deletes and execs.

use anyhow::{Context, Result};

use super::World;
use crate::cluster::Karve;
use crate::peers;
use crate::tools::{root, run};

pub fn works(world: &World) -> Result<()> {
    let python = peers::python()?;
    let cluster = Karve::start(&world.setup())?;
    let mut command = cluster.inside(python);
    command
        .arg(root().join("interop/python/client.py"))
        .arg(cluster.kubeconfig())
        // Compiled files of it have no place in the repository.
        .env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut command).with_context(|| cluster.last_words())
}
