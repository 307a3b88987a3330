use crate::{Resource, Verb};

pub static SELF_SUBJECT_REVIEW: Resource = Resource::cluster(
    "authentication.k8s.io",
    "v1",
    "SelfSubjectReview",
    "selfsubjectreviews",
    "selfsubjectreview",
)
.with_verbs(&[Verb::Create])
.not_stored();
