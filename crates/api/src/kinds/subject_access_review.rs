use crate::{Resource, Verb};

pub static SUBJECT_ACCESS_REVIEW: Resource = Resource::cluster(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    "subjectaccessreview",
)
.with_verbs(&[Verb::Create])
.not_stored();
