use crate::{Resource, Verb};

pub static SELF_SUBJECT_RULES_REVIEW: Resource = Resource::cluster(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    "selfsubjectrulesreview",
)
.with_verbs(&[Verb::Create])
.not_stored();
