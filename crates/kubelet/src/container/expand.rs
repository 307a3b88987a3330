//! `$(VAR)` in commands, arguments, values and subpaths.

/// What the variables of a container, or its command and arguments, may take together. The kernel starts no program with
/// more than about this; variables that refer to each other would otherwise grow without end.
pub const MAX_BYTES: usize = 2 << 20;

/// Variables or arguments take more than [`MAX_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variables, or command and arguments, are larger than {MAX_BYTES} bytes after expansion of $(VAR)")]
pub struct TooLarge;

/// Replaces every `$(NAME)` that `lookup` knows; `$$` is a plain `$`, and what is unknown stays as it is. What would take
/// more than `limit` bytes is refused before it is made.
pub fn expand(text: &str, limit: usize, lookup: impl Fn(&str) -> Option<String>) -> Result<String, TooLarge> {
    if text.len() > limit {
        return Err(TooLarge);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        if out.len() > limit {
            return Err(TooLarge);
        }
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = reference(after) {
            match lookup(name) {
                Some(value) if out.len() + value.len() > limit => return Err(TooLarge),
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
    match out.len() > limit {
        true => Err(TooLarge),
        false => Ok(out),
    }
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
        let check = |text: &str| expand(text, 100, |name| (name == "A").then(|| "1".to_owned())).unwrap();
        assert_eq!(check("x $(A)$(A) y"), "x 11 y");
        assert_eq!(check("$$(A) $$$(A)"), "$(A) $1");
        assert_eq!(check("$(B) $(A"), "$(B) $(A");
        assert_eq!(check("cost: 5$"), "cost: 5$");
        assert_eq!(check("$A ${A}"), "$A ${A}");
    }

    #[test]
    fn what_would_be_too_large_is_not_made() {
        let long = "x".repeat(40);
        let check = |text: &str| expand(text, 100, |name| (name == "L").then(|| long.clone()));
        assert_eq!(check("$(L)$(L)").map(|text| text.len()), Ok(80));
        assert_eq!(check("$(L)$(L)$(L)"), Err(TooLarge));
        assert_eq!(check(&"$$".repeat(50)).map(|text| text.len()), Ok(50));
        assert_eq!(check(&"x".repeat(101)), Err(TooLarge));
        assert_eq!(check(&format!("$(L)$(L){long}")), Err(TooLarge));
    }
}
