//! Checks an issuer's configuration with upstream's words and makes an authenticator of it.

use std::collections::HashSet;

use api::{FieldError, Path, Problems, names};
use cel::{Environment, Program, Type};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::key_set::Algorithm;
use super::spec::{
    AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, IssuerSpec, JwtAuthenticatorSpec,
    PrefixedClaimOrExpression, UserValidationRule,
};
use crate::configuration::ConfigurationError;

/// The most issuers in one configuration.
const MAX_ISSUERS: usize = 64;

/// One issuer, and how its claims become users.
#[derive(Debug)]
pub struct JwtAuthenticator {
    issuer: IssuerSpec,
    algorithms: Vec<Algorithm>,
    pub(super) username: TextSource,
    pub(super) groups: Option<ListSource>,
    pub(super) uid: Option<TextSource>,
    pub(super) extra: Vec<(String, Program)>,
    pub(super) claim_rules: Vec<ClaimRule>,
    pub(super) user_rules: Vec<Rule>,
}

#[derive(Debug)]
pub(super) enum TextSource {
    Claim { claim: String, prefix: String },
    Expression(Program),
}

#[derive(Debug)]
pub(super) enum ListSource {
    Claim { claim: String, prefix: String },
    Expression(Program),
}

#[derive(Debug)]
pub(super) enum ClaimRule {
    Required { claim: String, value: String },
    Expression(Rule),
}

#[derive(Debug)]
pub(super) struct Rule {
    pub program: Program,
    pub expression: String,
    pub message: String,
}

impl AuthenticationConfiguration {
    /// The authenticators of all issuers, or everything that is wrong. Nobody else may issue in the name of
    /// `own_issuers`, which sign service account tokens.
    pub fn authenticators(&self, own_issuers: &[String]) -> Result<Vec<JwtAuthenticator>, ConfigurationError> {
        let root = Path::new("jwt");
        let mut problems = Problems::default();
        if self.jwt.len() > MAX_ISSUERS {
            let too_many = FieldError::too_many(&root, self.jwt.len(), MAX_ISSUERS);
            return Err(ConfigurationError::Invalid(vec![too_many]));
        }
        let mut compiled = Vec::new();
        let (mut urls, mut discovery_urls) = (HashSet::new(), HashSet::new());
        for (index, spec) in self.jwt.iter().enumerate() {
            let path = root.index(index);
            compiled.extend(compile(spec, &Algorithm::ALL, own_issuers, &path, &mut problems));
            let issuer = path.child("issuer");
            if !urls.insert(&spec.issuer.url) {
                problems.duplicate(&issuer, "url", spec.issuer.url.as_str());
            }
            if !spec.issuer.discovery_url.is_empty() && !discovery_urls.insert(&spec.issuer.discovery_url) {
                problems.duplicate(&issuer, "discoveryURL", spec.issuer.discovery_url.as_str());
            }
        }
        if let Some(anonymous) = self.anonymous.as_ref().filter(|anonymous| !anonymous.enabled)
            && !anonymous.conditions.is_empty()
        {
            let shown = serde_json::to_value(&anonymous.conditions).unwrap_or_default();
            let detail = "enabled should be set to true when conditions are defined";
            problems.invalid(&Path::new("anonymous"), "conditions", shown, detail);
        }
        match problems.is_empty() {
            true => Ok(compiled),
            false => Err(ConfigurationError::Invalid(problems.into_vec())),
        }
    }
}

impl JwtAuthenticator {
    /// One issuer with the algorithms that its tokens may be signed by.
    pub fn new(
        spec: &JwtAuthenticatorSpec,
        algorithms: &[Algorithm],
        own_issuers: &[String],
    ) -> Result<JwtAuthenticator, ConfigurationError> {
        let mut problems = Problems::default();
        let compiled = compile(spec, algorithms, own_issuers, &Path::default(), &mut problems);
        match compiled.filter(|_| problems.is_empty()) {
            Some(compiled) => Ok(compiled),
            None => Err(ConfigurationError::Invalid(problems.into_vec())),
        }
    }

    pub fn issuer_url(&self) -> &str {
        &self.issuer.url
    }

    /// Where the issuer says where its keys are.
    pub fn discovery_url(&self) -> String {
        match self.issuer.discovery_url.as_str() {
            "" => format!(
                "{}/.well-known/openid-configuration",
                self.issuer.url.trim_end_matches('/')
            ),
            url => url.to_owned(),
        }
    }

    /// PEM certificates that the issuer's server must chain up to; the system's without any.
    pub fn certificate_authority(&self) -> Option<&str> {
        Some(self.issuer.certificate_authority.as_str()).filter(|pem| !pem.is_empty())
    }

    pub fn audiences(&self) -> &[String] {
        &self.issuer.audiences
    }

    pub(super) fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }
}

/// `None` when there is a problem with it; others may have been found as well.
fn compile(
    spec: &JwtAuthenticatorSpec,
    algorithms: &[Algorithm],
    own_issuers: &[String],
    path: &Path,
    problems: &mut Problems,
) -> Option<JwtAuthenticator> {
    let before = problems.len();
    validate_issuer(&spec.issuer, own_issuers, &path.child("issuer"), problems);
    let claims = Environment::default().with("claims", Type::map(Type::String, Type::Dyn));
    let mut compiler = Compiler {
        environment: &claims,
        problems,
    };
    let claim_rules = compiler.claim_rules(&spec.claim_validation_rules, &path.child("claimValidationRules"));
    let mappings = &spec.claim_mappings;
    let place = path.child("claimMappings");
    let username = compiler.source(&mappings.username, &place.child("username"), true);
    let groups = compiler.source(&mappings.groups, &place.child("groups"), false);
    let uid = compiler.uid(mappings, &place);
    let extra = compiler.extra(mappings, &place.child("extra"));
    check_email_use(mappings, username.as_ref(), &extra, &claim_rules, &place, problems);
    let user_rules = user_rules(
        &spec.user_validation_rules,
        &path.child("userValidationRules"),
        problems,
    );
    let groups = groups.map(|source| match source {
        TextSource::Claim { claim, prefix } => ListSource::Claim { claim, prefix },
        TextSource::Expression(program) => ListSource::Expression(program),
    });
    let username = username.filter(|_| problems.len() == before)?;
    Some(JwtAuthenticator {
        issuer: spec.issuer.clone(),
        algorithms: algorithms.to_vec(),
        username,
        groups,
        uid,
        extra,
        claim_rules,
        user_rules,
    })
}

fn validate_issuer(issuer: &IssuerSpec, own_issuers: &[String], path: &Path, problems: &mut Problems) {
    match issuer.url.as_str() {
        "" => problems.required(path, "url", ""),
        url => validate_url(url, own_issuers, path, "url", problems),
    }
    let discovery = issuer.discovery_url.as_str();
    if !discovery.is_empty() {
        if issuer.url.trim_end_matches('/') == discovery.trim_end_matches('/') {
            problems.invalid(
                path,
                "discoveryURL",
                discovery,
                "discoveryURL must be different from URL",
            );
        }
        validate_url(discovery, &[], path, "discoveryURL", problems);
    }
    validate_audiences(issuer, path, problems);
    if !issuer.certificate_authority.is_empty() {
        let found: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(issuer.certificate_authority.as_bytes()).collect();
        if found.is_ok_and(|found| found.is_empty()) {
            let detail = "data does not contain any valid RSA or ECDSA certificates";
            problems.invalid(path, "certificateAuthority", "<omitted>", detail);
        }
    }
    if !issuer.egress_selector_type.is_empty() {
        let detail = "egress selectors are not supported: issuers are always connected to directly";
        problems.invalid(path, "egressSelectorType", issuer.egress_selector_type.as_str(), detail);
    }
}

fn validate_url(url: &str, own_issuers: &[String], path: &Path, field: &str, problems: &mut Problems) {
    if own_issuers.iter().any(|own| own == url) {
        let detail = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            own_issuers.join(" ")
        );
        problems.invalid(path, field, url, detail);
    }
    let (address, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (address, query) = address.split_once('?').unwrap_or((address, ""));
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let authority = rest.split('/').next().unwrap_or_default();
    if scheme != "https" {
        problems.invalid(path, field, url, "URL scheme must be https");
    }
    if authority.contains('@') {
        problems.invalid(path, field, url, "URL must not contain a username or password");
    }
    if !query.is_empty() {
        problems.invalid(path, field, url, "URL must not contain a query");
    }
    if !fragment.is_empty() {
        problems.invalid(path, field, url, "URL must not contain a fragment");
    }
}

fn validate_audiences(issuer: &IssuerSpec, path: &Path, problems: &mut Problems) {
    let place = path.child("audiences");
    let policy = issuer.audience_match_policy.as_str();
    if issuer.audiences.is_empty() {
        problems.required(&place, "", &format!("at least one {place} is required"));
        return;
    }
    let mut seen = HashSet::new();
    for (index, audience) in issuer.audiences.iter().enumerate() {
        if audience.is_empty() {
            problems.required(&place.index(index), "", "");
        }
        if !seen.insert(audience) {
            problems.duplicate(&place.index(index), "", audience.as_str());
        }
    }
    let detail = match issuer.audiences.len() {
        1 if !policy.is_empty() => "audienceMatchPolicy must be empty or MatchAny for single audience",
        1 => return,
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    if policy != "MatchAny" {
        problems.invalid(path, "audienceMatchPolicy", policy, detail);
    }
}

/// Whoever takes an address for a name must look at whether it is the user's.
fn check_email_use(
    mappings: &ClaimMappings,
    username: Option<&TextSource>,
    extra: &[(String, Program)],
    rules: &[ClaimRule],
    path: &Path,
    problems: &mut Problems,
) {
    let Some(TextSource::Expression(username)) = username else {
        return;
    };
    let verified = |program: &Program| program.selects("claims", "email_verified");
    let by_rule = rules.iter().any(|rule| match rule {
        ClaimRule::Expression(rule) => verified(&rule.program),
        ClaimRule::Required { .. } => false,
    });
    let is_checked = verified(username) || by_rule || extra.iter().any(|(_, program)| verified(program));
    if username.selects("claims", "email") && !is_checked {
        let detail = "claims.email_verified must be used in claimMappings.username.expression or \
                      claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is \
                      used in claimMappings.username.expression";
        let shown = mappings.username.expression.as_str();
        problems.invalid(&path.child("username"), "expression", shown, detail);
    }
}

fn user_rules(rules: &[UserValidationRule], path: &Path, problems: &mut Problems) -> Vec<Rule> {
    let user = Type::object(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
        ],
    );
    let environment = Environment::default().with("user", user);
    let mut compiler = Compiler {
        environment: &environment,
        problems,
    };
    let mut seen = HashSet::new();
    let mut compiled = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let place = path.index(index);
        if rule.expression.is_empty() {
            compiler.problems.required(&place, "expression", "");
        } else if !seen.insert(&rule.expression) {
            compiler
                .problems
                .duplicate(&place, "expression", rule.expression.as_str());
        } else {
            compiled.extend(compiler.rule(&rule.expression, &rule.message, &place));
        }
    }
    compiled
}

struct Compiler<'a> {
    environment: &'a Environment,
    problems: &'a mut Problems,
}

impl Compiler<'_> {
    fn program(&mut self, expression: &str, path: &Path, field: &str) -> Option<Program> {
        match Program::compile(expression, self.environment) {
            Ok(program) => Some(program),
            Err(error) => {
                let detail = format!("compilation failed: {error}");
                self.problems.invalid(path, field, expression, detail);
                None
            }
        }
    }

    fn rule(&mut self, expression: &str, message: &str, path: &Path) -> Option<Rule> {
        let program = self.program(expression, path, "expression")?;
        if *program.result_type() != Type::Bool {
            let detail = "must evaluate to bool";
            self.problems.invalid(path, "expression", expression, detail);
            return None;
        }
        Some(Rule {
            program,
            expression: expression.to_owned(),
            message: message.to_owned(),
        })
    }

    fn claim_rules(&mut self, rules: &[ClaimValidationRule], path: &Path) -> Vec<ClaimRule> {
        let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
        let mut compiled = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let place = path.index(index);
            match (rule.claim.as_str(), rule.expression.as_str()) {
                ("", "") => self.problems.required(&place, "", "claim or expression is required"),
                (claim, "") => {
                    if !rule.message.is_empty() {
                        let detail = "may not be specified when claim is set";
                        self.problems.invalid(&place, "message", rule.message.as_str(), detail);
                    }
                    if !claims.insert(claim) {
                        self.problems.duplicate(&place, "claim", claim);
                    }
                    compiled.push(ClaimRule::Required {
                        claim: claim.to_owned(),
                        value: rule.required_value.clone(),
                    });
                }
                ("", expression) => {
                    if !rule.required_value.is_empty() {
                        let detail = "may not be specified when expression is set";
                        let shown = rule.required_value.as_str();
                        self.problems.invalid(&place, "requiredValue", shown, detail);
                    }
                    if !expressions.insert(expression) {
                        self.problems.duplicate(&place, "expression", expression);
                        continue;
                    }
                    let rule = self.rule(expression, &rule.message, &place);
                    compiled.extend(rule.map(ClaimRule::Expression));
                }
                (claim, _) => self
                    .problems
                    .invalid(&place, "", claim, "claim and expression can't both be set"),
            }
        }
        compiled
    }

    fn source(&mut self, mapping: &PrefixedClaimOrExpression, path: &Path, is_required: bool) -> Option<TextSource> {
        match (mapping.claim.as_str(), mapping.expression.as_str()) {
            ("", "") => {
                if is_required {
                    self.problems.required(path, "", "claim or expression is required");
                }
                None
            }
            (claim, "") => {
                if mapping.prefix.is_none() {
                    let detail =
                        "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                    self.problems.required(path, "prefix", detail);
                }
                Some(TextSource::Claim {
                    claim: claim.to_owned(),
                    prefix: mapping.prefix.clone().unwrap_or_default(),
                })
            }
            ("", expression) => {
                if let Some(prefix) = &mapping.prefix {
                    let detail = "may not be specified when expression is set";
                    self.problems.invalid(path, "prefix", prefix.as_str(), detail);
                }
                self.program(expression, path, "expression").map(TextSource::Expression)
            }
            _ => {
                self.problems
                    .invalid(path, "", "", "claim and expression can't both be set");
                None
            }
        }
    }

    fn uid(&mut self, mappings: &ClaimMappings, path: &Path) -> Option<TextSource> {
        match (mappings.uid.claim.as_str(), mappings.uid.expression.as_str()) {
            ("", "") => None,
            (claim, "") => Some(TextSource::Claim {
                claim: claim.to_owned(),
                prefix: String::new(),
            }),
            ("", expression) => {
                let program = self.program(expression, &path.child("uid"), "expression");
                program.map(TextSource::Expression)
            }
            _ => {
                self.problems
                    .invalid(path, "uid", "", "claim and expression can't both be set");
                None
            }
        }
    }

    fn extra(&mut self, mappings: &ClaimMappings, path: &Path) -> Vec<(String, Program)> {
        let mut seen = HashSet::new();
        let mut compiled = Vec::new();
        for (index, mapping) in mappings.extra.iter().enumerate() {
            let place = path.index(index);
            let key = mapping.key.as_str();
            match key {
                "" => self.problems.required(&place, "key", ""),
                key => self.problems.form(&place, "key", key, names::domain_prefixed_path(key)),
            }
            if key != key.to_lowercase() {
                self.problems.invalid(&place, "key", key, "must be lowercase");
            }
            if is_reserved(key) {
                let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                self.problems.invalid(&place, "key", key, detail);
            }
            if !seen.insert(key) {
                self.problems.duplicate(&place, "key", key);
                continue;
            }
            if mapping.value_expression.is_empty() {
                self.problems.required(&place, "valueExpression", "");
                continue;
            }
            let program = self.program(&mapping.value_expression, &place, "valueExpression");
            compiled.extend(program.map(|program| (key.to_owned(), program)));
        }
        compiled
    }
}

/// The extras that only the server itself sets.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|reserved| domain == *reserved || domain.strip_suffix(reserved).is_some_and(|below| below.ends_with('.')))
}
