//! The formats that strings are checked against. Formats that are not in this list are only descriptive.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;

use crate::names::{dns1123_label, dns1123_subdomain};

static DURATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*([0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|m|h|d|w|[a-z]+)\s*)+$").ok());
static HOST_NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$").ok()
});
static HEX_COLOR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok());
static RGB_COLOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    Regex::new(&format!(r"^rgb\({part},{part},{part}\)$")).ok()
});
static UUID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}$").ok()
});
static SSN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$").ok());
static EMAIL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[^@\s]+@[^@\s]+$").ok());
static MAC: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        "(?i)^([0-9a-f]{2}([:-][0-9a-f]{2}){5}|[0-9a-f]{2}([:-][0-9a-f]{2}){7}|[0-9a-f]{4}(\\.[0-9a-f]{4}){2,3})$",
    )
    .ok()
});
static BSON_ID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^[0-9a-fA-F]{24}$").ok());

/// Whether a text has the format; `None` for formats that are not checked.
pub fn is_known(format: &str) -> bool {
    matches(format, "").is_some()
}

pub fn matches(format: &str, text: &str) -> Option<bool> {
    // Names are compared without dashes: `date-time` and `datetime` are the same.
    Some(match format.replace('-', "").as_str() {
        "bsonobjectid" => is(&BSON_ID, text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "cidr" => cidr(text),
        "creditcard" => luhn(text),
        "date" => schema::time::parse(&format!("{text}T00:00:00Z")).is_ok() && text.len() == 10,
        "datetime" => date_time(text),
        "duration" => schema_duration(text),
        "email" => is(&EMAIL, text),
        "hexcolor" => is(&HEX_COLOR, text),
        "hostname" => text.len() <= 255 && is(&HOST_NAME, text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => isbn(text, 10) || isbn(text, 13),
        "isbn10" => isbn(text, 10),
        "isbn13" => isbn(text, 13),
        "k8slongname" => dns1123_subdomain(text, false).is_empty(),
        "k8sshortname" => dns1123_label(text, false).is_empty(),
        "mac" => is(&MAC, text),
        "password" => true,
        "rgbcolor" => is(&RGB_COLOR, text),
        "ssn" => is(&SSN, text),
        "uri" => uri(text),
        "uuid" => is(&UUID, text),
        "uuid3" => uuid_version(text, "3"),
        "uuid4" => uuid_version(text, "4"),
        "uuid5" => uuid_version(text, "5"),
        _ => return None,
    })
}

fn is(pattern: &Option<Regex>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

fn uuid_version(text: &str, version: &str) -> bool {
    let Some(found) = UUID.as_ref().and_then(|pattern| pattern.captures(text)) else {
        return false;
    };
    let variant_matters = version != "3";
    &found[1] == version && (!variant_matters || "89abAB".contains(&found[2]))
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length: u8 = match (digits, length.parse()) {
        (true, Ok(length)) => length,
        _ => return false,
    };
    (address.parse::<Ipv4Addr>().is_ok() && length <= 32) || (address.parse::<Ipv6Addr>().is_ok() && length <= 128)
}

/// RFC 3339, also in lower case and with a space.
fn date_time(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    schema::time::parse(&upper).is_ok() || schema::time::parse(&upper.replacen(' ', "T", 1)).is_ok()
}

fn schema_duration(text: &str) -> bool {
    is(&DURATION, &text.to_lowercase())
}

/// A request URI: an absolute one, or a path that begins with a slash.
fn uri(text: &str) -> bool {
    if text.starts_with('/') {
        return !text.contains(char::is_control);
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let mut scheme = scheme.chars();
    scheme.next().is_some_and(|first| first.is_ascii_alphabetic())
        && scheme.all(|next| next.is_ascii_alphanumeric() || "+-.".contains(next))
        && !rest.contains(char::is_control)
        && !rest.contains(' ')
}

fn isbn(text: &str, length: usize) -> bool {
    let digits: Vec<u32> = text
        .chars()
        .filter(|digit| !matches!(digit, '-' | ' '))
        .map(|digit| match digit {
            'X' | 'x' => 10,
            digit => digit.to_digit(10).unwrap_or(99),
        })
        .collect();
    if digits.len() != length || digits.contains(&99) {
        return false;
    }
    match length {
        10 => {
            let sum: u32 = digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum();
            digits[..9].iter().all(|digit| *digit < 10) && sum.is_multiple_of(11)
        }
        _ => {
            let weighted = digits.iter().zip([1, 3].into_iter().cycle());
            let sum: u32 = weighted.map(|(digit, weight)| digit * weight).sum();
            digits.iter().all(|digit| *digit < 10) && sum.is_multiple_of(10)
        }
    }
}

fn luhn(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(10)).collect();
    if !(13..=16).contains(&digits.len()) {
        return false;
    }
    let doubled = digits.iter().rev().enumerate().map(|(index, digit)| match index % 2 {
        1 if digit * 2 > 9 => digit * 2 - 9,
        1 => digit * 2,
        _ => *digit,
    });
    doubled.sum::<u32>().is_multiple_of(10)
}
