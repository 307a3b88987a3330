//! The whole store as a download, for `karve backup`.

use std::io::{self, Write};

use api::Error;
use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use tokio::runtime::Handle;
use tracing::warn;

use crate::ApiServer;
use crate::body::{Body, BoxError};

/// Chunks that wait for a slow client; the writer waits with them.
const CHUNKS_AHEAD: usize = 4;

/// Streams the newest state. Writers are not held up: the state is a snapshot.
pub async fn stream(server: &ApiServer) -> Result<Response<Body>, Error> {
    let snapshot = server.registry.latest().await?;
    let encryption = server.encryption.clone();
    let (sender, body) = Channel::<Bytes, BoxError>::new(CHUNKS_AHEAD);
    let mut output = Output {
        sender,
        handle: Handle::current(),
    };
    tokio::task::spawn_blocking(move || {
        let mut buffered = io::BufWriter::with_capacity(256 << 10, &mut output);
        let written = store::backup::write(&*snapshot, &*encryption, &mut buffered);
        drop(buffered);
        if let Err(error) = written {
            warn!(%error, "Failed to finish a backup of the store; start it again");
            output.sender.abort(error.into());
        }
    });
    let mut response = Response::new(body.boxed_unsync());
    let media_type = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    Ok(response)
}

/// Hands what is written to the body, from a thread that may wait.
struct Output {
    sender: Sender<Bytes, BoxError>,
    handle: Handle,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk = Bytes::copy_from_slice(bytes);
        let sent = self.handle.block_on(self.sender.send_data(chunk));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client went away"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
