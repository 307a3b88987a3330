//! Pod network.
