//! The verbs of one resource.

use api::{Resource, Value};
use bytes::Bytes;
use http::{Method, Request, header};
use serde::de::DeserializeOwned;

use crate::options::{Query, push_escaped};
use crate::{
    Client, DeleteOptions, Error, List, ListOptions, Patch, Result, TransportError, WatchOptions, WatchStream,
    WriteOptions,
};

/// The calls on one resource, in one namespace or in all, on the objects themselves or on a subresource.
///
/// Every verb that answers with an object decodes whatever `T` the caller wants of it: a projection, a
/// [`Value`], or [`serde::de::IgnoredAny`] when the answer does not matter.
#[derive(Clone)]
pub struct Api {
    client: Client,
    resource: &'static Resource,
    /// Empty for all namespaces, and for objects outside of namespaces.
    namespace: String,
    subresource: &'static str,
    write: WriteOptions,
}

impl Api {
    pub(crate) fn new(client: Client, resource: &'static Resource) -> Api {
        Api {
            client,
            resource,
            namespace: String::new(),
            subresource: "",
            write: WriteOptions::default(),
        }
    }

    /// Narrows the calls to one namespace; an empty one means all of them. Cluster-scoped resources have none, whatever is
    /// given: a server finds nothing at such a path, and nothing must not be taken for an object that is gone.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Api {
        self.namespace = namespace.into();
        self
    }

    /// Directs the calls to a subresource such as `status`, `scale` or `binding`.
    pub fn subresource(mut self, subresource: &'static str) -> Api {
        self.subresource = subresource;
        self
    }

    /// Carries out creates, updates and patches with these options.
    pub fn with(mut self, write: WriteOptions) -> Api {
        self.write = write;
        self
    }

    pub fn resource(&self) -> &'static Resource {
        self.resource
    }

    pub async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        self.decode(&self.get_bytes(name).await?, "get")
    }

    /// The object as the server encoded it.
    pub async fn get_bytes(&self, name: &str) -> Result<Bytes> {
        self.call(Method::GET, name, Query::default(), "", Bytes::new()).await
    }

    pub async fn list<T: DeserializeOwned>(&self, options: &ListOptions) -> Result<List<T>> {
        self.decode(&self.list_bytes(options).await?, "list")
    }

    pub async fn list_bytes(&self, options: &ListOptions) -> Result<Bytes> {
        self.call(Method::GET, "", options.query(), "", Bytes::new()).await
    }

    /// Creates an object, or posts to a subresource of [`Api::create_for`]'s object.
    pub async fn create<T: DeserializeOwned>(&self, object: &Value) -> Result<T> {
        self.create_for("", object).await
    }

    /// Posts a body to a subresource of the named object, such as `binding` or `eviction`.
    pub async fn create_for<T: DeserializeOwned>(&self, name: &str, object: &Value) -> Result<T> {
        self.create_bytes(name, Bytes::from(object.to_string())).await
    }

    /// Like [`Api::create_for`] with an encoded body; `name` is empty when an object itself is created.
    pub async fn create_bytes<T: DeserializeOwned>(&self, name: &str, object: Bytes) -> Result<T> {
        let query = self.write.query(self.client.name());
        let answer = self.call(Method::POST, name, query, JSON, object).await?;
        self.decode(&answer, "create")
    }

    pub async fn update<T: DeserializeOwned>(&self, name: &str, object: &Value) -> Result<T> {
        self.update_bytes(name, Bytes::from(object.to_string())).await
    }

    pub async fn update_bytes<T: DeserializeOwned>(&self, name: &str, object: Bytes) -> Result<T> {
        let query = self.write.query(self.client.name());
        let answer = self.call(Method::PUT, name, query, JSON, object).await?;
        self.decode(&answer, "update")
    }

    pub async fn patch<T: DeserializeOwned>(&self, name: &str, patch: Patch) -> Result<T> {
        let query = self.write.query(self.client.name());
        let query = query.text("force", if patch.force { "true" } else { "" });
        let answer = self.call(Method::PATCH, name, query, patch.content_type, patch.body);
        self.decode(&answer.await?, "patch")
    }

    /// Deletes an object. Answers with the object while it is being deleted, or a Status once it is gone; neither is
    /// decoded.
    pub async fn delete(&self, name: &str, options: &DeleteOptions) -> Result<Bytes> {
        let body = options.body();
        self.call(Method::DELETE, name, Query::default(), JSON, body).await
    }

    pub async fn delete_collection(&self, options: &DeleteOptions, selection: &ListOptions) -> Result<Bytes> {
        let body = options.body();
        self.call(Method::DELETE, "", selection.query(), JSON, body).await
    }

    pub async fn watch(&self, options: &WatchOptions) -> Result<WatchStream> {
        let request = self.request(Method::GET, "", options.query(), "", Bytes::new())?;
        Ok(WatchStream::new(self.client.open(request).await?))
    }

    /// The URL path of the collection or of the named object, with the subresource.
    pub fn path(&self, name: &str) -> String {
        let is_narrowed = self.resource.namespaced && !self.namespace.is_empty();
        let namespace = is_narrowed.then_some(self.namespace.as_str());
        let mut path = self.resource.path(namespace, None);
        for segment in [name, self.subresource] {
            if !segment.is_empty() {
                path.push('/');
                push_escaped(&mut path, segment);
            }
        }
        path
    }

    async fn call(&self, method: Method, name: &str, query: Query, kind: &'static str, body: Bytes) -> Result<Bytes> {
        let request = self.request(method, name, query, kind, body)?;
        self.client.fetch(request).await
    }

    fn request(
        &self,
        method: Method,
        name: &str,
        query: Query,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Request<Bytes>> {
        let mut path = self.path(name);
        path.push_str(query.as_str());
        let mut request = Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        Ok(request.body(body).map_err(TransportError::from)?)
    }

    fn decode<T: DeserializeOwned>(&self, answer: &[u8], verb: &str) -> Result<T> {
        serde_json::from_slice(answer).map_err(|source| Error::Decode {
            request: format!("{verb} {}", self.resource.qualified()),
            source,
        })
    }
}

const JSON: &str = "application/json";

#[cfg(test)]
mod tests {
    use api::kinds::config_map::CONFIG_MAP;
    use api::kinds::node::NODE;

    use crate::fake::Fake;

    #[test]
    fn only_namespaced_resources_have_a_namespace_in_their_path() {
        let client = Fake::default().client();
        let path = |resource| client.resource(resource).in_namespace("team").path("x");
        assert_eq!(path(&CONFIG_MAP), "/api/v1/namespaces/team/configmaps/x");
        assert_eq!(path(&NODE), "/api/v1/nodes/x");
    }
}
