//! What one connection may do.

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;

/// How long a client may take for the TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send the headers of a request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection without a request is closed after this long, as upstream's servers do it.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// As large as upstream takes them; larger ones are answered with 431.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// Upstream bounds headers by their bytes alone. This many fit into that, at 64 bytes each.
const MAX_HEADERS: usize = MAX_HEADER_BYTES / 64;
/// Clients that watch objects one by one have hundreds of streams on a connection.
pub const MAX_STREAMS: u32 = 1000;
/// The 64 KB that HTTP/2 begins with make every large body wait for round trips.
const STREAM_WINDOW: u32 = 1 << 20;
/// What a client may have sent, over all of its streams, before anybody has read it.
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Streams that a client has opened and reset before they were answered. Beyond it the connection is ended, for work
/// that nobody waits for is what the rapid reset attack makes a server do.
pub const MAX_PENDING_RESETS: usize = 50;
/// Streams that broke the protocol and had to be reset by the server; beyond it the connection is ended.
pub const MAX_ERROR_RESETS: usize = 128;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// A server of HTTP/1.1 and HTTP/2 for one connection.
pub fn http_server() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES as u32)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
