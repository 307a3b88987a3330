//! What the server gives to plugins when it builds the chain.

use std::sync::Arc;

use auth::Authorizer;

/// What plugins need besides the request.
#[derive(Clone)]
pub struct Settings {
    /// Asked whether a user may use a signer, and a node an audience of tokens.
    pub authorizer: Arc<dyn Authorizer>,
}
