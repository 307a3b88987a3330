//! What a request asks for, read from its method, path and query.
//!
//! The path is percent-decoded here, once and as a whole, before it is taken apart. Nothing after this decodes,
//! collapses or cleans it again: authorization, fairness, metrics and handlers all see the same parts.

mod path;
mod query;
#[cfg(test)]
mod tests;

use http::Method;

pub use path::{encode as encode_path, unescape};
pub use query::Query;

/// The parts of a URL as the API understands them. For paths that name no resource only `path` and `verb` are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    pub is_resource: bool,
    /// The whole path, decoded.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, … for resources; the lower-case method otherwise.
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    /// The namespace that the path names. Of a Namespace it is the object's own name, so that roles in it can allow to
    /// read it.
    pub namespace: String,
    /// Whether the path has the form `namespaces/NAMESPACE/RESOURCE…`, be the namespace empty.
    pub is_below_namespace: bool,
    /// Whether the verb stands before the resource, as in `/api/v1/watch/pods`.
    pub is_verb_in_path: bool,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource, cleaned of dots and empty parts and encoded again: the path that `proxy` passes on.
    pub rest: String,
    /// How many parts of the path stand before the rest.
    parts_before_rest: usize,
}

/// Paths that cannot be understood, which are answered before anybody is asked who they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("the path has a percent sign that no two hexadecimal digits follow")]
    Escape,
    #[error("unable to determine kind and namespace from url, {0}")]
    NoResource(String),
}

const NAMESPACE_SUBRESOURCES: &[&str] = &["status", "finalize"];

impl RequestInfo {
    /// Reads a path as it was sent.
    pub fn parse(method: &Method, raw_path: &str, query: &Query) -> Result<RequestInfo, BadPath> {
        let decoded = path::decode(raw_path).ok_or(BadPath::Escape)?;
        let path = String::from_utf8_lossy(&decoded).into_owned();
        let mut info = RequestInfo {
            verb: path_verb(method),
            ..RequestInfo::default()
        };
        info.read(method, &path, query)
            .map_err(|()| BadPath::NoResource(raw_path.to_owned()))?;
        if info.parts_before_rest > 0 {
            info.rest = path::rest(&decoded, info.parts_before_rest);
        }
        Ok(RequestInfo { path, ..info })
    }

    /// Reads `/api/VERSION/…` and `/apis/GROUP/VERSION/…`; all else names no resource.
    fn read(&mut self, method: &Method, path: &str, query: &Query) -> Result<(), ()> {
        let parts: Vec<&str> = path::parts(path).collect();
        let (group, version, before) = match parts.as_slice() {
            ["api", version, _, ..] => ("", *version, 2),
            ["apis", group, version, _, ..] => (*group, *version, 3),
            _ => return Ok(()),
        };
        self.is_resource = true;
        group.clone_into(&mut self.group);
        version.clone_into(&mut self.version);
        self.read_resource(method, &parts[before..], before)?;
        self.narrow_verb(query);
        Ok(())
    }

    /// Reads `[watch/] [namespaces/NS/] RESOURCE [/NAME [/SUBRESOURCE [/REST…]]]`, of which `before` parts are read.
    fn read_resource(&mut self, method: &Method, mut parts: &[&str], mut before: usize) -> Result<(), ()> {
        self.verb = match (parts[0], parts.len()) {
            ("watch" | "proxy", 1) => return Err(()),
            (prefix @ ("watch" | "proxy"), _) => {
                self.is_verb_in_path = true;
                (parts, before) = (&parts[1..], before + 1);
                if prefix == "watch" { "watch" } else { "proxy" }
            }
            _ => resource_verb(method),
        };
        if parts[0] == "namespaces" && parts.len() > 1 {
            parts[1].clone_into(&mut self.namespace);
            if parts.len() > 2 && !NAMESPACE_SUBRESOURCES.contains(&parts[2]) {
                self.is_below_namespace = true;
                (parts, before) = (&parts[2..], before + 2);
            }
        }
        let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
        (self.resource, self.name) = (part(0), part(1));
        if self.verb != "proxy" {
            self.subresource = part(2);
        }
        if parts.len() >= 3 {
            self.parts_before_rest = before + 3;
        }
        Ok(())
    }

    /// A read of no object in particular is a list or a watch, and a deletion one of all.
    fn narrow_verb(&mut self, query: &Query) {
        if self.name.is_empty() {
            self.verb = match self.verb {
                "get" if query.flag("watch") => "watch",
                "get" => "list",
                "delete" => "deletecollection",
                verb => verb,
            };
        }
    }

    /// The parts of the path between slashes; one at its end counts for nothing.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        path::parts(&self.path)
    }

    /// Whether anything follows the subresource.
    pub fn has_rest(&self) -> bool {
        self.parts_before_rest > 0 && self.parts().count() > self.parts_before_rest
    }

    /// The part of a proxied request's path that names the proxy and not what is behind it, encoded.
    pub fn path_before_rest(&self) -> String {
        let parts: Vec<&str> = self.parts().take(self.parts_before_rest).collect();
        encode_path(format!("/{}", parts.join("/")).as_bytes())
    }
}

fn path_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        Method::TRACE => "trace",
        Method::CONNECT => "connect",
        // No rule but one for all verbs names such a method.
        _ => "",
    }
}

fn resource_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}
