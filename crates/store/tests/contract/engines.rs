//! The engines that the contract runs over.

use std::any::Any;
use std::sync::Arc;

use store::Store;
use store::embedded::Options;
use store::etcd::{EtcdOptions, Identity};
use tokio::task::JoinHandle;

use crate::etcd_server::EtcdServer;

/// A store, and what has to stay alive beside it.
pub struct World {
    pub store: Arc<dyn Store>,
    _keep: Option<Box<dyn Any + Send>>,
}

pub async fn memory() -> Option<World> {
    Some(World {
        store: store::memory::open(),
        _keep: None,
    })
}

pub async fn embedded() -> Option<World> {
    embedded_with(Options::default()).await
}

/// Remembers nothing and writes tiny files, so that all of the past is read back from disk.
pub async fn forgetful() -> Option<World> {
    embedded_with(Options {
        memory_bytes: 0,
        segment_bytes: 2000,
        ..Options::default()
    })
    .await
}

/// `None`, said loudly, where etcd is not installed.
pub async fn etcd() -> Option<World> {
    let server = EtcdServer::start()?;
    let store = server.connect().await;
    Some(World {
        store,
        _keep: Some(Box::new(server)),
    })
}

/// The engine for etcd on the embedded store, which speaks etcd's API.
pub async fn served() -> Option<World> {
    let World { store, _keep } = embedded().await?;
    let (endpoint, task) = serve(store.clone(), std::future::pending()).await;
    let options = EtcdOptions::new(vec![endpoint], Arc::new(Identity));
    Some(World {
        store: store::etcd::connect(options).await.unwrap(),
        _keep: Some(Box::new((store, _keep, task))),
    })
}

/// Serves a store by etcd's API; where, and the task that does.
pub async fn serve(
    store: Arc<dyn Store>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (String, JoinHandle<std::io::Result<()>>) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = store::serve::Server::new(store, Arc::new(Identity));
    (
        endpoint,
        tokio::spawn(store::serve::serve(server, listener, None, stop)),
    )
}

async fn embedded_with(options: Options) -> Option<World> {
    let directory = tempfile::tempdir().unwrap();
    let store = store::embedded::open(&directory.path().join("store"), options)
        .await
        .unwrap();
    Some(World {
        store,
        _keep: Some(Box::new(directory)),
    })
}
