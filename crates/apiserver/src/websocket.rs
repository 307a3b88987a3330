//! What all answers over WebSockets share: whether one is wanted, and the answer that begins it.

use api::Error;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::body::{self, Body};

/// Whether a client asks for a WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// The subprotocols that a client offers.
pub fn offered_protocols(headers: &HeaderMap) -> Vec<&str> {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|value| value.to_str().ok());
    let each = offered.flat_map(|value| value.split(',')).map(str::trim);
    each.filter(|protocol| !protocol.is_empty()).collect()
}

/// The answer after which both sides speak the subprotocol, if there is one.
pub fn accept(headers: &HeaderMap, protocol: &str) -> Result<Response<Body>, Error> {
    let key = headers.get(SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| Error::bad_request("Sec-WebSocket-Key is missing"))?;
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| Error::internal(error.to_string()));
    answer.insert(SEC_WEBSOCKET_ACCEPT, value(&derive_accept_key(key.as_bytes()))?);
    if !protocol.is_empty() {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, value(protocol)?);
    }
    Ok(response)
}
