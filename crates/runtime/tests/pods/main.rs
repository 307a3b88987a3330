//! The embedded runtime as a kubelet sees it, with real processes. Needs root and a static busybox.

mod apparmor;
mod bed;
mod cri_details;
mod devices;
mod escape;
mod host;
mod images;
mod lifecycle;
mod restart;
mod seccomp;
mod security;
mod streams;
mod unified;
mod user_namespace;
