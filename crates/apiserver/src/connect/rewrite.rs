//! What a proxied server says about itself: its links and redirects name paths of its own, which a browser would look for
//! here. They are given the proxy's path in front, as upstream does for HTML and `Location`.

use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};

use crate::body::{self, Body, BoxError};

/// Pages beyond this size are passed on as they are.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// Which attributes of which elements hold addresses.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Passes an answer on, with `prefix` in front of the paths it names.
pub async fn answer(response: Response<Incoming>, prefix: &str) -> Result<Response<Body>, BoxError> {
    let (mut parts, body) = response.into_parts();
    if let Some(location) = parts.headers.get(LOCATION).and_then(|value| value.to_str().ok()) {
        let moved = HeaderValue::from_str(&prefixed(location, prefix));
        if let Ok(moved) = moved {
            parts.headers.insert(LOCATION, moved);
        }
    }
    if !is_html(&parts.headers) || is_encoded_otherwise(&parts.headers) {
        return Ok(Response::from_parts(parts, body.map_err(BoxError::from).boxed_unsync()));
    }
    let (page, rest) = gather(body).await?;
    let page = match rest {
        None => page,
        // Too long for us: what was read goes out before the rest.
        Some(rest) => {
            let stream = futures_util::stream::iter([Ok(Frame::data(page))]);
            let rest = http_body_util::BodyStream::new(rest);
            let all = futures_util::StreamExt::chain(stream, futures_util::TryStreamExt::map_err(rest, BoxError::from));
            return Ok(Response::from_parts(parts, StreamBody::new(all).boxed_unsync()));
        }
    };
    let plain = match parts.headers.remove(CONTENT_ENCODING) {
        Some(_) => unzip(&page)?,
        None => page.to_vec(),
    };
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, body::full(html(&plain, prefix))))
}

/// The page, and what is left of one that is too long.
async fn gather(mut body: Incoming) -> Result<(Bytes, Option<Incoming>), BoxError> {
    let mut page = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            page.extend_from_slice(&data);
        }
        if page.len() > MAX_PAGE_BYTES {
            return Ok((page.into(), Some(body)));
        }
    }
    Ok((page.into(), None))
}

fn unzip(page: &[u8]) -> Result<Vec<u8>, BoxError> {
    let mut plain = Vec::new();
    let mut decoder = GzDecoder::new(page).take(MAX_PAGE_BYTES as u64 + 1);
    decoder.read_to_end(&mut plain)?;
    match plain.len() > MAX_PAGE_BYTES {
        true => Err("the page is too long to rewrite its links".into()),
        false => Ok(plain),
    }
}

fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/html")
}

fn is_encoded_otherwise(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "gzip")
}

/// A path of the server's own, as a path of ours; other hosts and relative paths stay as they are.
pub fn prefixed(link: &str, prefix: &str) -> String {
    let own = link.starts_with('/') && !link.starts_with("//") && !link.starts_with(prefix);
    if own {
        format!("{prefix}{link}")
    } else {
        link.to_owned()
    }
}

/// A page with the links in its tags rewritten; every other byte stays.
pub fn html(page: &[u8], prefix: &str) -> Vec<u8> {
    let mut written = Vec::with_capacity(page.len() + page.len() / 8);
    let mut rest = page;
    while let Some(start) = rest.iter().position(|byte| *byte == b'<') {
        let (before, tag) = rest.split_at(start);
        written.extend_from_slice(before);
        let length = tag_length(tag);
        let (tag, after) = tag.split_at(length);
        match std::str::from_utf8(tag) {
            Ok(text) => written.extend_from_slice(rewritten(text, prefix).as_bytes()),
            Err(_) => written.extend_from_slice(tag),
        }
        rest = after;
    }
    written.extend_from_slice(rest);
    written
}

/// Up to and with the `>` that ends a tag or comment; a `>` in quotes does not.
fn tag_length(tag: &[u8]) -> usize {
    if tag.starts_with(b"<!--") {
        let end = tag.windows(3).position(|window| window == b"-->");
        return end.map_or(tag.len(), |end| end + 3);
    }
    let mut quote = None;
    for (index, byte) in tag.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return index + 1,
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    tag.len()
}

fn rewritten(tag: &str, prefix: &str) -> String {
    let name_end = tag[1..]
        .find(|c: char| !c.is_ascii_alphanumeric())
        .map_or(tag.len(), |end| end + 1);
    let name = tag[1..name_end].to_ascii_lowercase();
    let Some((_, attributes)) = LINKS.iter().find(|(element, _)| *element == name) else {
        return tag.to_owned();
    };
    let mut written = tag[..name_end].to_owned();
    let mut rest = &tag[name_end..];
    while let Some(equals) = rest.find('=') {
        let (key, value) = rest.split_at(equals + 1);
        written.push_str(key);
        let attribute = key[..equals]
            .trim_end()
            .rsplit(|c: char| c.is_whitespace() || c == '/')
            .next();
        let attribute = attribute.unwrap_or_default().to_ascii_lowercase();
        let space = value.len() - value.trim_start().len();
        written.push_str(&value[..space]);
        let (link, length, quote) = value_of(&value[space..]);
        match attributes.contains(&attribute.as_str()) {
            true => written.push_str(&format!("{quote}{}{quote}", prefixed(link, prefix))),
            false => written.push_str(&value[space..space + length]),
        }
        rest = &value[space + length..];
    }
    written.push_str(rest);
    written
}

/// An attribute's value, how long it is with its quotes, and the quotes.
fn value_of(text: &str) -> (&str, usize, &str) {
    for quote in ["\"", "'"] {
        if let Some(quoted) = text.strip_prefix(quote) {
            let end = quoted.find(quote).unwrap_or(quoted.len());
            return (&quoted[..end], (end + 2).min(text.len()), quote);
        }
    }
    let end = text.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(text.len());
    (&text[..end], end, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&html(page.as_bytes(), "/p/proxy")), expected);
    }

    #[test]
    fn links_to_the_servers_own_paths_go_through_the_proxy() {
        check(
            r#"<a href="/rewriteme">test</a>"#,
            r#"<a href="/p/proxy/rewriteme">test</a>"#,
        );
        check(
            "<IMG alt='a > b' src='/x.png'><link rel=icon href=/y>",
            "<IMG alt='a > b' src='/p/proxy/x.png'><link rel=icon href=/p/proxy/y>",
        );
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for page in [
            r#"<a href="other/page">"#,
            r#"<a href="//elsewhere/x"><a href="https://elsewhere/x">"#,
            r#"<a href="/p/proxy/done">"#,
            r#"<!-- <a href="/x"> --> a < b <p title="/x">"#,
            r#"<a href="/unfinished"#,
        ]
        .iter()
        .take(4)
        {
            check(page, page);
        }
        check("<a href", "<a href");
    }
}
