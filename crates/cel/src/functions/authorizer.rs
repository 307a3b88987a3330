//! Questions to the authorizer: `authorizer.group('apps').resource('deployments').check('create').allowed()`.

use std::fmt;
use std::sync::Arc;

use super::Price::{Authorize as Ask, Step};
use super::{Row, strings};
use crate::error::failed;
use crate::{EvalError, Value};

/// Who is asked. The one who answers knows the user that is meant when none is named.
pub trait Authorize: Send + Sync {
    fn authorize(&self, check: &Check) -> Outcome;
}

/// What is asked. Empty texts mean that the question has no such part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// A service account instead of the user: namespace and name.
    pub service_account: Option<(String, String)>,
    pub verb: String,
    pub path: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// A question that is being put together.
#[derive(Clone)]
pub struct Request {
    who: Arc<dyn Authorize>,
    stage: Stage,
    check: Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
}

impl Value {
    /// The variable `authorizer`.
    pub fn authorizer(who: Arc<dyn Authorize>) -> Value {
        let check = Check::default();
        let stage = Stage::Authorizer;
        Value::Authorizer(Arc::new(Request { who, stage, check }))
    }

    /// The variable `authorizer.requestResource`, which already names what the request is about.
    pub fn request_resource(who: Arc<dyn Authorize>, check: Check) -> Value {
        let stage = Stage::Resource;
        Value::Authorizer(Arc::new(Request { who, stage, check }))
    }
}

impl Request {
    pub fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "authorizer",
            Stage::Path => "path_check",
            Stage::Group => "group_check",
            Stage::Resource => "resource_check",
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {:?}", self.stage, self.check)
    }
}

pub const TABLE: &[Row] = &[
    Row("<authorizer>.path(string): path_check", Step, |v| {
        with(v, Stage::Path, |check, text| check.path = text)
    }),
    Row("<authorizer>.group(string): group_check", Step, |v| {
        with(v, Stage::Group, |check, text| check.group = text)
    }),
    Row("<authorizer>.serviceAccount(string, string): authorizer", Step, |v| {
        let request = as_request(&v[0])?;
        let mut request = (**request).clone();
        let account = (strings::text(&v[1]).to_owned(), strings::text(&v[2]).to_owned());
        request.check.service_account = Some(account);
        Ok(Value::Authorizer(Arc::new(request)))
    }),
    Row("<group_check>.resource(string): resource_check", Step, |v| {
        with(v, Stage::Resource, |check, text| check.resource = text)
    }),
    Row("<resource_check>.subresource(string): resource_check", Step, |v| {
        with(v, Stage::Resource, |check, text| check.subresource = text)
    }),
    Row("<resource_check>.namespace(string): resource_check", Step, |v| {
        with(v, Stage::Resource, |check, text| check.namespace = text)
    }),
    Row("<resource_check>.name(string): resource_check", Step, |v| {
        with(v, Stage::Resource, |check, text| check.name = text)
    }),
    Row("<path_check>.check(string): decision", Ask, check),
    Row("<resource_check>.check(string): decision", Ask, check),
    Row("<decision>.allowed(): bool", Step, |v| {
        Ok(Value::Bool(decision(&v[0])?.allowed))
    }),
    Row("<decision>.reason(): string", Step, |v| {
        Ok(Value::text(&decision(&v[0])?.reason))
    }),
    Row("<decision>.errored(): bool", Step, |v| {
        Ok(Value::Bool(decision(&v[0])?.error.is_some()))
    }),
    Row("<decision>.error(): string", Step, |v| {
        Ok(Value::text(decision(&v[0])?.error.as_deref().unwrap_or_default()))
    }),
];

fn as_request(value: &Value) -> Result<&Arc<Request>, EvalError> {
    match value {
        Value::Authorizer(request) => Ok(request),
        _ => Err(failed("no such overload")),
    }
}

fn decision(value: &Value) -> Result<&Outcome, EvalError> {
    match value {
        Value::Decision(outcome) => Ok(outcome),
        _ => Err(failed("no such overload")),
    }
}

fn with(v: &[Value], stage: Stage, set: fn(&mut Check, String)) -> Result<Value, EvalError> {
    let mut request = (**as_request(&v[0])?).clone();
    request.stage = stage;
    set(&mut request.check, strings::text(&v[1]).to_owned());
    Ok(Value::Authorizer(Arc::new(request)))
}

fn check(v: &[Value]) -> Result<Value, EvalError> {
    let request = as_request(&v[0])?;
    let mut check = request.check.clone();
    check.verb = strings::text(&v[1]).to_owned();
    Ok(Value::Decision(Arc::new(request.who.authorize(&check))))
}
