//! The loop in which servers take connections.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::{Connection, Connections};

pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Accepting fails when the process is out of file handles; trying again at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Takes connections for as long as it is not dropped, each in a task of its own. A task ends at the latest when its
/// connection has to make room for others; what it hands its [`Connection`] to counts as that connection.
pub async fn accept<S, F>(listener: &TcpListener, connections: &Arc<Connections>, mut serve: S) -> Infallible
where
    S: FnMut(TcpStream, Arc<Connection>) -> F,
    F: Future<Output = Result<(), AnyError>> + Send + 'static,
{
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "Failed to accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(connection) = connections.admit(peer.ip()) else {
            tracing::debug!(%peer, "Refused a connection: the limit of open connections is reached");
            continue;
        };
        let connection = Arc::new(connection);
        // Without it, answers are only slower.
        let _ = stream.set_nodelay(true);
        let served = serve(stream, connection.clone());
        tokio::spawn(async move {
            tokio::select! {
                ended = served => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, %error, "A connection ended with an error");
                    }
                }
                () = connection.ended() => tracing::debug!(%peer, "Closed a connection to make room for others"),
            }
        });
    }
}

/// Tells clients apart without keeping their names or tokens; the key is another one in every process.
pub fn client_id(client: &(impl Hash + ?Sized)) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(client)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::ConnectionLimits;

    /// A silent client is put out by those who come after it; one that has said who it is stays.
    #[tokio::test]
    async fn who_says_nothing_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::new(ConnectionLimits {
            total: 100,
            unidentified: 2,
            unidentified_on_loopback: 2,
            per_client: 10,
        });
        tokio::spawn(async move {
            accept(&listener, &connections, |mut stream, connection| async move {
                let name = stream.read_u8().await?;
                connection.identify(client_id(&name));
                stream.write_u8(name).await?;
                // It is served until the client goes.
                stream.read_u8().await?;
                Ok(())
            })
            .await
        });
        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut known = TcpStream::connect(address).await.unwrap();
        known.write_u8(1).await.unwrap();
        assert_eq!(known.read_u8().await.unwrap(), 1);
        let mut others = Vec::new();
        for _ in 0..4 {
            others.push(TcpStream::connect(address).await.unwrap());
        }
        let ended = tokio::time::timeout(Duration::from_secs(30), silent.read_u8()).await;
        assert!(ended.expect("the silent client is put out").is_err());
        let stays = tokio::time::timeout(Duration::from_millis(100), known.read_u8()).await;
        assert!(stays.is_err(), "the known client stays");
    }
}
