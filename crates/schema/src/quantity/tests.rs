use super::*;

fn check(rows: &[(&str, &str)]) {
    for (input, expected) in rows {
        let actual = match canonicalize(input) {
            Ok(text) => text,
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(&actual, expected, "{input}");
    }
}

#[test]
fn amounts_are_written_without_fraction_with_the_largest_suffix() {
    check(&[
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1500m", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1000Mi", "1000Mi"),
        ("1023", "1023"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("0.0001Ki", "102400u"),
        ("1e3", "1e3"),
        ("12e2", "1200"),
        ("1000000", "1M"),
        ("100", "100"),
        ("0", "0"),
        ("-0.25", "-250m"),
        ("-1024Ki", "-1Mi"),
        ("1E", "1E"),
        ("2E2", "200"),
    ]);
}

#[test]
fn what_is_too_fine_is_rounded_up_and_too_large_in_binary_is_capped() {
    check(&[
        ("1.0000000001", "1000000001n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("100000Ei", "9223372036854775807"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ]);
}

#[test]
fn a_spelling_that_upstream_takes_for_canonical_is_kept() {
    check(&[
        ("1.500", "1.500"),
        ("+5", "+5"),
        ("0012Ki", "0012Ki"),
        ("5E3", "5E3"),
        ("1.5", "1500m"),
    ]);
}

#[test]
fn errors_are_upstreams() {
    let format = "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let suffix = "error: unable to parse quantity's suffix";
    check(&[
        ("", format),
        ("1x", format),
        ("1ee", suffix),
        ("1mm", suffix),
        ("1e", suffix),
        ("ten", format),
    ]);
}

#[test]
fn sums_and_comparisons_are_exact() {
    let mut total: Quantity = "100m".parse().unwrap();
    total.add(&"2".parse().unwrap());
    assert_eq!(total.to_string(), "2100m");
    assert_eq!((total.value(), total.milli_value()), (3, 2100));
    total.sub(&"2.1".parse().unwrap());
    assert!(total.is_zero());
    let (gibi, giga): (Quantity, Quantity) = ("1Gi".parse().unwrap(), "1G".parse().unwrap());
    assert!(gibi > giga);
    assert_eq!("1000m".parse::<Quantity>(), "1".parse());
    assert!("1e30".parse::<Quantity>().unwrap() > "9Ei".parse().unwrap());
    assert!("-1".parse::<Quantity>().unwrap() < "1n".parse().unwrap());
    let mut memory = Quantity::ZERO;
    memory.add(&"64Mi".parse().unwrap());
    memory.add(&"64Mi".parse().unwrap());
    assert_eq!(memory.to_string(), "128Mi");
}

#[test]
fn a_number_is_refused_that_could_not_be_read_again_as_it_is_written() {
    let digits = "4".repeat(37);
    assert_eq!(format!("{digits}.9E0").parse::<Quantity>(), Err(QuantityError::Numeric));
    let written = format!("{}.9E0", &digits[..35])
        .parse::<Quantity>()
        .unwrap()
        .to_string();
    assert_eq!(written, format!("{}900e-3", &digits[..35]));
    assert!(written.parse::<Quantity>().is_ok());
}
