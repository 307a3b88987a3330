//! A port is open or it is not.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::Answer;

/// Why there is no connection, in Go's words: upstream's tests and dashboards look for them.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("dial tcp {0}: connect: connection refused")]
    Refused(String),
    #[error("dial tcp {0}: i/o timeout")]
    Timeout(String),
    #[error("dial tcp {address}: {source}")]
    Failed { address: String, source: io::Error },
}

pub async fn ask(host: &str, port: u16, timeout: Duration) -> Answer {
    match connect(host, port, timeout).await {
        Ok(_) => Answer::Success,
        Err(error) => Answer::Failure(error.to_string()),
    }
}

/// A connection, or Go's words for why there is none.
pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, DialError> {
    let host = host.trim_matches(['[', ']']);
    let address = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(match source.kind() {
            io::ErrorKind::ConnectionRefused => DialError::Refused(address),
            _ => DialError::Failed { address, source },
        }),
        Err(_) => Err(DialError::Timeout(address)),
    }
}
