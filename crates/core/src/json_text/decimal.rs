//! A number of a JSON text by its value, without a float: 9007199254740993 and 9007199254740992 differ, and 1.0, 1 and
//! 10e-1 don't.

use std::cmp::Ordering;

/// A number as `0.DIGITS × 10^exponent`, digits without zeros at either end; zero has none, and no sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    is_negative: bool,
    digits: Box<str>,
    exponent: Exponent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exponent {
    Of(i128),
    /// More than thirty digits: no such number means anything, and only the same text is the same number.
    Beyond(Box<str>),
}

impl Decimal {
    /// The value of `number`, a JSON number.
    pub(crate) fn of(number: &str) -> Self {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let leading = all.len() - digits.len();
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            return Self {
                is_negative: false,
                digits: "".into(),
                exponent: Exponent::Of(0),
            };
        }
        let size = exponent.trim_start_matches(['+', '-']).trim_start_matches('0');
        let exponent = if size.len() > 30 {
            Exponent::Beyond(number.into())
        } else {
            let size: i128 = size.parse().unwrap_or(0);
            let written = if exponent.starts_with('-') { -size } else { size };
            // Lengths are those of a text in memory, far from the ends of the type.
            Exponent::Of(written + whole.len() as i128 - leading as i128)
        };
        Self {
            is_negative,
            digits: digits.into(),
            exponent,
        }
    }

    /// Which of the two is larger; `None` where an exponent is beyond all meaning.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        let sign = |d: &Self| match (d.digits.is_empty(), d.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let (one, two) = (sign(self), sign(other));
        if one != two || one == 0 {
            return Some(one.cmp(&two));
        }
        let (Exponent::Of(a), Exponent::Of(b)) = (&self.exponent, &other.exponent) else {
            return None;
        };
        // Digits of a fraction compare as text does, a shorter one being followed by zeros.
        let size = a.cmp(b).then_with(|| self.digits.cmp(&other.digits));
        Some(if one < 0 { size.reverse() } else { size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(one: &str, two: &str) -> bool {
        Decimal::of(one) == Decimal::of(two)
    }

    #[test]
    fn numbers_are_compared_by_value_and_to_the_last_digit() {
        for (one, two) in [
            ("1", "1.0"),
            ("1", "10e-1"),
            ("1", "0.1E+1"),
            ("100", "1e2"),
            ("-0", "0"),
            ("0.0", "0e99"),
            ("-1.50", "-15e-1"),
            ("0.001", "1e-3"),
            ("1e400", "10e399"),
            ("1e007", "1e7"),
            ("18446744073709551616", "1.8446744073709551616e19"),
        ] {
            assert!(equal(one, two), "{one} {two}");
        }
        for (one, two) in [
            ("1", "-1"),
            ("1", "10"),
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000001"),
            ("1e400", "1e401"),
            ("1e-400", "0"),
            (
                "1e99999999999999999999999999999999",
                "1e99999999999999999999999999999998",
            ),
        ] {
            assert!(!equal(one, two), "{one} {two}");
        }
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let rising = [
            "-1e400",
            "-9007199254740993",
            "-9007199254740992",
            "-10",
            "-2",
            "-1.5",
            "-1",
            "-0.001",
            "0",
            "1e-400",
            "0.001",
            "0.15",
            "0.2",
            "1",
            "1.5",
            "2",
            "10",
            "9007199254740992",
            "9007199254740993",
            "1e400",
        ];
        for (a, one) in rising.iter().enumerate() {
            for (b, two) in rising.iter().enumerate() {
                let found = Decimal::of(one).compare(&Decimal::of(two));
                assert_eq!(found, Some(a.cmp(&b)), "{one} {two}");
            }
        }
        assert_eq!(
            Decimal::of("-0.0").compare(&Decimal::of("0")),
            Some(Ordering::Equal)
        );
        let beyond = format!("1e{}", "9".repeat(31));
        assert_eq!(Decimal::of(&beyond).compare(&Decimal::of("1")), None);
    }
}
