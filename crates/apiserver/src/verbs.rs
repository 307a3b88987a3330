//! What each verb does to an ordinary resource.

use std::time::Duration;

use api::{Error, Reason, Value};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use registry::remarks::warn;
use registry::{
    DeleteOptions, Deleted, Scope, Stored, WatchRequest, WriteOptions, check_name, check_namespace, forgotten_managers,
    list_metadata,
};
use serde_json::json;

use crate::body::Body;
use crate::call::{Call, forget_revision, named};
use crate::decode::{self, Expected};
use crate::list_body::ListBody;
use crate::request::Query;
use crate::respond::{self, FrameEncoder};
use crate::watching::{self, Frames};
use crate::{gate, negotiate, options, watch_socket, websocket};

/// Upstream ends watches after a random time between this and twice this, so that clients spread over servers.
const MIN_WATCH: Duration = Duration::from_secs(1800);

impl Call<'_> {
    pub async fn get(&self) -> Result<Response<Body>, Error> {
        let (registry, name) = (&self.server.registry, &self.info.name);
        let stored = match self.query.text("resourceVersion") {
            None => registry.get(&self.served, self.namespace, name).await?,
            Some(revision) => {
                let revision = options::revision_of_get(revision)?;
                let place = (self.namespace, name.as_str());
                registry.get_not_older(&self.served, place, revision).await?
            }
        };
        self.presenter()?.stored(StatusCode::OK, &stored.bytes, stored.revision)
    }

    pub async fn list(&self) -> Result<Response<Body>, Error> {
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

    pub async fn watch(&self) -> Result<Response<Body>, Error> {
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
        let frames = Frames::new(watcher, encoder, self.server.metrics.watch_events(self.info));
        let mut response = match self.upgrade.clone().filter(|_| websocket::is_wanted(self.headers)) {
            Some(client) => watch_socket::answer(self.headers, client, frames)?,
            None => Response::new(self.server.stalls.guard(watching::body(frames))),
        };
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Ok(response)
    }

    pub async fn create(&self) -> Result<Response<Body>, Error> {
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
        let may = || gate::require_verb(gate, registry, &self.user, self.request(), "create");
        registry
            .create_if(&self.served, self.namespace, value, options, &may)
            .await
    }

    pub async fn delete(&self) -> Result<Response<Body>, Error> {
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
                    negotiate::wanted(self.headers, &self.query, true)?.encoding,
                ))
            }
        }
    }

    /// Deletes every object that matches; answers with the list of them.
    pub async fn delete_collection(&self) -> Result<Response<Body>, Error> {
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
