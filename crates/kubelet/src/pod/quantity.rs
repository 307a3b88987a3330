//! Quantities such as `100m`, `1.5Gi` and `1e3`, as exact thousandths.

/// A quantity in thousandths of its unit; what is finer is rounded up, as upstream rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milli(pub i128);

const SUFFIXES: &[(&str, i128, i128)] = &[
    // (suffix, numerator, denominator) relative to one.
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1_000),
    ("k", 1_000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
];

/// Digits beyond this are finer than any unit we count and are refused as malformed.
const MAX_DIGITS: usize = 24;

impl Milli {
    pub fn parse(text: &str) -> Option<Milli> {
        let (number, numerator, denominator) = split_suffix(text)?;
        let negative = number.starts_with('-');
        let digits = number.trim_start_matches(['+', '-']);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all: String = [whole, fraction].concat();
        if all.is_empty() || all.len() > MAX_DIGITS || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let value = all.parse::<i128>().ok()?.checked_mul(numerator)?.checked_mul(1000)?;
        let scale = denominator.checked_mul(10i128.checked_pow(fraction.len() as u32)?)?;
        let milli = value.checked_add(scale - 1)?.checked_div(scale)?;
        Some(Milli(if negative { -milli } else { milli }))
    }

    /// Whole units, rounded up.
    pub fn value(self) -> i64 {
        i64::try_from((self.0 + 999).div_euclid(1000)).unwrap_or(i64::MAX)
    }

    pub fn milli(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

fn split_suffix(text: &str) -> Option<(&str, i128, i128)> {
    if let Some((suffix, numerator, denominator)) = SUFFIXES.iter().find(|(suffix, ..)| text.ends_with(suffix)) {
        return Some((text.strip_suffix(suffix)?, *numerator, *denominator));
    }
    let Some(at) = text.find(['e', 'E']) else {
        return Some((text, 1, 1));
    };
    let exponent: i32 = text[at + 1..].parse().ok()?;
    let power = 10i128.checked_pow(exponent.unsigned_abs().min(30))?;
    Some(match exponent {
        0.. => (&text[..at], power, 1),
        _ => (&text[..at], 1, power),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact_thousandths() {
        let milli = |text| Milli::parse(text).map(|quantity| quantity.0);
        assert_eq!(milli("100m"), Some(100));
        assert_eq!(milli("1.5Gi"), Some(1_610_612_736_000));
        assert_eq!(milli("0.1"), Some(100));
        assert_eq!(milli("1e3"), Some(1_000_000));
        assert_eq!(milli("12E"), Some(12_000_000_000_000_000_000_000));
        assert_eq!(milli("5E-1"), Some(500));
        assert_eq!(milli("1n"), Some(1));
        assert_eq!(milli("1Q"), None);
        assert_eq!(milli(""), None);
        assert_eq!(Milli(1_001).value(), 2);
    }
}
