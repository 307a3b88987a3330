//! From the claims of a verified token to a user.

use std::collections::BTreeMap;

use cel::{Activation, Budget, PER_CALL_LIMIT, Program, RUNTIME_BUDGET};
use serde_json::{Map, Value};

use super::compile::{ClaimRule, JwtAuthenticator, ListSource, Rule, TextSource};
use crate::User;

type Claims = Map<String, Value>;

impl JwtAuthenticator {
    pub(super) fn user(&self, claims: &Claims) -> Result<User, String> {
        let mut evaluation = Evaluation::about("claims", cel::Value::from_json(&Value::Object(claims.clone())));
        let name = self.username(claims, &mut evaluation)?;
        let groups = self.groups_of(claims, &mut evaluation)?;
        let uid = match &self.uid {
            None => String::new(),
            Some(TextSource::Claim { claim, .. }) => {
                text_claim(claims, claim).map_err(|why| format!("error parsing uid claim {claim:?}: {why}"))?
            }
            Some(TextSource::Expression(program)) => evaluation
                .text(program)
                .map_err(|why| format!("error evaluating uid claim expression: {why}"))?,
        };
        let mut extra = BTreeMap::new();
        for (key, program) in &self.extra {
            let values = evaluation
                .list(program)
                .map_err(|why| format!("error evaluating extra claim expression: {why}"))?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        self.check_claims(claims, &mut evaluation)?;
        let user = User {
            name,
            uid,
            groups,
            extra,
        };
        self.check_user(&user)?;
        Ok(user.authenticated())
    }

    fn username(&self, claims: &Claims, evaluation: &mut Evaluation) -> Result<String, String> {
        let name = match &self.username {
            TextSource::Expression(program) => evaluation
                .text(program)
                .map_err(|why| format!("error evaluating username claim expression: {why}"))?,
            TextSource::Claim { claim, prefix } => {
                let name =
                    text_claim(claims, claim).map_err(|why| format!("parse username claims {claim:?}: {why}"))?;
                if claim == "email" {
                    check_email(claims)?;
                }
                match name.is_empty() {
                    true => name,
                    false => format!("{prefix}{name}"),
                }
            }
        };
        match name.is_empty() {
            true => Err("the username of the token is empty".to_owned()),
            false => Ok(name),
        }
    }

    fn groups_of(&self, claims: &Claims, evaluation: &mut Evaluation) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(ListSource::Expression(program)) => evaluation
                .list(program)
                .map_err(|why| format!("error evaluating group claim expression: {why}")),
            Some(ListSource::Claim { claim, prefix }) => {
                let is_elsewhere = claims
                    .get("_claim_names")
                    .is_some_and(|names| names.get(claim).is_some());
                let found = match claims.get(claim) {
                    None if is_elsewhere => {
                        return Err(format!(
                            "claim {claim:?} is a distributed claim, which is not supported"
                        ));
                    }
                    None | Some(Value::Null) => Vec::new(),
                    Some(Value::String(one)) => vec![one.clone()],
                    Some(Value::Array(many)) => {
                        let texts: Option<Vec<String>> =
                            many.iter().map(|one| one.as_str().map(str::to_owned)).collect();
                        texts.ok_or_else(|| format!("parse groups claim {claim:?}: not a list of strings"))?
                    }
                    Some(_) => return Err(format!("parse groups claim {claim:?}: not a string or list of strings")),
                };
                Ok(found.iter().map(|group| format!("{prefix}{group}")).collect())
            }
        }
    }

    fn check_claims(&self, claims: &Claims, evaluation: &mut Evaluation) -> Result<(), String> {
        for rule in &self.claim_rules {
            match rule {
                ClaimRule::Required { claim, value } => {
                    let found = text_claim(claims, claim).map_err(|why| match why {
                        "claim not present" => format!("required claim {claim} not present in ID token"),
                        why => format!("parse claim {claim}: {why}"),
                    })?;
                    if found != *value {
                        return Err(format!(
                            "required claim {claim} value does not match. Got = {found}, want = {value}"
                        ));
                    }
                }
                ClaimRule::Expression(rule) => evaluation
                    .check(rule)
                    .map_err(|why| format!("error evaluating claim validation expression: {why}"))?,
            }
        }
        Ok(())
    }

    fn check_user(&self, user: &User) -> Result<(), String> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let texts = |values: &[String]| cel::Value::list(values.iter().map(|value| cel::Value::text(value)).collect());
        let extra = user.extra.iter().map(|(key, values)| (key.as_str(), texts(values)));
        let about = cel::Value::record([
            ("username", cel::Value::text(&user.name)),
            ("uid", cel::Value::text(&user.uid)),
            ("groups", texts(&user.groups)),
            ("extra", cel::Value::record(extra)),
        ]);
        let mut evaluation = Evaluation::about("user", about);
        for rule in &self.user_rules {
            evaluation
                .check(rule)
                .map_err(|why| format!("error evaluating user info validation rule: {why}"))?;
        }
        Ok(())
    }
}

/// A name that is an address counts only if the issuer has seen that it is the user's. Issuers that say nothing of it are
/// believed, as they are upstream.
fn check_email(claims: &Claims) -> Result<(), String> {
    match claims.get("email_verified") {
        None => Ok(()),
        Some(Value::Bool(true)) => Ok(()),
        Some(Value::Bool(false)) => Err("email not verified".to_owned()),
        Some(_) => Err("parse 'email_verified' claim: not a boolean".to_owned()),
    }
}

fn text_claim(claims: &Claims, claim: &str) -> Result<String, &'static str> {
    match claims.get(claim) {
        None => Err("claim not present"),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err("claim is not a string"),
    }
}

/// Runs the expressions of one token over one variable, with one budget for all of them.
struct Evaluation {
    name: &'static str,
    value: cel::Value,
    budget: Budget,
}

impl Evaluation {
    fn about(name: &'static str, value: cel::Value) -> Evaluation {
        Evaluation {
            name,
            value,
            budget: Budget::new(RUNTIME_BUDGET, PER_CALL_LIMIT),
        }
    }

    fn run(&mut self, program: &Program) -> Result<cel::Value, String> {
        let variables = Variable {
            name: self.name,
            value: &self.value,
        };
        program
            .evaluate(&variables, &mut self.budget)
            .map_err(|error| error.to_string())
    }

    fn text(&mut self, program: &Program) -> Result<String, String> {
        match self.run(program)? {
            cel::Value::String(text) => Ok(text.to_string()),
            _ => Err("the expression must return a string".to_owned()),
        }
    }

    /// A text, or several; empty ones and null are none.
    fn list(&mut self, program: &Program) -> Result<Vec<String>, String> {
        let wrong = || "the expression must return a string or a list of strings".to_owned();
        let values = match self.run(program)? {
            cel::Value::Null => return Ok(Vec::new()),
            one @ cel::Value::String(_) => vec![one],
            cel::Value::List(many) => many.to_vec(),
            _ => return Err(wrong()),
        };
        let mut texts = Vec::new();
        for value in &values {
            let text = value.as_text().ok_or_else(wrong)?;
            if !text.is_empty() {
                texts.push(text.to_owned());
            }
        }
        Ok(texts)
    }

    fn check(&mut self, rule: &Rule) -> Result<(), String> {
        match self.run(&rule.program)?.is_true() {
            true => Ok(()),
            false if rule.message.is_empty() => Err(format!("validation expression '{}' failed", rule.expression)),
            false => Err(format!(
                "validation expression '{}' failed: {}",
                rule.expression, rule.message
            )),
        }
    }
}

struct Variable<'a> {
    name: &'a str,
    value: &'a cel::Value,
}

impl Activation for Variable<'_> {
    fn variable(&self, name: &str) -> Option<cel::Value> {
        (name == self.name).then(|| self.value.clone())
    }
}
