//! Service proxy.
