//! Command line client.
