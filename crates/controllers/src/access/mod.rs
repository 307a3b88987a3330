//! What identities need: service accounts, the root certificate that pods trust, aggregated roles, bootstrap tokens.

pub mod account_tokens;
pub mod bootstrap_signer;
pub mod cluster_role_aggregation;
pub mod root_ca;
pub mod service_account;
pub mod token_cleaner;
