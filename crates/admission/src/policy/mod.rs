//! Admission policies: rules of the cluster's owner that this server evaluates itself.
//!
//! A policy says what holds, a binding where and with which parameters. [`Validating`] refuses, warns or notes;
//! [`Mutating`] changes objects. Both read their objects through [`Lookup`] and keep what they compiled until it changes.

mod compiled;
mod mutate;
mod params;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;

use api::kinds::mutating_admission_policy::MUTATING_ADMISSION_POLICY;
use api::kinds::mutating_admission_policy_binding::MUTATING_ADMISSION_POLICY_BINDING;
use api::kinds::validating_admission_policy::VALIDATING_ADMISSION_POLICY;
use api::kinds::validating_admission_policy_binding::VALIDATING_ADMISSION_POLICY_BINDING;
use api::{Error, Resource};
use async_trait::async_trait;
use parking_lot::Mutex;

use crate::matching::is_exempt;
use crate::settings::Settings;
use crate::{Attributes, Lookup, Plugin};
use compiled::{Binding, Policy};

/// Access reviews are questions, not changes: a policy must not be able to lock everybody out.
const EXCLUDED_GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

pub struct Validating {
    policies: Cache,
    settings: Settings,
}

pub struct Mutating {
    policies: Cache,
    settings: Settings,
}

/// Policies with their bindings, compiled once.
struct Cache {
    policy: &'static Resource,
    binding: &'static Resource,
    compiled: Mutex<Compiled>,
}

/// The fingerprints of both resources, and what was compiled from them.
type Compiled = ((u64, u64), Arc<Vec<(Policy, Vec<Binding>)>>);

impl Cache {
    fn new(policy: &'static Resource, binding: &'static Resource) -> Cache {
        Cache {
            policy,
            binding,
            compiled: Mutex::default(),
        }
    }

    fn current(&self, lookup: &dyn Lookup) -> Arc<Vec<(Policy, Vec<Binding>)>> {
        let fingerprint = (lookup.fingerprint(self.policy), lookup.fingerprint(self.binding));
        let mut compiled = self.compiled.lock();
        if compiled.0 != fingerprint {
            let mut bindings: Vec<Binding> = lookup.list(self.binding, "").iter().map(Binding::parse).collect();
            let mut policies = Vec::new();
            for policy in lookup.list(self.policy, "").iter().map(Policy::compile) {
                let (own, others) = bindings.into_iter().partition(|binding| binding.policy == policy.name);
                bindings = others;
                policies.push((policy, own));
            }
            *compiled = (fingerprint, Arc::new(policies));
        }
        compiled.1.clone()
    }
}

impl Validating {
    pub fn new(settings: &Settings) -> Validating {
        Validating {
            policies: Cache::new(&VALIDATING_ADMISSION_POLICY, &VALIDATING_ADMISSION_POLICY_BINDING),
            settings: settings.clone(),
        }
    }
}

impl Mutating {
    pub fn new(settings: &Settings) -> Mutating {
        Mutating {
            policies: Cache::new(&MUTATING_ADMISSION_POLICY, &MUTATING_ADMISSION_POLICY_BINDING),
            settings: settings.clone(),
        }
    }
}

fn is_meant(attributes: &Attributes) -> bool {
    !is_exempt(attributes) && !EXCLUDED_GROUPS.contains(&attributes.resource.group)
}

#[async_trait]
impl Plugin for Validating {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        is_meant(attributes)
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let policies = self.policies.current(lookup);
        match policies.is_empty() {
            true => Ok(()),
            false => validate::run(&policies, attributes, lookup, &self.settings),
        }
    }
}

#[async_trait]
impl Plugin for Mutating {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        is_meant(attributes)
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let policies = self.policies.current(lookup);
        match policies.is_empty() {
            true => Ok(()),
            false => mutate::run(&policies, attributes, lookup, &self.settings).await,
        }
    }
}
