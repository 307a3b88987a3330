//! A client of exec that speaks v5 over a WebSocket.

use client::{Transport, Upgrade};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::node::TestNode;

#[derive(Default)]
pub struct Ended {
    pub stdout: String,
    pub stderr: String,
    pub status: Value,
}

/// Runs a command; `input` is all of its standard input.
pub async fn exec(node: &TestNode, path: &str, input: Option<&str>) -> Ended {
    let request = http::Request::get(path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v5.channel.k8s.io,v4.channel.k8s.io")
        .body(bytes::Bytes::new())
        .expect("a request");
    let kubelet = node.kubelet.as_ref().expect("the kubelet runs").handler();
    let connection = match kubelet.upgrade(request).await.expect("an answer") {
        Upgrade::Open(parts, connection) => {
            assert_eq!(parts.headers["sec-websocket-protocol"], "v5.channel.k8s.io");
            connection
        }
        Upgrade::Refused(answer) => panic!("refused: {}", answer.status()),
    };
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, None).await;
    if let Some(input) = input {
        socket
            .send(Message::binary([&[0], input.as_bytes()].concat()))
            .await
            .expect("sent");
        socket.send(Message::binary(vec![255, 0])).await.expect("sent");
    }
    let mut ended = Ended::default();
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else { break };
        let text = String::from_utf8_lossy(&bytes[1..]);
        match bytes[0] {
            1 => ended.stdout += &text,
            2 => ended.stderr += &text,
            3 => ended.status = serde_json::from_str(&text).expect("a Status"),
            other => panic!("channel {other}"),
        }
    }
    ended
}
