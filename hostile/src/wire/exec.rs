//! Running a command in a container through the API, as kubectl does it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Stream;
use super::http1::{Connection, Response, head};
use super::websocket;

/// The protocol of streams that tells how the command ended.
pub const PROTOCOL: &str = "v5.channel.k8s.io";

/// What a command printed and how it ended.
#[derive(Clone, Debug, Default)]
pub struct Executed {
    pub output: String,
    pub errors: String,
    /// The Status that came on the last channel.
    pub status: Value,
}

impl Executed {
    pub fn succeeded(&self) -> bool {
        self.status["status"] == "Success"
    }
}

/// Asks for the upgrade. The answer is 101 when the streams are open.
pub fn open<S: Stream>(connection: &mut Connection<S>, path: &str) -> Result<Response> {
    let head = head("GET", path, &websocket::upgrade_headers(PROTOCOL));
    connection.send(format!("{head}\r\n").as_bytes(), &[])?;
    let response = connection.receive_head()?;
    match response.status {
        101 => Ok(response),
        _ => finish(connection, response),
    }
}

/// The body of a refusal.
fn finish<S: Stream>(connection: &mut Connection<S>, mut response: Response) -> Result<Response> {
    let length = response.header("content-length").map(str::parse::<usize>).transpose()?;
    response.body.resize(length.unwrap_or(0), 0);
    connection.read_exact(&mut response.body)?;
    Ok(response)
}

/// Reads the streams until the command ends.
pub fn collect<S: Stream>(connection: &mut Connection<S>) -> Result<Executed> {
    let (mut output, mut errors, mut status) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(message) = websocket::receive(connection)? {
        let (channel, data) = message.split_first().context("a message without a channel")?;
        match channel {
            1 => output.extend_from_slice(data),
            2 => errors.extend_from_slice(data),
            3 => status.extend_from_slice(data),
            _ => {}
        }
        if *channel == 3 {
            break;
        }
    }
    ensure!(!status.is_empty(), "the streams ended without a status");
    Ok(Executed {
        output: String::from_utf8_lossy(&output).into_owned(),
        errors: String::from_utf8_lossy(&errors).into_owned(),
        status: serde_json::from_slice(&status)?,
    })
}
