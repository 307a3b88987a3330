//! The API as data.
