//! How large a value may be, and arithmetic over that which stops at the largest number.

use crate::Type;

/// The least and the greatest number of characters, bytes or items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub min: u64,
    pub max: u64,
}

impl Size {
    pub const UNKNOWN: Size = Size { min: 0, max: u64::MAX };

    pub fn exactly(size: u64) -> Size {
        Size { min: size, max: size }
    }

    pub fn plus(self, other: Size) -> Size {
        Size {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub fn times(self, other: Size) -> Size {
        Size {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Covers both.
    pub fn or(self, other: Size) -> Size {
        Size {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// What walking over the value costs at most.
    pub fn traversal(self) -> u64 {
        scaled(self.max, TRAVERSAL)
    }
}

/// What looking at one character costs.
pub const TRAVERSAL: f64 = 0.1;
/// What one character of a regular expression costs.
pub const REGEX: f64 = 0.25;

/// A number times a factor, rounded up.
pub fn scaled(number: u64, factor: f64) -> u64 {
    // Conversion from f64 stops at the largest number.
    (number as f64 * factor).ceil() as u64
}

/// The size that every value of a type has.
pub fn size_of_type(ty: &Type) -> Option<Size> {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => Some(Size::exactly(1)),
        Type::Optional(of) => size_of_type(of),
        _ => None,
    }
}
