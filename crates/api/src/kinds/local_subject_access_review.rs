use crate::{Resource, Verb};

pub static LOCAL_SUBJECT_ACCESS_REVIEW: Resource = Resource::namespaced(
    "authorization.k8s.io",
    "v1",
    "LocalSubjectAccessReview",
    "localsubjectaccessreviews",
    "localsubjectaccessreview",
)
.with_verbs(&[Verb::Create])
.not_stored();
