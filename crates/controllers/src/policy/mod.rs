//! Limits that an administrator or an owner sets: quotas and disruption budgets.

pub mod disruption;
pub mod resource_quota;
