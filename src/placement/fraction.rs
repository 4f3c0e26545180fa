//! Shares as exact fractions.

use std::cmp::Ordering;
use std::fmt;

/// A fraction with a positive denominator.
#[derive(Debug, Clone, Copy)]
pub struct Fraction {
    over: i128,
    under: i128,
}

impl Fraction {
    /// Zero.
    pub const ZERO: Self = Self { over: 0, under: 1 };

    /// Makes a fraction of amounts; nothing without a whole.
    pub fn new(part: i64, whole: i64) -> Option<Self> {
        (whole > 0).then_some(Self { over: part.into(), under: whole.into() })
    }

    /// Returns whether it is larger than another by at least a tenth.
    pub fn exceeds_by_a_tenth(self, other: Self) -> bool {
        // a/b − c/d ≥ 1/10, in floating point only where the exact numbers would not fit.
        let left = self.over.checked_mul(other.under).zip(other.over.checked_mul(self.under));
        let exact = left.and_then(|(a, c)| a.checked_sub(c)?.checked_mul(10)).zip(self.under.checked_mul(other.under));
        exact.map_or_else(|| self.as_f64() - other.as_f64() >= 0.1, |(ten_times, whole)| ten_times >= whole)
    }

    /// The fraction in percent, rounded down.
    pub fn as_percent(self) -> i128 {
        (self.over * 100).div_euclid(self.under)
    }

    #[expect(clippy::cast_precision_loss, reason = "only where exact numbers do not fit")]
    fn as_f64(self) -> f64 {
        self.over as f64 / self.under as f64
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        // Numerators and denominators are 64 bits wide, so the products fit.
        (self.over * other.under).cmp(&(other.over * self.under))
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Fraction {}

impl fmt::Display for Fraction {
    /// Writes it in lowest terms: `17/20`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut a, mut b) = (self.over.unsigned_abs(), self.under.unsigned_abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let divisor = i128::try_from(a.max(1)).unwrap_or(1);
        write!(f, "{}/{}", self.over / divisor, self.under / divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_fraction(part: i64, whole: i64) -> Fraction {
        Fraction::new(part, whole).unwrap()
    }

    #[test]
    fn fractions_are_compared_and_written_exactly() {
        assert!(make_fraction(1, 3) > make_fraction(333_333_333, 1_000_000_000));
        assert_eq!(make_fraction(2, 4), make_fraction(1, 2));
        assert_eq!(
            (make_fraction(-4, 32).to_string(), make_fraction(0, 7).to_string()),
            ("-1/8".to_owned(), "0/1".to_owned())
        );
        assert!(
            make_fraction(6, 10).exceeds_by_a_tenth(make_fraction(1, 2))
                && !make_fraction(599, 1000).exceeds_by_a_tenth(make_fraction(1, 2))
        );
        assert!(
            make_fraction(i64::MAX, i64::MAX - 1) > make_fraction(1, 1)
                && make_fraction(i64::MIN, 1) < make_fraction(i64::MAX, 1)
        );
        assert!(make_fraction(i64::MAX, 1).exceeds_by_a_tenth(make_fraction(1, i64::MAX)), "beyond what is exact");
        assert_eq!(make_fraction(5, 8).as_percent(), 62);
        assert!(Fraction::new(1, 0).is_none());
    }
}
