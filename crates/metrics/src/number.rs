//! Numbers as upstream writes them.

/// The shortest text that reads back as the value, with an exponent where it is below -4 or above 5. Bounds of buckets are
/// labels, so those who look for one must find it by its text.
pub fn number(value: f64) -> String {
    let shortest = format!("{value:e}");
    let exponent = shortest
        .split_once('e')
        .map(|(digits, exponent)| (digits, exponent.parse::<i32>()));
    match exponent {
        Some((digits, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_numbers_have_exponents() {
        let shown = [0.0, 0.005, 1.0, 604_800.0, 1e6, 2_592_000.0, 1e-8, 0.0001, 0.00001].map(number);
        assert_eq!(
            shown,
            [
                "0",
                "0.005",
                "1",
                "604800",
                "1e+06",
                "2.592e+06",
                "1e-08",
                "0.0001",
                "1e-05"
            ]
        );
    }
}
