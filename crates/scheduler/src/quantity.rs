//! Quantities such as `250m`, `1.5Gi` or `2e3`.

/// One in the smallest unit that a quantity can express.
const NANO: i128 = 1_000_000_000;

/// In thousandths, rounded up; how CPU is counted. Unreadable text counts as nothing, as it would not have passed
/// validation.
pub fn milli(text: &str) -> i64 {
    rounded_up(nanos(text).unwrap_or(0), NANO / 1000)
}

/// In whole units, rounded up; how everything but CPU is counted.
pub fn units(text: &str) -> i64 {
    rounded_up(nanos(text).unwrap_or(0), NANO)
}

fn rounded_up(nanos: i128, unit: i128) -> i64 {
    let quotient = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) > 0);
    quotient.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

fn nanos(text: &str) -> Option<i128> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !(letter.is_ascii_digit() || matches!(letter, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let negative = whole.starts_with('-');
    let whole = whole.trim_start_matches(['+', '-']);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Nine digits after the point are as fine as it gets.
    let digits: String = format!("{fraction:0<9}").chars().take(9).collect();
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let value = whole.checked_mul(NANO)?.checked_add(digits.parse::<i128>().ok()?)?;
    let value = scaled(value, suffix)?;
    Some(if negative { -value } else { value })
}

fn scaled(value: i128, suffix: &str) -> Option<i128> {
    let decimal = |power: u32| value.checked_mul(10i128.checked_pow(power)?);
    let binary = |power: u32| value.checked_mul(1i128.checked_shl(power)?);
    match suffix {
        "" => Some(value),
        "n" => Some(value / 1_000_000_000),
        "u" => Some(value / 1_000_000),
        "m" => Some(value / 1_000),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            match u32::try_from(power) {
                Ok(power) => decimal(power),
                Err(_) => Some(value / 10i128.checked_pow(power.unsigned_abs())?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_all_their_forms() {
        assert_eq!(
            [milli("250m"), milli("1"), milli("1.5"), milli("100u")],
            [250, 1000, 1500, 1]
        );
        assert_eq!(
            [units("1Ki"), units("1.5Gi"), units("2e3"), units("128M")],
            [1024, 1610612736, 2000, 128000000]
        );
        assert_eq!(
            [units("500m"), units("110"), units(".5"), units("5E")],
            [1, 110, 1, 5_000_000_000_000_000_000]
        );
        assert_eq!([units(""), units("many"), units("999999E")], [0, 0, i64::MAX]);
    }
}
