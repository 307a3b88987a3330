//! What operations do, in words.

/// What an operation does to a kind, or to a part of it: `read status of the specified Pod`.
pub fn of_operation(action: &str, method: &str, kind: &str, part: &str) -> String {
    let of_part = if part.is_empty() {
        String::new()
    } else {
        format!("{part} of ")
    };
    match action {
        "connect" => format!("connect {} requests to {of_part}{kind}", method.to_uppercase()),
        "list" => format!("list or watch objects of kind {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "get" => format!("read {of_part}the specified {kind}"),
        "put" => format!("replace {of_part}the specified {kind}"),
        "patch" => format!("partially update {of_part}the specified {kind}"),
        "post" => format!("create {of_part}{}{kind}", article(kind)),
        other => format!("{other} {of_part}{}{kind}", article(kind)),
    }
}

/// With the space behind it; names of more than one thing have none.
fn article(kind: &str) -> &'static str {
    if kind.ends_with('s') && !kind.ends_with("ss") {
        ""
    } else if kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
        "an "
    } else {
        "a "
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_told_as_upstream_does() {
        let cases = [
            (["connect", "get", "Pod", "exec"], "connect GET requests to exec of Pod"),
            (["list", "get", "Pod", ""], "list or watch objects of kind Pod"),
            (["get", "get", "Pod", "status"], "read status of the specified Pod"),
            (["put", "put", "Pod", ""], "replace the specified Pod"),
            (["post", "post", "Pod", "eviction"], "create eviction of a Pod"),
            (["post", "post", "Ingress", ""], "create an Ingress"),
            (["delete", "delete", "Endpoints", ""], "delete Endpoints"),
            (["delete", "delete", "PriorityClass", ""], "delete a PriorityClass"),
        ];
        for ([action, method, kind, part], expected) in cases {
            assert_eq!(of_operation(action, method, kind, part), expected);
        }
    }
}
