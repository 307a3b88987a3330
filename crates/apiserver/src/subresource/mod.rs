//! Subresources that read or change their parent object.

mod binding;
mod eviction;
mod scale;
mod token;

use api::{Error, Subresource, Value};
use http::{Response, StatusCode};
use registry::remarks::warn;
use registry::{Scope, Tracking, not_served};

pub use binding::bind;

use crate::body::Body;
use crate::call::{Call, named};
use crate::decode;
use crate::errors::method_not_allowed;
use crate::patch_type::PatchType;

pub async fn run(call: &Call<'_>, name: &str) -> Result<Response<Body>, Error> {
    let Some(subresource) = call.served.resource.subresource(name) else {
        return Err(not_served());
    };
    check_verb(subresource, call.info.verb)?;
    match (name, call.info.verb) {
        ("status", "get") => call.get().await,
        ("status", "update") => call.update(Scope::Status).await,
        ("status", "patch") => call.patch(Scope::Status).await,
        ("scale", _) => scale::run(call).await,
        ("binding", _) => bind(call).await,
        ("eviction", _) => eviction::run(call).await,
        ("token", _) => token::run(call).await,
        (_, "get") => call.get().await,
        _ if subresource.changes.is_some() => change_part(call, subresource.name).await,
        _ => Err(not_served()),
    }
}

fn check_verb(subresource: &Subresource, verb: &str) -> Result<(), Error> {
    match subresource.verbs.iter().any(|allowed| allowed.as_str() == verb) {
        true => Ok(()),
        false => Err(method_not_allowed()),
    }
}

/// Takes some parts of the written object; the registry leaves the rest as it is.
async fn change_part(call: &Call<'_>, name: &'static str) -> Result<Response<Body>, Error> {
    let mut options = call.write_options()?;
    let scope = Scope::Subresource(name);
    let written = match call.info.verb {
        "update" => {
            let (written, unknown) = decode::object(call.expected()?, call.headers, &call.body, options.validation)?;
            warn(unknown);
            named(&written, &call.info.name)?;
            Some(written)
        }
        _ => None,
    };
    let mut config = None;
    let patch = match written {
        None => match call.patch_type()? {
            PatchType::Apply => {
                config = Some((call.configuration(options.validation)?, options.clone()));
                options.tracking = Tracking::Done;
                None
            }
            kind => Some((kind, parse_patch(&call.body)?)),
        },
        Some(_) => None,
    };
    let mut change = |current: &Value| match (&written, &patch, &config) {
        (Some(written), ..) => Ok(written.clone()),
        (None, Some((kind, patch)), _) => kind.apply(&call.served, current, patch),
        (None, None, Some((config, options))) => call.applied(Some(current), config, scope, options),
        (None, None, None) => Ok(current.clone()),
    };
    let (namespace, object) = (call.namespace, &call.info.name);
    let registry = &call.server.registry;
    let stored = registry
        .update(&call.served, namespace, object, scope, &options, &mut change)
        .await?;
    call.presenter()?.stored(StatusCode::OK, &stored.bytes, stored.revision)
}

fn parse_patch(body: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(body).map_err(|error| Error::bad_request(format!("error decoding patch: {error}")))
}
