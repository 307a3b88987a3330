//! The verb `patch`: reads a patch or an applied configuration and has the registry make the change.

use api::{Error, FieldError, Path, Reason, Value};
use http::{Response, StatusCode};
use registry::remarks::warn;
use registry::{FieldValidation, Scope, Served, Stored, Tracking, WriteOptions};

use crate::body::Body;
use crate::call::{Call, forget_revision, named};
use crate::decode::as_warning;
use crate::options::invalid_options;
use crate::patch_identity;
use crate::patch_type::{PatchType, invalid_patch};

/// How often an apply starts over because the object appeared or vanished in between.
const MAX_APPLY_TURNS: usize = 5;

/// A configuration to apply, and the keys it gives twice.
pub struct Configuration {
    pub value: Value,
    duplicate: Option<String>,
}

impl Call<'_> {
    /// The form of a patch, with options that fit it.
    pub fn patch_type(&self) -> Result<PatchType, Error> {
        let kind = PatchType::from_headers(self.headers)?;
        let problem = match kind {
            PatchType::Apply if self.query.text("fieldManager").is_none() => {
                FieldError::required(&Path::new("fieldManager"), "is required for apply patch")
            }
            PatchType::Json | PatchType::Merge | PatchType::Strategic if self.query.first("force").is_some() => {
                FieldError::forbidden(&Path::new("force"), "may not be specified for non-apply patch")
            }
            kind => return Ok(kind),
        };
        Err(invalid_options("patch", vec![problem]))
    }

    pub async fn patch(&self, scope: Scope) -> Result<Response<Body>, Error> {
        match self.patch_type()? {
            PatchType::Apply => self.apply(scope).await,
            kind => self.change(scope, kind).await,
        }
    }

    async fn change(&self, scope: Scope, kind: PatchType) -> Result<Response<Body>, Error> {
        let options = self.write_options()?;
        let patch = schema::decode_untyped(&self.body).map_err(|error| match kind {
            PatchType::Strategic => Error::bad_request(error.to_string()),
            _ => Error::bad_request(format!("error decoding patch: {error}")),
        })?;
        check_form(kind, &patch.value)?;
        let expected = self.expected()?;
        let mut warnings = Vec::new();
        let mut change = |current: &Value| {
            let mut patched = kind.patched(&self.served, current, &patch.value)?;
            if kind != PatchType::Strategic {
                patch_identity::check(&self.served, &self.info.name, &mut patched)?;
            }
            for identity in ["apiVersion", "kind"] {
                patched[identity] = current[identity].clone();
            }
            let shown = || match kind {
                PatchType::Strategic => schema::go_text(&patch.value),
                _ => patched_text(current, kind, &self.served, &patch.value),
            };
            let unknown = expected.form.normalize(&mut patched).map_err(|error| match kind {
                PatchType::Strategic => invalid_patch(shown(), &converted_text(&error.message)),
                _ => invalid_patch(shown(), &error.to_string()),
            })?;
            let problems: Vec<String> = patch.problems.iter().cloned().chain(unknown).collect();
            warnings = match options.validation {
                FieldValidation::Ignore => Vec::new(),
                FieldValidation::Strict if !problems.is_empty() => {
                    let why = format!("strict decoding error: {}", problems.join(", "));
                    return Err(invalid_patch(shown(), &why));
                }
                FieldValidation::Warn | FieldValidation::Strict => problems,
            };
            self.check_uid(&mut patched, current)?;
            Ok(patched)
        };
        let (namespace, name) = (self.namespace, &self.info.name);
        let registry = &self.server.registry;
        let stored = registry
            .update(&self.served, namespace, name, scope, &options, &mut change)
            .await;
        warn(warnings);
        self.written(StatusCode::OK, &stored?)
    }

    /// An object does not become another one by a patch.
    fn check_uid(&self, patched: &mut Value, current: &Value) -> Result<(), Error> {
        let (wanted, uid) = (&patched["metadata"]["uid"], &current["metadata"]["uid"]);
        if wanted.is_null() || wanted == "" || wanted == uid {
            return Ok(());
        }
        let path = Path::new("metadata").child("uid");
        let problem = FieldError::invalid(&path, wanted.clone(), "field is immutable");
        let mut error = Error::invalid(self.served.resource, &self.info.name, vec![problem]);
        // Upstream finds this twice.
        let causes = &mut error.details().causes;
        causes.extend_from_within(..);
        Err(error)
    }

    fn written(&self, code: StatusCode, stored: &Stored) -> Result<Response<Body>, Error> {
        self.presenter()?.stored(code, &stored.bytes, stored.revision)
    }

    /// Reads the body as a configuration to apply.
    pub fn configuration(&self, validation: FieldValidation) -> Result<Configuration, Error> {
        let parsed = schema::parse_json(&self.body).or_else(|_| schema::parse_yaml(&self.body));
        let value = parsed.map_err(|error| Error::bad_request(format!("error decoding YAML: {error}")))?;
        let found = match value {
            Value::Object(_) | Value::Null => "",
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
        };
        if !found.is_empty() {
            return Err(Error::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go \
                 value of type map[string]interface {{}}"
            )));
        }
        let duplicate = match validation {
            FieldValidation::Ignore => None,
            FieldValidation::Warn | FieldValidation::Strict => schema::duplicate_yaml_key(&self.body),
        };
        Ok(Configuration { value, duplicate })
    }

    async fn apply(&self, scope: Scope) -> Result<Response<Body>, Error> {
        let options = self.write_options()?;
        let config = self.configuration(options.validation)?;
        let applied = |live: Option<&Value>| self.applied(live, &config, scope, &options);
        let done = WriteOptions {
            tracking: Tracking::Done,
            ..options.clone()
        };
        let registry = &self.server.registry;
        let (namespace, name) = (self.namespace, &self.info.name);
        if options.validation == FieldValidation::Warn {
            warn(config.warnings());
        }
        for _ in 0..MAX_APPLY_TURNS {
            let mut change = |current: &Value| {
                let mut new = applied(Some(current))?;
                self.check_uid(&mut new, current)?;
                Ok(new)
            };
            let updated = registry
                .update(&self.served, namespace, name, scope, &done, &mut change)
                .await;
            match updated {
                Err(error) if error.reason == Reason::NotFound && scope == Scope::Main => {}
                updated => return self.written(StatusCode::OK, &updated?),
            }
            let new = self.new_object(applied(None)?)?;
            match self.create_instead(new, &done).await {
                Err(error) if error.reason == Reason::AlreadyExists => {}
                created => return self.written(StatusCode::CREATED, &created?),
            }
        }
        Err(Error::conflict(
            self.served.resource,
            name,
            "the object comes and goes; please try again",
        ))
    }

    /// The object with the configuration applied, in normal form.
    pub fn applied(
        &self,
        live: Option<&Value>,
        config: &Configuration,
        scope: Scope,
        options: &WriteOptions,
    ) -> Result<Value, Error> {
        let force = self.query.flag("force");
        let mut new = registry::apply(&self.served, live, &config.value, scope, options.manager(), force)?;
        match &config.duplicate {
            Some(problem) if options.validation == FieldValidation::Strict => {
                let why = format!("error strict decoding YAML: error converting YAML to JSON: {problem}");
                return Err(Error::bad_request(why));
            }
            _ => {}
        }
        let normal = self.expected()?.form.normalize(&mut new);
        normal.map_err(|error| {
            let message = format!("failed to convert new typed object to object: {error}");
            Error::new(Reason::Unknown, message)
        })?;
        Ok(new)
    }

    /// Whether and how an applied configuration becomes a new object.
    fn new_object(&self, mut new: Value) -> Result<Value, Error> {
        let (resource, name) = (self.served.resource, &self.info.name);
        if let Some(uid) = new["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Error::conflict(resource, name, why));
        }
        named(&new, name)?;
        forget_revision(&mut new);
        Ok(new)
    }
}

impl Configuration {
    fn warnings(&self) -> Vec<String> {
        self.duplicate.iter().map(|problem| as_warning(problem)).collect()
    }
}

/// Upstream never makes JSON of the result of a strategic patch, and has other words for a value of a wrong type.
fn converted_text(problem: &str) -> String {
    let parts = problem
        .strip_prefix("json: cannot unmarshal ")
        .and_then(|rest| rest.split_once(" into Go "));
    let Some((found, target)) = parts.and_then(|(found, rest)| Some((found, rest.rsplit_once(" of type ")?.1))) else {
        return problem.to_owned();
    };
    let found = match found {
        "array" => "slice",
        "object" => "map",
        // A number is told with its digits where it does not fit.
        number if number.starts_with("number") => "int64",
        other => other,
    };
    let is_struct = target
        .split_once('.')
        .is_some_and(|(package, _)| package.starts_with('v') || package == "intstr");
    match target {
        list if list.starts_with("[]") => format!("cannot restore slice from {found}"),
        map if map.starts_with("map[") => format!("cannot restore map from {found}"),
        _ if is_struct => format!("cannot restore struct from: {found}"),
        scalar => format!("cannot convert {found} to {scalar}"),
    }
}

/// A patch is an object, or a list of what to do.
pub fn check_form(kind: PatchType, patch: &Value) -> Result<(), Error> {
    let found = match patch {
        Value::Array(_) if kind == PatchType::Json => return Ok(()),
        Value::Object(_) if kind != PatchType::Json => return Ok(()),
        // Nothing is to be done.
        Value::Null => return Ok(()),
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    let (before, wanted) = match kind {
        PatchType::Json => ("error decoding patch: ", "[]handlers.jsonPatchOp"),
        PatchType::Merge => ("error decoding patch: ", "map[string]interface {}"),
        PatchType::Strategic | PatchType::Apply => ("", "map[string]interface {}"),
    };
    Err(Error::bad_request(format!(
        "{before}json: cannot unmarshal {found} into Go value of type {wanted}"
    )))
}

/// The patched object as JSON, before it was brought into form.
fn patched_text(current: &Value, kind: PatchType, served: &Served, patch: &Value) -> String {
    kind.apply(served, current, patch)
        .map(|patched| patched.to_string())
        .unwrap_or_default()
}
