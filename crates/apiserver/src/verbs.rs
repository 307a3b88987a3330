//! Requests for resources: finds the resource, runs the verb, shapes the answer.

use std::sync::Arc;
use std::time::Duration;

use api::{Error, Reason, Value, Verb};
use auth::User;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use registry::remarks::warn;
use registry::{
    DeleteOptions, Deleted, ListRequest, Scope, Served, Stored, WatchRequest, WriteOptions, check_name,
    check_namespace, equal_to, forgotten_managers, list_metadata, not_served,
};
use serde_json::json;

use crate::body::Body;
use crate::decode::{self, Expected, Form};
use crate::list_body::ListBody;
use crate::negotiate::{self, Encoding};
use crate::options;
use crate::request::{Query, RequestInfo};
use crate::resolve::ResourceRequest;
use crate::respond::{self, FrameEncoder, Presenter};
use crate::table::IncludeObject;
use crate::watching;
use crate::{ApiServer, gate};

/// Upstream ends watches after a random time between this and twice this, so that clients spread over servers.
const MIN_WATCH: Duration = Duration::from_secs(1800);

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
        }
    }

    pub async fn run(&self) -> Result<Response<Body>, Error> {
        let response = match (self.info.verb, self.info.subresource.as_str()) {
            (verb, "") => {
                self.check_verb(verb)?;
                self.run_main(verb).await
            }
            (_, subresource) => crate::subresource::run(self, subresource).await,
        };
        let custom = self.served.custom.as_ref();
        let deprecated = custom.and_then(|custom| custom.version().warning.clone());
        match deprecated.or_else(|| self.served.resource.deprecation.map(str::to_owned)) {
            // Failures carry it as well.
            Some(deprecated) => {
                self.server.metrics.deprecated(self.info);
                let encoding = negotiate::wanted(self.headers, true).map_or(Encoding::Json, |wanted| wanted.encoding);
                let response = response.unwrap_or_else(|error| respond::error(&error, encoding));
                Ok(with_warnings(response, &[deprecated]))
            }
            None => response,
        }
    }

    fn check_verb(&self, verb: &str) -> Result<(), Error> {
        let resource = self.served.resource;
        if !self.info.name.is_empty() && self.is_review() {
            return Err(not_served());
        }
        let known = resource.verbs.iter().any(|allowed: &Verb| allowed.as_str() == verb);
        if let Some(custom) = &self.served.custom
            && verb == "create"
            && custom.definition.deleting
        {
            return Err(Error::new(
                Reason::MethodNotAllowed,
                "create not allowed while custom resource definition is terminating",
            ));
        }
        let misnamed = match verb {
            "create" => !self.info.name.is_empty(),
            "update" | "patch" => self.info.name.is_empty(),
            _ => false,
        };
        match known && !misnamed {
            true => Ok(()),
            false => Err(method_not_allowed()),
        }
    }

    async fn run_main(&self, verb: &str) -> Result<Response<Body>, Error> {
        if self.served.resource.storage.is_empty() {
            return crate::reviews::run(self, verb).await;
        }
        match verb {
            "get" => self.get().await,
            "list" => self.list().await,
            "watch" => self.watch().await,
            "create" => self.create().await,
            "update" => self.update(Scope::Main).await,
            "patch" => self.patch(Scope::Main).await,
            "delete" => self.delete().await,
            "deletecollection" => self.delete_collection().await,
            _ => Err(method_not_allowed()),
        }
    }

    pub async fn get(&self) -> Result<Response<Body>, Error> {
        let stored = self
            .server
            .registry
            .get(&self.served, self.namespace, &self.info.name)
            .await?;
        self.presenter()?.stored(StatusCode::OK, &stored.bytes, stored.revision)
    }

    async fn list(&self) -> Result<Response<Body>, Error> {
        let registry = &self.server.registry;
        let presenter = self.presenter()?;
        let request = self.list_request()?;
        if presenter.is_verbatim() && request.is_whole() {
            let snapshot = registry.list_snapshot(&request).await?;
            let mut response = Response::new(
                self.server
                    .stalls
                    .guard(ListBody::new(snapshot, request.filter).boxed_unsync()),
            );
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return Ok(response);
        }
        let page = registry.list(&request).await?;
        presenter.list(list_metadata(&page), self.served.decode_all(&page.entries)?)
    }

    async fn watch(&self) -> Result<Response<Body>, Error> {
        let request = self.list_request()?;
        let encoder = FrameEncoder(self.presenter()?);
        let send_initial = self
            .query
            .text("sendInitialEvents")
            .map(|_| self.query.flag("sendInitialEvents"));
        let after = match (request.resource_version, send_initial) {
            (_, Some(true)) | (None | Some(0), None) => None,
            (revision, _) => Some(revision.unwrap_or_else(|| self.server.registry.snapshot().revision())),
        };
        let media_type = encoder.media_type();
        let watch = WatchRequest {
            filter: request.filter,
            after,
            bookmarks: self.query.flag("allowWatchBookmarks"),
            announce_initial_end: send_initial == Some(true) && self.query.flag("allowWatchBookmarks"),
            timeout: watch_timeout(&self.query)?,
            retired: self.served.custom.as_ref().map(|custom| custom.retired()),
        };
        let watcher = self.server.registry.watch(watch).await?;
        let body = watching::body(watcher, encoder, self.server.metrics.watch_events(self.info));
        let mut response = Response::new(self.server.stalls.guard(body));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Ok(response)
    }

    async fn create(&self) -> Result<Response<Body>, Error> {
        let options = self.write_options()?;
        let (value, unknown) = decode::object(self.expected()?, self.headers, &self.body, options.validation)?;
        warn(unknown);
        let stored = self
            .server
            .registry
            .create(&self.served, self.namespace, value, &options)
            .await?;
        self.presenter()?
            .stored(StatusCode::CREATED, &stored.bytes, stored.revision)
    }

    pub async fn update(&self, scope: Scope) -> Result<Response<Body>, Error> {
        let options = self.write_options()?;
        let (mut value, unknown) = decode::object(self.expected()?, self.headers, &self.body, options.validation)?;
        warn(unknown);
        let (namespace, name) = (self.namespace, &self.info.name);
        check_namespace(&mut value, self.served.resource, namespace)?;
        named(&value, name)?;
        if decode::forgets_managers(self.headers, &self.body, &value) {
            value["metadata"]["managedFields"] = forgotten_managers();
        }
        let mut change = |_: &Value| Ok(value.clone());
        let registry = &self.server.registry;
        let updated = registry
            .update(&self.served, namespace, name, scope, &options, &mut change)
            .await;
        let creates = scope == Scope::Main && self.served.resource.rules.create_on_update();
        let (code, stored) = match updated {
            Err(error) if error.reason == Reason::NotFound && creates => {
                let mut value = value;
                check_name(&mut value, name)?;
                forget_revision(&mut value);
                (StatusCode::CREATED, self.create_instead(value, &options).await?)
            }
            updated => (StatusCode::OK, updated?),
        };
        self.presenter()?.stored(code, &stored.bytes, stored.revision)
    }

    /// Creates what was to be changed and is not there. Whoever may only change creates nothing.
    pub async fn create_instead(&self, value: Value, options: &WriteOptions) -> Result<Stored, Error> {
        let (gate, registry) = (&self.server.gate, &self.server.registry);
        let may = || gate::require_verb(gate, registry, &self.user, &self.request, "create");
        registry
            .create_if(&self.served, self.namespace, value, options, &may)
            .await
    }

    async fn delete(&self) -> Result<Response<Body>, Error> {
        let delete = self.delete_options()?;
        let warning = self.served.resource.deletion_warning.filter(|_| !delete.has_policy());
        warn(warning.into_iter().map(str::to_owned).collect());
        let mut options = options::write_options(self.user.clone(), &Query::default())?;
        options.dry_run = delete.is_dry_run();
        let (namespace, name) = (self.namespace, &self.info.name);
        match self
            .server
            .registry
            .delete(&self.served, namespace, name, &delete, &options)
            .await?
        {
            Deleted::Pending(stored) => self.presenter()?.stored(StatusCode::OK, &stored.bytes, stored.revision),
            Deleted::Gone(stored) if self.served.resource.returns_deleted => {
                self.presenter()?.stored(StatusCode::OK, &stored.bytes, stored.revision)
            }
            Deleted::Gone(stored) => {
                let uid = stored.value(&self.served)?["metadata"]["uid"].clone();
                let resource = self.served.resource;
                let mut details = json!({ "name": name, "kind": resource.plural, "uid": uid });
                if !resource.group.is_empty() {
                    details["group"] = resource.group.into();
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                Ok(respond::status(
                    StatusCode::OK,
                    &status,
                    negotiate::wanted(self.headers, true)?.encoding,
                ))
            }
        }
    }

    /// Deletes every object that matches; answers with the list of them.
    async fn delete_collection(&self) -> Result<Response<Body>, Error> {
        let delete = self.delete_options()?;
        let mut options = options::write_options(self.user.clone(), &Query::default())?;
        options.dry_run = delete.is_dry_run();
        let registry = &self.server.registry;
        let request = self.list_request()?;
        let page = registry.list(&request).await?;
        let mut items = Vec::with_capacity(page.entries.len());
        for value in self.served.decode_all(&page.entries)? {
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            match registry
                .delete(&self.served, self.namespace, name, &delete, &options)
                .await
            {
                Ok(_) => items.push(value),
                Err(error) if error.reason == Reason::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.presenter()?.list(list_metadata(&page), items)
    }

    fn delete_options(&self) -> Result<DeleteOptions, Error> {
        let mut options = options::delete_options(&self.query)?;
        if !self.body.is_empty() {
            let expected = Expected::named("v1", "DeleteOptions", "meta/v1.DeleteOptions")?;
            let validation = registry::FieldValidation::Ignore;
            let (value, _) = decode::object(expected, self.headers, &self.body, validation)?;
            let in_query = std::mem::take(&mut options.dry_run);
            options = serde_json::from_value(value).map_err(|error| Error::bad_request(error.to_string()))?;
            // A body takes the place of the query, but whoever says anywhere that nothing shall be deleted is believed.
            options.dry_run.extend(in_query);
        }
        options::check_delete_options(&options)?;
        Ok(options)
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
                Some(_) => negotiate::wanted_of_custom(self.headers)?,
                None => negotiate::wanted(self.headers, !self.is_review())?,
            },
            include_object: IncludeObject::parse(self.query.first("includeObject"))?,
        })
    }

    /// Reviews are answers, not objects: there is no table or metadata of them.
    fn is_review(&self) -> bool {
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
        None | Some("") => Err(Error::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        Some(found) if found != name => Err(Error::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
        Some(_) => Ok(()),
    }
}

pub fn method_not_allowed() -> Error {
    Error::new(
        Reason::MethodNotAllowed,
        "the server does not allow this method on the requested resource",
    )
}

pub fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let text: String = warning.chars().filter(|c| !c.is_control()).collect();
        let quoted = format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_str(&quoted) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
    response
}

/// An answer without content, for instance to a request that only has effects.
pub fn success(code: StatusCode) -> Response<Body> {
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code.as_u16() });
    let mut response = respond::json(code, &status);
    *response.status_mut() = code;
    response
}

fn watch_timeout(query: &Query) -> Result<Duration, Error> {
    match query.text("timeoutSeconds") {
        None => Ok(MIN_WATCH + Duration::from_millis(trace::now_us() % MIN_WATCH.as_millis() as u64)),
        Some(text) => match text.parse::<u64>() {
            Ok(0) => Ok(MIN_WATCH),
            Ok(seconds) => Ok(Duration::from_secs(seconds)),
            Err(_) => Err(Error::bad_request(format!("invalid timeoutSeconds: {text:?}"))),
        },
    }
}
