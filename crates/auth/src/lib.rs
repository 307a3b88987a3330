//! Who are you, may you.
