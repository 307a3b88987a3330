//! `karve image`: the images of this machine's node.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::control::{self, ImageRow};
use crate::layout::Layout;
use crate::run_file::RunFile;
use crate::say;

#[derive(Subcommand, Clone, Debug)]
pub enum ImageCommand {
    /// List the images that are stored on the node
    ///
    /// Example: karve image ls -o name
    Ls {
        /// `name` for one name a line, `json` for machines
        #[arg(long, short, value_parser = ["name", "json"])]
        output: Option<String>,
    },
    /// Import the images of an archive made by `docker save` or in OCI layout
    ///
    /// Example: karve image import web.tar
    Import {
        /// The archives
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
}

pub async fn run(layout: &Layout, command: &ImageCommand) -> Result<()> {
    let state_dir = RunFile::read(layout)?.and_then(|run| run.node).map_or_else(
        || std::path::Path::new("/run/karve").join(&layout.name),
        |node| node.state_dir,
    );
    match command {
        ImageCommand::Ls { output } => {
            // Without a node there is still what every node begins with.
            let rows = control::list(&state_dir).await?.unwrap_or_else(builtin);
            print(&rows, output.as_deref())
        }
        ImageCommand::Import { archives } => {
            for archive in archives {
                for name in control::import_file(&state_dir, archive).await? {
                    say::result(name)?;
                }
            }
            Ok(())
        }
    }
}

fn builtin() -> Vec<ImageRow> {
    vec![ImageRow {
        names: vec![runtime::BUILTIN_IMAGE.to_owned()],
        id: String::new(),
        size: 0,
    }]
}

fn print(rows: &[ImageRow], output: Option<&str>) -> Result<()> {
    match output {
        Some("json") => say::result(serde_json::to_string_pretty(rows)?)?,
        Some(_) => rows.iter().flat_map(|row| &row.names).try_for_each(say::result)?,
        None => {
            say::result(format_args!("{:<64} {:<20} {:>10}", "NAME", "ID", "SIZE"))?;
            for row in rows {
                let id = row
                    .id
                    .trim_start_matches("sha256:")
                    .chars()
                    .take(16)
                    .collect::<String>();
                for name in &row.names {
                    say::result(format_args!("{name:<64} {id:<20} {:>7.1} MB", row.size as f64 / 1e6))?;
                }
            }
        }
    }
    Ok(())
}
