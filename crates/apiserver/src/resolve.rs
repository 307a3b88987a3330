//! Which resource a request is about and where its objects are. This is decided here and nowhere else, and handed on as
//! one value: what authorization is asked about is what the registry reads and writes.

use std::sync::Arc;

use api::{Error, Verb};
use http::Method;
use registry::{Registry, Served, not_served};

use crate::aggregation::{Aggregation, Remote};
use crate::errors::method_not_allowed;
use crate::request::RequestInfo;

/// What a request is about.
pub enum Resolved<'a> {
    /// Discovery, health and whatever else names no resource.
    Path,
    /// A group and version that another server serves.
    Remote(Arc<Remote>),
    Resource(ResourceRequest<'a>),
    /// Nothing, which only those are told who may ask.
    NotServed(NotServed),
}

/// Why there is nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum NotServed {
    /// A place of the API without anything in it.
    Refused(Error),
    /// No resource of that name.
    NoResource,
    /// No place of the API at all, which is answered as a web server does.
    NoPage,
}

/// A request for a resource that is served, at a place where the resource has objects: a namespaced one in a namespace,
/// or in all of them where that makes sense, and a cluster-scoped one in none. Nobody else can make one.
#[derive(Clone)]
pub struct ResourceRequest<'a> {
    served: Arc<Served>,
    info: &'a RequestInfo,
}

impl<'a> ResourceRequest<'a> {
    fn new(served: Arc<Served>, info: &'a RequestInfo, method: &Method) -> Result<ResourceRequest<'a>, NotServed> {
        let is_custom = served.custom.is_some();
        let absent = |error: Error| match is_custom {
            true => NotServed::NoPage,
            false => NotServed::Refused(error),
        };
        check_place(&served, info).map_err(absent)?;
        check_form(&served, info, method).map_err(absent)?;
        check_name(&served, info).map_err(NotServed::Refused)?;
        Ok(ResourceRequest { served, info })
    }

    pub fn served(&self) -> &Arc<Served> {
        &self.served
    }

    pub fn info(&self) -> &'a RequestInfo {
        self.info
    }

    /// The namespace of the objects. Empty for those outside of namespaces, and for lists of all namespaces.
    pub fn namespace(&self) -> &'a str {
        match self.served.resource.namespaced {
            true => &self.info.namespace,
            false => "",
        }
    }

    /// The namespace whose roles count: that of the objects; and Namespaces are in themselves.
    pub fn authorized_namespace(&self) -> &'a str {
        match is_namespace(&self.served) {
            true => &self.info.name,
            false => self.namespace(),
        }
    }
}

pub fn resolve<'a>(
    registry: &Registry,
    aggregation: &Aggregation,
    info: &'a RequestInfo,
    method: &Method,
) -> Resolved<'a> {
    if info.path.starts_with("//") {
        return Resolved::NotServed(NotServed::NoPage);
    }
    if let Some(remote) = aggregation.remote_of(info) {
        return Resolved::Remote(remote);
    }
    if !info.is_resource {
        return Resolved::Path;
    }
    let Some(served) = registry.find(&info.group, &info.version, &info.resource) else {
        return Resolved::NotServed(NotServed::NoResource);
    };
    match ResourceRequest::new(served, info, method) {
        Ok(request) => Resolved::Resource(request),
        Err(nothing) => Resolved::NotServed(nothing),
    }
}

/// Only a proxy has anything behind it and takes every method, and of verbs in the path there is only `watch`, for those
/// who read.
fn check_form(served: &Served, info: &RequestInfo, method: &Method) -> Result<(), Error> {
    let is_proxy = info.subresource == "proxy";
    let can_be_watched = served.resource.allows(Verb::Watch) && info.verb == "watch" && info.subresource.is_empty();
    if (info.has_rest() && !is_proxy) || (info.is_verb_in_path && !can_be_watched) {
        return Err(not_served());
    }
    let is_known = match *method {
        Method::HEAD => is_proxy || served.custom.is_some(),
        Method::GET => true,
        _ => !info.is_verb_in_path,
    };
    match is_known {
        true => Ok(()),
        false => Err(method_not_allowed()),
    }
}

/// A namespace belongs to namespaced resources, and to those alone. Without one they can be listed and watched.
fn check_place(served: &Served, info: &RequestInfo) -> Result<(), Error> {
    let in_namespace = info.is_below_namespace && !info.namespace.is_empty();
    let across_namespaces =
        info.name.is_empty() && matches!(info.verb, "list" | "watch") && served.resource.allows(Verb::List);
    match served.resource.namespaced {
        false if info.is_below_namespace => Err(not_served()),
        false if !info.namespace.is_empty() && !is_namespace(served) => Err(not_served()),
        false => Ok(()),
        true if in_namespace || across_namespaces => Ok(()),
        true if info.is_below_namespace => Err(Error::bad_request("Namespace parameter required.")),
        true if info.name.is_empty() && info.subresource.is_empty() && served.resource.allows(Verb::List) => {
            Err(method_not_allowed())
        }
        true => Err(not_served()),
    }
}

/// A name is one part of a key.
fn check_name(served: &Served, info: &RequestInfo) -> Result<(), Error> {
    let name = info.name.as_str();
    if name.is_empty() && served.resource.subresource(&info.subresource).is_some() {
        return Err(Error::bad_request("name must be provided"));
    }
    match name_problem(name) {
        Some(problem) => Err(Error::bad_request(format!(
            "Name parameter invalid: {name:?}: {problem}"
        ))),
        None => Ok(()),
    }
}

/// Whether a name can stand in a path, and so be one of an object.
pub fn is_path_segment(name: &str) -> bool {
    name_problem(name).is_none()
}

fn name_problem(name: &str) -> Option<String> {
    let contains = |text: &&&str| name.contains(**text);
    match name {
        "." | ".." => Some(format!("may not be '{name}'")),
        _ => {
            let forbidden = ["/", "%"].iter().filter(contains);
            let problems: Vec<String> = forbidden.map(|text| format!("may not contain '{text}'")).collect();
            (!problems.is_empty()).then(|| problems.join(";"))
        }
    }
}

fn is_namespace(served: &Served) -> bool {
    std::ptr::eq(served.resource, &api::kinds::namespace::NAMESPACE)
}
