//! Amounts of resources: decimal numbers with a suffix, such as `500m`, `2Gi` or `1e3`.
//!
//! Values are exact: a 128-bit mantissa and a power of ten, no finer than a billionth. What is written is canonical:
//! no fraction, the largest suffix that needs none, in the family of suffixes the amount was given in.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The finest step; anything smaller is rounded up, away from zero.
const FINEST_EXPONENT: i32 = -9;

/// Amounts with a binary suffix are capped here, as upstream caps them.
const BINARY_MAXIMUM: i128 = i64::MAX as i128;

/// From this power of ten on only zero is accepted, so that arithmetic on exponents cannot overflow.
const BEYOND_EXPONENTS: i64 = 1_000_000;

/// The number of digits up to which upstream keeps the given spelling when it is canonical enough.
const KEPT_DIGITS: usize = 18;

/// The family of suffixes an amount is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// An amount and the way it is written. Comparisons look at the amount only.
#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    exponent: i32,
    format: Format,
    /// The spelling it was given in, where upstream takes that for canonical.
    text: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const DECIMAL_SUFFIXES: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Suffix and power of two.
const BINARY_SUFFIXES: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The amount's canonical spelling.
pub fn canonicalize(text: &str) -> Result<String, QuantityError> {
    Ok(text.parse::<Quantity>()?.to_string())
}

impl Quantity {
    pub const ZERO: Quantity = Quantity {
        mantissa: 0,
        exponent: 0,
        format: Format::DecimalSi,
        text: None,
    };

    pub fn new(value: i64, format: Format) -> Self {
        Quantity {
            mantissa: value.into(),
            exponent: 0,
            format,
            text: None,
        }
    }

    pub fn from_milli(value: i64, format: Format) -> Self {
        Quantity {
            mantissa: value.into(),
            exponent: -3,
            format,
            text: None,
        }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// The amount in whole units, rounded away from zero, held to the range of `i64`.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// The amount in thousandths, rounded away from zero, held to the range of `i64`.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    /// The amount as an approximate number, for ratios and reports.
    pub fn to_f64(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.exponent)
    }

    /// An amount of zero takes the other's format.
    pub fn add(&mut self, other: &Quantity) {
        self.combine(other, i128::saturating_add);
    }

    pub fn sub(&mut self, other: &Quantity) {
        self.combine(other, i128::saturating_sub);
    }

    fn combine(&mut self, other: &Quantity, operation: fn(i128, i128) -> i128) {
        if self.is_zero() {
            self.format = other.format;
        }
        let exponent = self.exponent.min(other.exponent);
        let left = times_power_of_ten(self.mantissa, self.exponent - exponent);
        let right = times_power_of_ten(other.mantissa, other.exponent - exponent);
        self.mantissa = operation(left, right);
        self.exponent = exponent;
        self.text = None;
    }

    fn scaled(&self, exponent: i32) -> i64 {
        let scaled = match self.exponent.saturating_sub(exponent) {
            up @ 0.. => times_power_of_ten(self.mantissa, up),
            down => divide_away_from_zero(self.mantissa, down.unsigned_abs()),
        };
        scaled.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    fn whole(&self) -> Option<i128> {
        if self.exponent >= 0 {
            let power = 10i128.checked_pow(self.exponent.unsigned_abs())?;
            return self.mantissa.checked_mul(power);
        }
        let divisor = 10i128.checked_pow(self.exponent.unsigned_abs())?;
        (self.mantissa % divisor == 0).then(|| self.mantissa / divisor)
    }

    fn write_binary(&self, f: &mut fmt::Formatter<'_>, mut whole: i128) -> fmt::Result {
        let mut suffix = "";
        for (larger, _) in BINARY_SUFFIXES {
            if whole % 1024 != 0 {
                break;
            }
            whole /= 1024;
            suffix = larger;
        }
        write!(f, "{whole}{suffix}")
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let (mut mantissa, mut exponent) = (self.mantissa, self.exponent);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        let mut zeros = exponent.rem_euclid(3);
        exponent -= zeros;
        if format == Format::DecimalExponent {
            write!(f, "{mantissa}{:0<width$}", "", width = zeros as usize)?;
            return if exponent == 0 {
                Ok(())
            } else {
                write!(f, "e{exponent}")
            };
        }
        if exponent > 18 {
            zeros += exponent - 18;
            exponent = 18;
        }
        let suffix = DECIMAL_SUFFIXES
            .iter()
            .find(|(_, power)| *power == exponent)
            .map_or("", |(name, _)| name);
        write!(f, "{mantissa}{:0<width$}{suffix}", "", width = zeros as usize)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        match self.format {
            Format::BinarySi => match self.whole() {
                Some(whole) if whole.unsigned_abs() >= 1024 => self.write_binary(f, whole),
                _ => self.write_decimal(f, Format::DecimalSi),
            },
            format => self.write_decimal(f, format),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let mantissa = parts.mantissa()?;
        let suffix = Suffix::parse(parts.suffix)?;
        let fraction_length = parts.fraction.len() as i32;
        let is_simple = parts.is_simple(suffix, mantissa);
        if parts.has_no_digits && !is_simple {
            return Err(QuantityError::Numeric);
        }
        let keeps = is_simple && parts.keeps_spelling(suffix, mantissa);
        let mut quantity = match suffix {
            Suffix::Decimal { format, .. } if mantissa == 0 => Quantity {
                format,
                ..Quantity::ZERO
            },
            Suffix::Decimal { exponent, .. } if i64::from(exponent).abs() == BEYOND_EXPONENTS => {
                return Err(QuantityError::Suffix);
            }
            Suffix::Decimal { exponent, format } => Quantity {
                mantissa,
                exponent: exponent - fraction_length,
                format,
                text: None,
            },
            Suffix::Binary { power } => Quantity {
                mantissa: mantissa.checked_mul(1 << power).ok_or(QuantityError::Numeric)?,
                exponent: -fraction_length,
                format: Format::BinarySi,
                text: None,
            },
        };
        quantity.limit();
        if keeps {
            quantity.text = Some(text.into());
        }
        Ok(quantity)
    }
}

impl Quantity {
    fn limit(&mut self) {
        if self.exponent < FINEST_EXPONENT {
            self.mantissa = divide_away_from_zero(self.mantissa, (FINEST_EXPONENT - self.exponent).unsigned_abs());
            self.exponent = FINEST_EXPONENT;
        }
        if self.format != Format::BinarySi {
            return;
        }
        let maximum = Quantity {
            mantissa: BINARY_MAXIMUM,
            ..Quantity::ZERO
        };
        let magnitude = Quantity {
            mantissa: self.mantissa.abs(),
            text: None,
            ..*self
        };
        if magnitude > maximum {
            self.mantissa = BINARY_MAXIMUM * self.mantissa.signum();
            self.exponent = 0;
        } else if !magnitude.is_zero() && magnitude < Quantity::new(1, Format::DecimalSi) {
            self.format = Format::DecimalSi;
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.mantissa == 0 {
            return signs;
        }
        let magnitudes = compare_magnitudes(self, other);
        if self.mantissa < 0 {
            magnitudes.reverse()
        } else {
            magnitudes
        }
    }
}

fn compare_magnitudes(left: &Quantity, right: &Quantity) -> Ordering {
    let (a, b) = (left.mantissa.unsigned_abs(), right.mantissa.unsigned_abs());
    let order_of = |mantissa: u128, exponent: i32| i64::from(mantissa.ilog10()) + i64::from(exponent);
    order_of(a, left.exponent)
        .cmp(&order_of(b, right.exponent))
        .then_with(|| {
            let difference = left.exponent - right.exponent;
            let power = 10u128.checked_pow(difference.unsigned_abs());
            if difference >= 0 {
                power
                    .and_then(|power| a.checked_mul(power))
                    .map_or(Ordering::Greater, |a| a.cmp(&b))
            } else {
                power
                    .and_then(|power| b.checked_mul(power))
                    .map_or(Ordering::Less, |b| a.cmp(&b))
            }
        })
}

fn times_power_of_ten(mantissa: i128, power: i32) -> i128 {
    match 10i128.checked_pow(power.unsigned_abs()) {
        Some(factor) => mantissa.saturating_mul(factor),
        None => mantissa.signum().saturating_mul(i128::MAX),
    }
}

fn divide_away_from_zero(mantissa: i128, power: u32) -> i128 {
    match 10i128.checked_pow(power) {
        Some(divisor) => mantissa / divisor + (mantissa % divisor).signum(),
        None => mantissa.signum(),
    }
}

#[derive(Clone, Copy)]
enum Suffix {
    Decimal { exponent: i32, format: Format },
    Binary { power: u32 },
}

impl Suffix {
    fn parse(text: &str) -> Result<Self, QuantityError> {
        if let Some(&(_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == text) {
            return Ok(Suffix::Decimal {
                exponent,
                format: Format::DecimalSi,
            });
        }
        if let Some(&(_, power)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == text) {
            return Ok(Suffix::Binary { power });
        }
        let digits = text.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
        let exponent: i64 = digits.parse().map_err(|_| QuantityError::Suffix)?;
        Ok(Suffix::Decimal {
            exponent: exponent.clamp(-BEYOND_EXPONENTS, BEYOND_EXPONENTS) as i32,
            format: Format::DecimalExponent,
        })
    }
}

/// The pieces of a quantity's text; `whole` has no leading zeros and is never empty.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    has_no_digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let significant = unsigned.trim_start_matches('0');
        let (whole, rest) = split_digits(significant);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Parts {
            negative: text.starts_with('-'),
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            suffix,
            has_no_digits: !unsigned.starts_with('0') && whole.is_empty() && fraction.is_empty(),
        })
    }

    fn mantissa(&self) -> Result<i128, QuantityError> {
        let mut mantissa: i128 = 0;
        for byte in self.whole.bytes().chain(self.fraction.bytes()) {
            mantissa = mantissa
                .checked_mul(10)
                .and_then(|mantissa| mantissa.checked_add(i128::from(byte - b'0')))
                .ok_or(QuantityError::Numeric)?;
        }
        Ok(if self.negative { -mantissa } else { mantissa })
    }

    /// Whether upstream reads the number in the quick way, which forgives the absence of digits.
    fn is_simple(&self, suffix: Suffix, mantissa: i128) -> bool {
        let digits = self.whole.len() + self.fraction.len();
        match suffix {
            Suffix::Binary { power } => {
                let digits_left = 15 - self.whole.len() as i64 - i64::from(power) * 3 / 10 - 1;
                let fits = mantissa
                    .checked_mul(1 << power)
                    .is_some_and(|value| i64::try_from(value).is_ok());
                self.fraction.is_empty() && digits_left >= 0 && fits
            }
            Suffix::Decimal { exponent, .. } => {
                digits <= KEPT_DIGITS && exponent - self.fraction.len() as i32 >= FINEST_EXPONENT
            }
        }
    }

    /// Upstream keeps the given spelling where a quick look finds nothing to improve, even when a longer look would.
    fn keeps_spelling(&self, suffix: Suffix, mantissa: i128) -> bool {
        match suffix {
            Suffix::Binary { .. } => mantissa & 7 != 0,
            Suffix::Decimal { exponent, .. } => {
                let digits = self.whole.len() + self.fraction.len();
                (exponent - self.fraction.len() as i32) % 3 == 0
                    && (digits < 3 || mantissa % 1000 != 0)
                    && !self.whole.starts_with('0')
            }
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(length)
}

#[cfg(test)]
mod tests {
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
        let format =
            "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
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
}
