//! Admission webhooks: HTTPS endpoints of the cluster's owner that are asked about requests.
//!
//! [`Mutating`] calls them one after the other and applies their patches, [`Validating`] calls all of them at once.
//! The configurations are read through [`Lookup`], which is as new as the server's own state; what was parsed is kept
//! until the stored objects change.

mod cache;
mod hook;
mod review;
#[cfg(test)]
mod tests;

use std::time::Instant;

use api::kinds::mutating_webhook_configuration::MUTATING_WEBHOOK_CONFIGURATION;
use api::kinds::validating_webhook_configuration::VALIDATING_WEBHOOK_CONFIGURATION;
use api::{Error, Resource};
use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;

use crate::conditions::Verdict;
use crate::matching::is_exempt;
use crate::settings::Settings;
use crate::{Attributes, Lookup, Plugin};
use cache::Cache;
use hook::{Hook, HookError};
use review::{Answer, Review};

const MUTATING: &str = "MutatingAdmissionWebhook";
const VALIDATING: &str = "ValidatingAdmissionWebhook";

pub struct Mutating {
    cache: Cache,
    settings: Settings,
}

pub struct Validating {
    cache: Cache,
    settings: Settings,
}

impl Mutating {
    pub fn new(settings: &Settings) -> Mutating {
        Mutating {
            cache: Cache::new(&MUTATING_WEBHOOK_CONFIGURATION),
            settings: settings.clone(),
        }
    }
}

impl Validating {
    pub fn new(settings: &Settings) -> Validating {
        Validating {
            cache: Cache::new(&VALIDATING_WEBHOOK_CONFIGURATION),
            settings: settings.clone(),
        }
    }
}

#[async_trait]
impl Plugin for Mutating {
    fn name(&self) -> &'static str {
        MUTATING
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        !is_exempt(attributes)
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let hooks = self.cache.current(lookup);
        if hooks.is_empty() {
            return Ok(());
        }
        attributes.reinvocation.begin(MUTATING, &attributes.object);
        for (index, hook) in hooks.iter().enumerate() {
            self.ask(hook, index, attributes, lookup).await?;
        }
        attributes.reinvocation.end(MUTATING, &attributes.object);
        Ok(())
    }
}

impl Mutating {
    /// Calls one webhook if it is meant and applies its patch.
    async fn ask(
        &self,
        hook: &Hook,
        index: usize,
        attributes: &mut Attributes,
        lookup: &dyn Lookup,
    ) -> Result<(), Error> {
        let Some(resource) = wanted(hook, attributes, lookup, &self.settings)? else {
            return Ok(());
        };
        if !attributes.reinvocation.should_call(MUTATING, &hook.id) {
            return Ok(());
        }
        let round = attributes.reinvocation.round();
        let key = |kind: &str| format!("{kind}.webhook.admission.k8s.io/round_{round}_index_{index}");
        let review = Review::new(attributes, resource, lookup).await?;
        let changed = match call(hook, &review, attributes, lookup, true).await {
            Ok(answer) => apply(hook, answer, review, attributes, lookup).await,
            Err(error) => Err(error),
        };
        let changed = match changed {
            Err(HookError::Calling(_)) if hook.ignores_failures => {
                attributes
                    .remarks
                    .annotate(key("failed-open.mutation"), hook.name.as_str());
                false
            }
            changed => changed.map_err(HookError::into_error)?,
        };
        let record = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": changed});
        attributes.remarks.annotate(key("mutation"), record.to_string());
        attributes
            .reinvocation
            .called(MUTATING, &hook.id, changed, hook.reinvoke_if_needed);
        Ok(())
    }
}

#[async_trait]
impl Plugin for Validating {
    fn name(&self) -> &'static str {
        VALIDATING
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        !is_exempt(attributes)
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let hooks = self.cache.current(lookup);
        let mut meant = Vec::new();
        for hook in hooks.iter() {
            if let Some(resource) = wanted(hook, attributes, lookup, &self.settings)? {
                meant.push((hook, resource));
            }
        }
        let asked = meant
            .into_iter()
            .enumerate()
            .map(|(index, (hook, resource))| ask_validating(hook, index, resource, attributes, lookup));
        join_all(asked).await.into_iter().collect()
    }
}

async fn ask_validating(
    hook: &Hook,
    index: usize,
    resource: &'static Resource,
    attributes: &Attributes,
    lookup: &dyn Lookup,
) -> Result<(), Error> {
    let review = Review::new(attributes, resource, lookup).await?;
    match call(hook, &review, attributes, lookup, false).await {
        Ok(answer) => answer.allowed_by(hook).map_err(HookError::into_error),
        Err(HookError::Calling(_)) if hook.ignores_failures => {
            let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
            attributes.remarks.annotate(key, hook.name.as_str());
            Ok(())
        }
        Err(error) => Err(error.into_error()),
    }
}

/// As which resource a webhook wants to see the request, if it does.
fn wanted(
    hook: &Hook,
    attributes: &Attributes,
    lookup: &dyn Lookup,
    settings: &Settings,
) -> Result<Option<&'static Resource>, Error> {
    let Some(resource) = hook.criteria.matches(attributes, lookup)? else {
        return Ok(None);
    };
    match hook.conditions.verdict(attributes, resource, lookup, settings) {
        Verdict::Met => Ok(Some(resource)),
        Verdict::NotMet => Ok(None),
        Verdict::Failed(_) if hook.ignores_failures => Ok(None),
        Verdict::Failed(why) => Err(attributes.forbidden(why)),
    }
}

async fn call(
    hook: &Hook,
    review: &Review,
    attributes: &Attributes,
    lookup: &dyn Lookup,
    mutating: bool,
) -> Result<Answer, HookError> {
    if attributes.dry_run && hook.has_side_effects {
        return Err(HookError::Refused(Error::bad_request(format!(
            "admission webhook {:?} does not support dry run",
            hook.name
        ))));
    }
    let asked = Instant::now();
    let answer = hook.call(review, lookup, mutating).await;
    attributes.remarks.waited(asked.elapsed());
    let answer = answer?;
    for (key, value) in &answer.annotations {
        attributes
            .remarks
            .annotate(format!("{}/{key}", hook.name), value.as_str());
    }
    for warning in &answer.warnings {
        attributes.remarks.warn(warning.as_str());
    }
    Ok(answer)
}

/// Applies a webhook's patch in the version the webhook saw; whether that changed the object.
async fn apply(
    hook: &Hook,
    answer: Answer,
    review: Review,
    attributes: &mut Attributes,
    lookup: &dyn Lookup,
) -> Result<bool, HookError> {
    answer.allowed_by(hook)?;
    let refused = |error: Error| HookError::Refused(error);
    let Some(patch) = answer.patch.filter(|patch| patch != &json!([])) else {
        return Ok(false);
    };
    if attributes.object.is_null() {
        let why = format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        );
        return Err(refused(Error::internal(why)));
    }
    let patched = schema::json_patch(&review.object, &patch).map_err(|error| refused(Error::internal(error)))?;
    if patched == review.object {
        return Ok(false);
    }
    let object = review
        .to_request(patched, attributes, lookup)
        .await
        .map_err(HookError::Refused)?;
    let changed = object != attributes.object;
    attributes.object = object;
    Ok(changed)
}
