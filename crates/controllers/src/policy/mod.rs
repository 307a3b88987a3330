//! What an administrator or an owner sets: quotas, disruption budgets and admission policies.

pub mod admission_policy_status;
pub mod disruption;
pub mod resource_quota;
