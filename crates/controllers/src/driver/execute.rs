//! Carrying out a plan.

use api::{ObjectMeta, Value};
use client::{Api, Client, DeleteOptions, Error, EventRecorder, EventType, Key, ListOptions};
use futures_util::future::join_all;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::awaits::Await;
use super::setup::WatchedCache;
use crate::plan::{Action, Adopt, Announce, Create, Delete, Form, Patch, Plan, Put};

/// The calls of one plan that are under way at a time.
const MAX_AT_ONCE: usize = 64;

pub struct Executor {
    pub client: Client,
    /// Reads as the caches do: not every controller may get what it may update.
    pub reader: Client,
    pub recorder: EventRecorder,
    pub caches: Vec<WatchedCache>,
}

#[derive(Default)]
pub struct Outcome {
    pub awaits: Vec<Await>,
    pub error: Option<Error>,
}

/// What is read of an answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    metadata: ObjectMeta,
}

impl Executor {
    pub async fn carry_out(&self, mut plan: Plan) -> Outcome {
        let mut outcome = Outcome::default();
        let mut rest = plan.actions.as_slice();
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|action| alike(first, action)).count();
            let (batch, after) = rest.split_at(run);
            self.carry_out_batch(batch, &mut outcome).await;
            if outcome.error.is_some() {
                break;
            }
            if let Some(Action::Patch(patch)) = batch.first() {
                follow(&mut plan.status, patch, outcome.awaits.last());
            }
            rest = after;
        }
        if let Some(status) = &plan.status {
            match self.patch(status).await {
                Ok(await_) => outcome.awaits.push(await_),
                Err(error) => outcome.error = outcome.error.or(Some(error)),
            }
        }
        outcome
    }

    /// Creations start with one and double while they succeed, so that a quota or a webhook that refuses them all is
    /// asked only once; deletions go out together.
    async fn carry_out_batch(&self, batch: &[Action], outcome: &mut Outcome) {
        let mut size = match batch.first() {
            Some(Action::Create(_)) => 1,
            _ => MAX_AT_ONCE,
        };
        let mut rest = batch;
        while !rest.is_empty() && outcome.error.is_none() {
            let (now, later) = rest.split_at(size.min(rest.len()));
            for result in join_all(now.iter().map(|action| self.act(action))).await {
                match result {
                    Ok(await_) => outcome.awaits.extend(await_),
                    Err(error) => outcome.error = outcome.error.take().or(Some(error)),
                }
            }
            rest = later;
            size = (size * 2).min(MAX_AT_ONCE);
        }
    }

    async fn act(&self, action: &Action) -> Result<Option<Await>, Error> {
        match action {
            Action::Create(create) => self.create(create).await,
            Action::Delete(delete) => self.delete(delete).await,
            Action::Patch(patch) => self.patch(patch).await.map(Some),
            Action::Adopt(adopt) => self.adopt(adopt).await,
            Action::DeleteCollection { resource, namespace } => {
                let api = self.client.resource(resource).in_namespace(namespace.clone());
                let background = DeleteOptions::propagation(client::Propagation::Background);
                api.delete_collection(&background, &ListOptions::default()).await?;
                Ok(None)
            }
            Action::Put(put) => self.put(put).await,
            Action::Event(event) => {
                self.recorder
                    .event(&event.about, event.kind, event.reason, event.message.clone());
                Ok(None)
            }
        }
    }

    async fn create(&self, create: &Create) -> Result<Option<Await>, Error> {
        let api = self
            .client
            .resource(create.resource)
            .in_namespace(create.namespace.clone());
        match api.create::<Answer>(&create.object).await {
            Ok(created) => {
                let metadata = &created.metadata;
                if let Some(stage) = create.mark {
                    trace::mark(
                        stage,
                        object_path(create.resource.plural, metadata),
                        metadata.uid.clone(),
                    );
                }
                self.announce(&create.announce, Ok(&metadata.name));
                Ok(Some(Await::Revision(
                    create.resource,
                    number(&metadata.resource_version),
                )))
            }
            Err(error) if create.exists_is_fine && error.is_already_exists() => Ok(None),
            Err(error) => {
                self.announce(&create.announce, Err(&error));
                Err(error)
            }
        }
    }

    async fn put(&self, put: &Put) -> Result<Option<Await>, Error> {
        let api = self.client.resource(put.resource).subresource(put.subresource);
        let api = api.in_namespace(put.namespace.clone());
        let answer = api.update::<IgnoredAny>(&put.name, &put.object).await;
        let told = answer.as_ref().map(|_| put.name.as_str());
        self.announce(&put.announce, told);
        answer.map(|_| None)
    }

    async fn delete(&self, delete: &Delete) -> Result<Option<Await>, Error> {
        let options = DeleteOptions {
            uid: Some(delete.uid.clone()),
            resource_version: (!delete.only_at.is_empty()).then(|| delete.only_at.clone()),
            propagation: delete.propagation,
            grace_period_seconds: delete.grace_period_seconds,
            ..DeleteOptions::default()
        };
        let api = self
            .client
            .resource(delete.resource)
            .in_namespace(delete.namespace.clone());
        match api.delete(&delete.name, &options).await {
            Ok(_) => {
                self.announce(&delete.announce, Ok(&delete.name));
                let key = Key::new(&delete.namespace, &delete.name);
                Ok(Some(Await::Change(delete.resource, key, delete.seen_at.clone())))
            }
            // Gone, or replaced by another object of its name: either way what was to be deleted is not there.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) if error.is_conflict() && delete.only_at.is_empty() => Ok(None),
            Err(error) => {
                self.announce(&delete.announce, Err(&error));
                Err(error)
            }
        }
    }

    async fn patch(&self, patch: &Patch) -> Result<Await, Error> {
        let api: Api = self
            .client
            .resource(patch.resource)
            .in_namespace(patch.namespace.clone())
            .subresource(patch.subresource);
        let answer = match patch.form {
            Form::Merge => api.patch(&patch.name, client::Patch::merge(&patch.body)).await,
            Form::Strategic => api.patch(&patch.name, client::Patch::strategic(&patch.body)).await,
            Form::Update => self.update(&api, patch).await,
        };
        match answer {
            Ok(patched) => {
                let metadata = &patched.metadata;
                if let Some(stage) = patch.mark {
                    trace::mark(
                        stage,
                        object_path(patch.resource.plural, metadata),
                        metadata.uid.clone(),
                    );
                }
                self.announce(&patch.announce, Ok(""));
                Ok(Await::Revision(patch.resource, number(&metadata.resource_version)))
            }
            Err(error) => {
                self.announce(&patch.announce, Err(&error));
                Err(error)
            }
        }
    }

    /// Reads the whole object, changes what the patch changes, and writes it back at the revision it was read at or
    /// that the patch names.
    async fn update(&self, api: &Api, patch: &Patch) -> Result<Answer, Error> {
        let by_name = ListOptions {
            field_selector: format!("metadata.name={}", patch.name),
            ..ListOptions::default()
        };
        let objects = self.reader.resource(patch.resource);
        let objects = objects.in_namespace(patch.namespace.clone());
        let Some(object) = objects.list::<Value>(&by_name).await?.items.pop() else {
            return Err(Error::Api(api::Error::not_found(patch.resource, &patch.name)));
        };
        let mut object = schema::merge_patch(&object, &patch.body);
        object["apiVersion"] = patch.resource.api_version().into();
        object["kind"] = patch.resource.kind.into();
        api.update(&patch.name, &object).await
    }

    /// The cache may still show an owner that was deleted, or another one of its name.
    async fn adopt(&self, adopt: &Adopt) -> Result<Option<Await>, Error> {
        let owners = self
            .client
            .resource(adopt.owner)
            .in_namespace(adopt.patch.namespace.clone());
        let owner = owners.get::<Answer>(&adopt.owner_name).await?.metadata;
        if owner.uid != adopt.owner_uid || owner.is_deleting() {
            let gone = api::Error::not_found(adopt.owner, &adopt.owner_name);
            return Err(Error::Api(gone));
        }
        self.patch(&adopt.patch).await.map(Some)
    }

    fn announce(&self, announce: &Option<Announce>, result: Result<&str, &Error>) {
        let Some(announce) = announce else { return };
        match (result, &announce.failure) {
            (Ok(name), _) => {
                let text = &announce.success.1;
                let name = if text.ends_with(' ') { name } else { "" };
                let message = format!("{text}{name}");
                self.recorder
                    .event(&announce.about, EventType::Normal, announce.success.0, message);
            }
            (Err(error), Some((reason, text))) => {
                let message = format!("{text}{error}");
                self.recorder
                    .event(&announce.about, EventType::Warning, reason, message);
            }
            (Err(_), None) => {}
        }
    }
}

/// Whether two neighbouring actions may be under way at once.
fn alike(first: &Action, other: &Action) -> bool {
    match (first, other) {
        (Action::Create(first), Action::Create(other)) => std::ptr::eq(first.resource, other.resource),
        (Action::Delete(_), Action::Delete(_)) => true,
        (Action::DeleteCollection { .. }, Action::DeleteCollection { .. }) => true,
        (Action::Adopt(_), Action::Adopt(_)) => true,
        (Action::Patch(first), Action::Patch(other)) if first.at_once => other.at_once,
        _ => std::ptr::eq(first, other),
    }
}

/// A status that is conditional on a revision follows the plan's own patch of the same object to its new revision.
fn follow(status: &mut Option<Patch>, patch: &Patch, written: Option<&Await>) {
    let (Some(status), Some(Await::Revision(_, revision))) = (status, written) else {
        return;
    };
    let same = std::ptr::eq(status.resource, patch.resource)
        && (&status.namespace, &status.name) == (&patch.namespace, &patch.name);
    if same && !status.body["metadata"]["resourceVersion"].is_null() {
        status.body["metadata"]["resourceVersion"] = revision.to_string().into();
    }
}

fn number(revision: &str) -> u64 {
    revision.parse().unwrap_or(0)
}

fn object_path(plural: &str, metadata: &ObjectMeta) -> String {
    format!("{plural}/{}", Key::new(&metadata.namespace, &metadata.name))
}
