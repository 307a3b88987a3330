//! Named formats: `format.dns1123Label().validate(name)`.

use regex::Regex;

use super::Price::{Step, Walk};
use super::{Row, strings, time};
use crate::Value;
use crate::error::failed;

pub const TABLE: &[Row] = &[
    Row("format.dns1123Label(): format", Step, |_| {
        Ok(Value::Format("dns1123Label"))
    }),
    Row("format.dns1123Subdomain(): format", Step, |_| {
        Ok(Value::Format("dns1123Subdomain"))
    }),
    Row("format.dns1035Label(): format", Step, |_| {
        Ok(Value::Format("dns1035Label"))
    }),
    Row("format.qualifiedName(): format", Step, |_| {
        Ok(Value::Format("qualifiedName"))
    }),
    Row("format.dns1123LabelPrefix(): format", Step, |_| {
        Ok(Value::Format("dns1123LabelPrefix"))
    }),
    Row("format.dns1123SubdomainPrefix(): format", Step, |_| {
        Ok(Value::Format("dns1123SubdomainPrefix"))
    }),
    Row("format.dns1035LabelPrefix(): format", Step, |_| {
        Ok(Value::Format("dns1035LabelPrefix"))
    }),
    Row("format.labelValue(): format", Step, |_| Ok(Value::Format("labelValue"))),
    Row("format.uri(): format", Step, |_| Ok(Value::Format("uri"))),
    Row("format.uuid(): format", Step, |_| Ok(Value::Format("uuid"))),
    Row("format.byte(): format", Step, |_| Ok(Value::Format("byte"))),
    Row("format.date(): format", Step, |_| Ok(Value::Format("date"))),
    Row("format.datetime(): format", Step, |_| Ok(Value::Format("datetime"))),
    Row("format.named(string): optional(format)", Step, |v| {
        let known = RULES.iter().find(|rule| rule.name == strings::text(&v[0]));
        Ok(Value::optional(known.map(|rule| Value::Format(rule.name))))
    }),
    Row("<format>.validate(string): optional(list(string))", Walk, |v| {
        let Value::Format(name) = &v[0] else {
            return Err(failed("no such overload"));
        };
        let problems = problems(name, strings::text(&v[1]));
        let listed = problems.map(|problem| Value::list(vec![Value::text(&problem)]));
        Ok(Value::optional(listed))
    }),
];

struct Rule {
    name: &'static str,
    pattern: &'static str,
    longest: usize,
    message: &'static str,
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const RULES: &[Rule] = &[
    Rule {
        name: "dns1123Label",
        pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        longest: 63,
        message: LABEL,
    },
    Rule {
        name: "dns1123LabelPrefix",
        pattern: "[a-z0-9]([-a-z0-9]*)?",
        longest: 63,
        message: LABEL,
    },
    Rule {
        name: "dns1123Subdomain",
        pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        longest: 253,
        message: SUBDOMAIN,
    },
    Rule {
        name: "dns1123SubdomainPrefix",
        pattern: "[a-z0-9]([-a-z0-9.]*)?",
        longest: 253,
        message: SUBDOMAIN,
    },
    Rule {
        name: "dns1035Label",
        pattern: "[a-z]([-a-z0-9]*[a-z0-9])?",
        longest: 63,
        message: LABEL_1035,
    },
    Rule {
        name: "dns1035LabelPrefix",
        pattern: "[a-z]([-a-z0-9]*)?",
        longest: 63,
        message: LABEL_1035,
    },
    Rule {
        name: "qualifiedName",
        pattern: "([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        longest: 317,
        message: QUALIFIED,
    },
    Rule {
        name: "labelValue",
        pattern: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        longest: 63,
        message: LABEL_VALUE,
    },
    Rule {
        name: "uri",
        pattern: "([A-Za-z][A-Za-z0-9+.-]*://[^\\s]*|/[^\\s]*)",
        longest: usize::MAX,
        message: "invalid URI for request",
    },
    Rule {
        name: "uuid",
        pattern: "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}",
        longest: usize::MAX,
        message: "does not match the UUID format",
    },
    Rule {
        name: "byte",
        pattern: "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
        longest: usize::MAX,
        message: "invalid base64",
    },
    Rule {
        name: "date",
        pattern: "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])",
        longest: usize::MAX,
        message: "invalid date",
    },
    Rule {
        name: "datetime",
        pattern: "",
        longest: usize::MAX,
        message: "invalid datetime",
    },
];

/// What is wrong with a text, if anything.
fn problems(name: &str, text: &str) -> Option<String> {
    let rule = RULES.iter().find(|rule| rule.name == name)?;
    if rule.name == "datetime" {
        return time::parse(text).is_err().then(|| rule.message.to_owned());
    }
    if text.len() > rule.longest {
        return Some(format!("must be no more than {} characters", rule.longest));
    }
    let regex = Regex::new(&format!("^(?:{})$", rule.pattern)).ok()?;
    (!regex.is_match(text)).then(|| rule.message.to_owned())
}
