//! Protocols as an attacker speaks them: each byte is ours to choose, and no library corrects us.

pub mod exec;
pub mod http1;
pub mod http2;
pub mod serve;
pub mod tls;
pub mod websocket;

use std::io::{Read, Write};

/// A connection of any kind.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}
