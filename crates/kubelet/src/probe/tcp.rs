//! A port is open or it is not.

use std::time::Duration;

use tokio::net::TcpStream;

use super::Answer;

pub async fn ask(host: &str, port: u16, timeout: Duration) -> Answer {
    match connect(host, port, timeout).await {
        Ok(_) => Answer::Success,
        Err(error) => Answer::Failure(error),
    }
}

/// A connection, or Go's words for why there is none.
pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, String> {
    let host = host.trim_matches(['[', ']']);
    let shown = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(match error.kind() {
            std::io::ErrorKind::ConnectionRefused => format!("dial tcp {shown}: connect: connection refused"),
            _ => format!("dial tcp {shown}: {error}"),
        }),
        Err(_) => Err(format!("dial tcp {shown}: i/o timeout")),
    }
}
