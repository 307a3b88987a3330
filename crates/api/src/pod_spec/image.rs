//! What an image reference says about when to pull it.

/// `Always` for the tag `latest`, named or implied, and `IfNotPresent` for any other tag, for a digest alone and for a
/// reference that cannot be read.
pub fn pull_policy(image: &str) -> &'static str {
    if tag(image) == Some("latest") {
        "Always"
    } else {
        "IfNotPresent"
    }
}

/// The tag of a well-formed reference; a reference with neither tag nor digest means `latest`.
fn tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last_segment = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[last_segment..].split_once(':') {
        Some((segment, tag)) => (&name[..last_segment + segment.len()], Some(tag)),
        None => (name, None),
    };
    let path = repository.split_once('/').map_or(repository, |(first, rest)| {
        let is_host = first.contains(['.', ':']) || first == "localhost";
        if is_host { rest } else { repository }
    });
    let well_formed = !path.is_empty() && path.bytes().all(is_path_byte) && !path.split('/').any(str::is_empty);
    if !well_formed {
        return None;
    }
    match (tag, digest) {
        (None, None) => Some("latest"),
        (tag, _) => tag,
    }
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'/' | b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

    #[test]
    fn only_the_latest_tag_is_always_pulled() {
        for image in [
            "nginx",
            "nginx:latest",
            "localhost:5000/nginx",
            "example.com/Team/nginx".to_lowercase().as_str(),
        ] {
            assert_eq!(pull_policy(image), "Always", "{image}");
        }
        let digest = "nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000";
        for image in ["nginx:1.29", "localhost:5000/nginx:1", digest, "", "NGINX", "a//b"] {
            assert_eq!(pull_policy(image), "IfNotPresent", "{image}");
        }
        let both = "nginx:latest@sha256:0000000000000000000000000000000000000000000000000000000000000000";
        assert_eq!(pull_policy(both), "Always");
    }
}
