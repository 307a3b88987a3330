//! A runtime whose calls somebody watches, such as a kubelet that counts them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::methods::with_methods;
use crate::stream::{EventStream, PortTarget, StreamTarget};
use crate::{Result, Runtime, v1};

/// Told of every call that has ended.
pub trait Observer: Send + Sync + 'static {
    /// `method` is the call's name in [`Runtime`].
    fn called(&self, method: &'static str, took: Duration, succeeded: bool);
}

/// The same runtime, whose calls are told to an observer.
pub fn observe(runtime: Arc<dyn Runtime>, observer: Arc<dyn Observer>) -> Arc<dyn Runtime> {
    Arc::new(Observed { runtime, observer })
}

struct Observed {
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
}

impl Observed {
    async fn tell<T>(&self, method: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let begun = Instant::now();
        let answer = call.await;
        self.observer.called(method, begun.elapsed(), answer.is_ok());
        answer
    }
}

macro_rules! observed {
    ($($service:ident $method:ident($Request:ident) -> $Response:ident, $wait:ident;)*) => {
        #[async_trait]
        impl Runtime for Observed {
            $(
                async fn $method(&self, request: v1::$Request) -> Result<v1::$Response> {
                    self.tell(stringify!($method), self.runtime.$method(request)).await
                }
            )*

            async fn open_exec(&self, request: v1::ExecRequest) -> Result<StreamTarget> {
                self.tell("exec", self.runtime.open_exec(request)).await
            }

            async fn open_attach(&self, request: v1::AttachRequest) -> Result<StreamTarget> {
                self.tell("attach", self.runtime.open_attach(request)).await
            }

            async fn open_port_forward(&self, pod_sandbox_id: &str, port: u16) -> Result<PortTarget> {
                self.tell("port_forward", self.runtime.open_port_forward(pod_sandbox_id, port)).await
            }

            async fn events(&self) -> Result<EventStream> {
                self.runtime.events().await
            }
        }
    };
}
with_methods!(observed);
