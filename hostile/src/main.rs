//! Attacks on a running Karve as outsiders carry them out: hostile users, pods, images, nodes and clients.
//!
//! `hostile run` starts a cluster of the binary it is given, in a directory and a network of its own, and tries one attack
//! after the other; each file of `requests`, `images`, `volumes`, `containers`, `net`, `nodes` and `floods` holds some.
//! [`cases`] is the table of them. The same program is in the image of attacking pods, where it is `hostile inside`.
//!
//! A case ends with "blocked" only after it has shown that its attack was tried: it carries out the honest variant too, or
//! finds its traces.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod cases;
mod client;
mod cluster;
mod containers;
#[cfg(test)]
mod document;
mod floods;
mod identity;
mod image;
mod images;
mod inside;
mod net;
mod network;
mod nodes;
mod pods;
mod registry;
mod requests;
mod run;
mod server;
mod signals;
mod verdict;
mod volumes;
mod wire;
mod world;

use std::process::ExitCode;

use clap::Parser;

/// Attacks a cluster of its own and says what came of it.
#[derive(Parser)]
#[command(name = "hostile", max_term_width = 100)]
enum Command {
    /// Carry out attacks, all of them when none is named
    Run(run::RunArgs),
    /// Print the table of attacks
    List(run::ListArgs),
    /// What containers of attackers do
    #[command(hide = true)]
    Inside {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        actions: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Run(args) => run::run(&args),
        Command::List(args) => run::list(&args),
        Command::Inside { actions } => return inside::run(&actions).into(),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
