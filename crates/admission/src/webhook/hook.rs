//! One webhook of a configuration.

use std::time::Duration;

use api::{Cause, Error, Fields, Reason, Value};
use client::{Webhook, WebhookError};

use super::review::{Answer, Review};
use crate::Lookup;
use crate::conditions::Conditions;
use crate::matching::Criteria;
use crate::services::Services;

pub struct Hook {
    /// Unique over all configurations.
    pub id: String,
    pub name: String,
    pub configuration: String,
    pub criteria: Criteria,
    pub conditions: Conditions,
    pub ignores_failures: bool,
    pub has_side_effects: bool,
    pub reinvoke_if_needed: bool,
    versions: Vec<String>,
    timeout: Duration,
    client: Result<Webhook, WebhookError>,
}

/// Why a webhook did not say yes.
pub enum HookError {
    /// It could not be asked, or its answer makes no sense. The failure policy decides what that means.
    Calling(String),
    /// The request fails whatever the failure policy.
    Refused(Error),
}

impl Hook {
    pub fn all_of(configuration: &Value) -> Vec<Hook> {
        let name = configuration["metadata"].text("name");
        let hooks = configuration.list("webhooks").iter().enumerate();
        hooks.map(|(index, hook)| Hook::parse(name, index, hook)).collect()
    }

    fn parse(configuration: &str, index: usize, hook: &Value) -> Hook {
        let versions = hook.list("admissionReviewVersions").iter();
        Hook {
            id: format!("{configuration}/{}/{index}", hook.text("name")),
            name: hook.text("name").to_owned(),
            configuration: configuration.to_owned(),
            criteria: Criteria::parse(hook, "rules"),
            conditions: Conditions::parse(hook.list("matchConditions")),
            ignores_failures: hook.text("failurePolicy") == "Ignore",
            has_side_effects: !matches!(hook.text("sideEffects"), "None" | "NoneOnDryRun"),
            reinvoke_if_needed: hook.text("reinvocationPolicy") == "IfNeeded",
            versions: versions.filter_map(Value::as_str).map(str::to_owned).collect(),
            timeout: Duration::from_secs(hook.number("timeoutSeconds").clamp(1, 30).unsigned_abs()),
            client: Webhook::new(&hook["clientConfig"]),
        }
    }

    /// Sends the review in the first version that both sides know.
    pub async fn call(&self, review: &Review, lookup: &dyn Lookup, mutating: bool) -> Result<Answer, HookError> {
        let failed = |why: String| HookError::Calling(format!("failed calling webhook {:?}: {why}", self.name));
        let known = self
            .versions
            .iter()
            .find(|version| matches!(version.as_str(), "v1" | "v1beta1"));
        let version = known
            .ok_or_else(|| failed("webhook does not accept known AdmissionReview versions (v1, v1beta1)".to_owned()))?;
        let client = self.client.as_ref().map_err(|error| failed(error.to_string()))?;
        let body = review.encode(version);
        let answer = client.post(&Services(lookup), body.into(), self.timeout).await;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        Answer::parse(&answer, &review.uid, version, mutating)
            .map_err(|why| failed(format!("received invalid webhook response: {why}")))
    }
}

impl HookError {
    pub fn into_error(self) -> Error {
        match self {
            HookError::Calling(why) => Error::internal(why),
            HookError::Refused(error) => error,
        }
    }
}

impl Answer {
    /// A refusal in the webhook's own words.
    pub fn allowed_by(&self, hook: &Hook) -> Result<(), HookError> {
        if self.allowed {
            return Ok(());
        }
        let status = &self.status;
        let denied = format!("admission webhook {:?} denied the request", hook.name);
        let message = match (status.text("message"), status.text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = u16::try_from(status.number("code")).unwrap_or(400).max(400);
        let mut error = Error::new(Reason::Unknown, message);
        let details = error.details();
        let given = &status["details"];
        details.name = given.text("name").to_owned();
        details.group = given.text("group").to_owned();
        details.kind = given.text("kind").to_owned();
        details.uid = given.text("uid").to_owned();
        details.retry_after_seconds = u32::try_from(given.number("retryAfterSeconds")).unwrap_or(0);
        let causes = given.list("causes").iter();
        details.causes = causes
            .map(|cause| Cause {
                reason: cause.text("reason").to_owned(),
                message: cause.text("message").to_owned(),
                field: cause.text("field").to_owned(),
            })
            .collect();
        if given.is_null() {
            error.details = None;
        }
        error.elsewhere = Some((code, status.text("reason").to_owned()));
        Err(HookError::Refused(error))
    }
}
