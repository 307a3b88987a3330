//! What the built-in image can do: the binary inside a container.

use std::io;

use anyhow::{Context, Result};
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::say;

/// Requests larger than this are not read further.
const MAX_REQUEST: usize = 8 * 1024;

/// A small HTTP server, to have something that answers.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The port to listen on
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

/// Sleeps until a signal ends it.
pub fn pause() -> Result<()> {
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    waiting.block_on(async {
        let mut stop = crate::stop::on_signal();
        let _ = stop.wait_for(|stop| *stop).await;
    });
    Ok(())
}

/// Answers every request with this container's name, until a signal ends it.
pub async fn serve(args: ServeArgs) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", args.port))
        .await
        .with_context(|| format!("failed to listen on port {}", args.port))?;
    let name = crate::component::host_name();
    say::result(format_args!("{name} is listening on port {}", args.port))?;
    let mut stop = crate::stop::on_signal();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let name = name.clone();
                tokio::spawn(async move {
                    // A client that goes away mid-request is its own business.
                    let _ = answer(stream, &name).await;
                });
            }
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
}

async fn answer(mut stream: TcpStream, name: &str) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&request);
    say::result(line.lines().next().unwrap_or_default())?;
    let body = format!("{name}\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await
}
