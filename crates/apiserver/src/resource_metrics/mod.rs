//! `metrics.k8s.io/v1beta1`: what nodes and pods use, answered from the kubelets' figures as metrics-server does.
//!
//! `sampler` asks the kubelets and fills the table of `usage`, `answer` tells what is in it. An APIService that names a
//! Service takes over: its requests never come here.

mod answer;
mod sampler;

pub use answer::run;
pub use sampler::follow;
