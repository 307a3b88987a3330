//! One request for a resource, with what all its handlers share.

use std::sync::Arc;

use api::{Error, Value, Verb};
use auth::User;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use registry::{ListRequest, Served, WriteOptions, equal_to};
use serde_json::json;

use crate::body::Body;
use crate::decode::{Expected, Form};
use crate::request::{Query, RequestInfo};
use crate::resolve::ResourceRequest;
use crate::respond::{self, Presenter};
use crate::table::IncludeObject;
use crate::{ApiServer, negotiate, options};

/// One request for a resource, with all that its handler may look at.
pub struct Call<'a> {
    pub server: &'a Arc<ApiServer>,
    request: ResourceRequest<'a>,
    pub served: Arc<Served>,
    pub info: &'a RequestInfo,
    /// Where the objects are; see [`ResourceRequest::namespace`].
    pub namespace: &'a str,
    pub query: Query,
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    pub user: Arc<User>,
    /// The connection itself, for a client that asks to speak another protocol on it.
    pub upgrade: Option<OnUpgrade>,
}

impl<'a> Call<'a> {
    pub fn new(
        server: &'a Arc<ApiServer>,
        request: ResourceRequest<'a>,
        user: Arc<User>,
        (query, headers, body): (Query, &'a HeaderMap, Bytes),
    ) -> Call<'a> {
        Call {
            server,
            served: request.served().clone(),
            info: request.info(),
            namespace: request.namespace(),
            request,
            query,
            headers,
            body,
            user,
            upgrade: None,
        }
    }

    pub fn with_upgrade(self, upgrade: Option<OnUpgrade>) -> Call<'a> {
        Call { upgrade, ..self }
    }

    /// What authorization was asked about.
    pub fn request(&self) -> &ResourceRequest<'a> {
        &self.request
    }

    pub fn write_options(&self) -> Result<WriteOptions, Error> {
        options::client_write_options(self.user.clone(), self.info.verb, &self.query, self.headers)
    }

    pub fn list_request(&self) -> Result<ListRequest, Error> {
        let info = self.info;
        let fields = self.query.text("fieldSelector").unwrap_or_default();
        if !info.name.is_empty() && !fields.is_empty() {
            let fields = api::selector::parse_fields(fields).map_err(|error| Error::bad_request(error.to_string()))?;
            if equal_to(&fields, "metadata.name") != Some(&info.name) {
                let message = "fieldSelector metadata.name doesn't match requested name";
                return Err(Error::bad_request(message));
            }
        }
        options::list_request(
            &self.server.registry,
            &self.served,
            self.namespace,
            &info.name,
            &self.query,
        )
    }

    pub fn presenter(&self) -> Result<Presenter, Error> {
        Ok(Presenter {
            served: self.served.clone(),
            wanted: match self.served.custom {
                Some(_) => negotiate::wanted_of_custom(self.headers, &self.query)?,
                None => negotiate::wanted(self.headers, &self.query, !self.is_review())?,
            },
            include_object: IncludeObject::parse(self.query.first("includeObject"))?,
            definitions: true,
        })
    }

    /// Reviews are answers, not objects: there is no table or metadata of them.
    pub fn is_review(&self) -> bool {
        self.served.resource.storage.is_empty() && !self.served.resource.allows(Verb::List)
    }

    pub fn expected(&self) -> Result<Expected<'_>, Error> {
        Ok(Expected {
            api_version: self.served.api_version(),
            kind: self.served.resource.kind,
            form: match &self.served.custom {
                Some(custom) => Form::Custom(custom.version()),
                None => Form::BuiltIn(self.served.required_type()?),
            },
        })
    }
}

/// Whoever updates what is not there means the object, not a revision of it.
pub fn forget_revision(value: &mut Value) {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
}

/// The body of an update says which object it is.
pub fn named(value: &Value, name: &str) -> Result<(), Error> {
    match value["metadata"]["name"].as_str() {
        None | Some("") => Err(nameless(name)),
        Some(found) if found != name => Err(Error::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
        Some(_) => Ok(()),
    }
}

/// What is to be the object of that name has none.
pub fn nameless(name: &str) -> Error {
    Error::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    ))
}

/// An answer without content, for instance to a request that only has effects.
pub fn success(code: StatusCode) -> Response<Body> {
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code.as_u16() });
    let mut response = respond::json(code, &status);
    *response.status_mut() = code;
    response
}
