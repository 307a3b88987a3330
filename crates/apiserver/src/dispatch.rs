//! Which handler answers a request for a resource.

use api::{Error, Reason, Verb};
use http::Response;
use registry::{Scope, not_served};

use crate::body::Body;
use crate::call::Call;
use crate::errors::method_not_allowed;
use crate::negotiate;
use crate::respond::{self, with_warnings};
use crate::{resource_metrics, reviews, subresource};

impl Call<'_> {
    pub async fn run(&self) -> Result<Response<Body>, Error> {
        let response = match (self.info.verb, self.info.subresource.as_str()) {
            (verb, "") => {
                self.check_verb(verb)?;
                self.run_main(verb).await
            }
            (_, subresource) => subresource::run(self, subresource).await,
        };
        let custom = self.served.custom.as_ref();
        let deprecated = custom.and_then(|custom| custom.version().warning.clone());
        match deprecated.or_else(|| self.served.resource.deprecation.map(str::to_owned)) {
            // Failures carry it as well.
            Some(deprecated) => {
                self.server.metrics.deprecated(self.info);
                let encoding = negotiate::error_encoding(self.headers, &self.query);
                let response = response.unwrap_or_else(|error| respond::error(&error, encoding));
                Ok(with_warnings(response, &[deprecated]))
            }
            None => response,
        }
    }

    fn check_verb(&self, verb: &str) -> Result<(), Error> {
        let resource = self.served.resource;
        if !self.info.name.is_empty() && self.is_review() {
            return Err(not_served());
        }
        let known = resource.verbs.iter().any(|allowed: &Verb| allowed.as_str() == verb);
        if let Some(custom) = &self.served.custom
            && verb == "create"
            && custom.definition.deleting
        {
            return Err(Error::new(
                Reason::MethodNotAllowed,
                "create not allowed while custom resource definition is terminating",
            ));
        }
        let misnamed = match verb {
            "create" => !self.info.name.is_empty(),
            "update" | "patch" => self.info.name.is_empty(),
            _ => false,
        };
        match known && !misnamed {
            true => Ok(()),
            false => Err(method_not_allowed()),
        }
    }

    async fn run_main(&self, verb: &str) -> Result<Response<Body>, Error> {
        if self.served.resource.group == "metrics.k8s.io" {
            return resource_metrics::run(self, verb).await;
        }
        if self.served.resource.storage.is_empty() {
            return reviews::run(self, verb).await;
        }
        match verb {
            "get" => self.get().await,
            "list" => self.list().await,
            "watch" => self.watch().await,
            "create" => self.create().await,
            "update" => self.update(Scope::Main).await,
            "patch" => self.patch(Scope::Main).await,
            "delete" => self.delete().await,
            "deletecollection" => self.delete_collection().await,
            _ => Err(method_not_allowed()),
        }
    }
}
