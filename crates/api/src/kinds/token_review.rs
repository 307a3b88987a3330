use crate::{Resource, Verb};

pub static TOKEN_REVIEW: Resource = Resource::cluster(
    "authentication.k8s.io",
    "v1",
    "TokenReview",
    "tokenreviews",
    "tokenreview",
)
.with_verbs(&[Verb::Create])
.not_stored();
