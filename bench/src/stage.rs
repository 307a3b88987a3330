//! How a load and the one who started it keep step: the load prints what a stage gave and waits for a line.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// Numbers of one stage.
#[derive(Default)]
pub struct Stage(Map<String, Value>);

impl Stage {
    pub fn with(mut self, name: &str, value: impl Into<f64>) -> Self {
        self.0.insert(name.to_owned(), Value::from(value.into()));
        self
    }

    /// Prints it and blocks until told to go on, so that the server is at rest while it is looked at.
    pub fn report(self) -> Result<()> {
        self.print()?;
        let mut line = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut line)
            .context("cannot read standard input")?;
        Ok(())
    }

    /// Prints it while the load goes on, and returns when told to go on.
    pub async fn report_running(self) -> Result<()> {
        self.print()?;
        tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map(drop)
        })
        .await?
        .context("cannot read standard input")
    }

    fn print(self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &Value::Object(self.0))?;
        out.write_all(b"\n")?;
        out.flush().context("cannot print")
    }
}

/// What can be said before anything was measured.
pub fn ready() -> Result<()> {
    Stage::default().report()
}
