//! `$(VAR)` in commands, arguments, values and subpaths.

/// Replaces every `$(NAME)` that `lookup` knows; `$$` is a plain `$`, and what is unknown stays as it is.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = reference(after) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&rest[at..rest.len() - tail.len()]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Splits `(NAME)tail`.
fn reference(after: &str) -> Option<(&str, &str)> {
    after.strip_prefix('(')?.split_once(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_escapes_undone() {
        let check = |text: &str| expand(text, |name| (name == "A").then(|| "1".to_owned()));
        assert_eq!(check("x $(A)$(A) y"), "x 11 y");
        assert_eq!(check("$$(A) $$$(A)"), "$(A) $1");
        assert_eq!(check("$(B) $(A"), "$(B) $(A");
        assert_eq!(check("cost: 5$"), "cost: 5$");
        assert_eq!(check("$A ${A}"), "$A ${A}");
    }
}
