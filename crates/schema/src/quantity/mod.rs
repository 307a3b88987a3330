//! Amounts of resources: decimal numbers with a suffix, such as `500m`, `2Gi` or `1e3`.
//!
//! Values are exact: a 128-bit mantissa and a power of ten, no finer than a billionth. What is written is canonical:
//! no fraction, the largest suffix that needs none, in the family of suffixes the amount was given in.

mod parse;

use std::cmp::Ordering;
use std::fmt;

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

#[cfg(test)]
mod tests;
