//! Reading quantities as upstream reads them, down to which spellings it keeps.

use std::str::FromStr;

use super::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, Quantity, QuantityError, divide_away_from_zero};

/// The finest step; anything smaller is rounded up, away from zero.
const FINEST_EXPONENT: i32 = -9;

/// Amounts with a binary suffix are capped here, as upstream caps them.
const BINARY_MAXIMUM: i128 = i64::MAX as i128;

/// From this power of ten on only zero is accepted, so that arithmetic on exponents cannot overflow.
const BEYOND_EXPONENTS: i64 = 1_000_000;

/// The number of digits up to which upstream keeps the given spelling when it is canonical enough.
const KEPT_DIGITS: usize = 18;

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
        // It is written with an exponent that is a multiple of three, and must be readable again.
        let growth = 10i128.pow(quantity.exponent.rem_euclid(3).unsigned_abs());
        if quantity.mantissa.checked_mul(growth).is_none() {
            return Err(QuantityError::Numeric);
        }
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
