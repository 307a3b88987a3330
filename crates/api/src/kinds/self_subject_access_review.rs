use crate::{Resource, Verb};

pub static SELF_SUBJECT_ACCESS_REVIEW: Resource = Resource::cluster(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    "selfsubjectaccessreview",
)
.with_verbs(&[Verb::Create])
.not_stored();
