//! The CRI.
