//! Numbers that may be given as a percentage.

use api::Value;

/// A number, or a percentage of `total`, rounded up or down; `default` when it is not set.
pub fn scaled(value: &Value, default: &str, total: i64, up: bool) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let text = value.as_str().unwrap_or(default);
    let Some(percent) = text.strip_suffix('%') else {
        return text.parse().unwrap_or(0);
    };
    let percent: i64 = percent.parse().unwrap_or(0);
    let rounding = if up { 99 } else { 0 };
    (percent * total + rounding) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked() {
        assert_eq!(scaled(&Value::Null, "1", 7, true), 1);
        assert_eq!(scaled(&Value::Null, "25%", 7, true), 2);
        assert_eq!(scaled(&"25%".into(), "1", 7, false), 1);
        assert_eq!(scaled(&3.into(), "1", 7, false), 3);
    }
}
