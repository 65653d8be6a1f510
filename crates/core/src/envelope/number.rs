//! Whether a double holds a number as it is written: most languages parse JSON numbers into nothing else.

/// 2^53, the last integer up to which doubles have no gaps.
const TWO_TO_53: &[u8; 16] = b"9007199254740992";

/// Significant digits that a double can carry.
const MAX_DIGITS: usize = 17;

/// Whether `number`, a JSON number, is at most 2^53 in size, has at most 17 significant digits (zeros at either
/// end do not count) and does not become zero by being tiny.
pub(crate) fn is_exact(number: &str) -> bool {
    // Fifteen digits and no exponent break none of the rules; nearly all numbers end here.
    if number.len() <= 15 && !number.contains(['e', 'E']) {
        return true;
    }
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let mantissa = mantissa.trim_start_matches('-');
    let whole = mantissa.split('.').next().unwrap_or_default();
    let digits = || mantissa.bytes().filter(u8::is_ascii_digit);

    let leading_zeros = digits().take_while(|d| *d == b'0').count();
    let Some(last) = digits()
        .enumerate()
        .filter(|(_, d)| *d != b'0')
        .map(|(at, _)| at)
        .last()
    else {
        return true; // zero, whatever its exponent
    };
    let significant = last + 1 - leading_zeros;
    if significant > MAX_DIGITS {
        return false;
    }

    // The number is 0.DIGITS × 10^magnitude.
    let magnitude = exponent_value(exponent)
        .saturating_add(i64::try_from(whole.len()).unwrap_or(i64::MAX))
        .saturating_sub(i64::try_from(leading_zeros).unwrap_or(i64::MAX));
    match magnitude {
        17.. => false,
        16 => digits()
            .skip(leading_zeros)
            .take(significant)
            .le(TWO_TO_53.iter().copied()),
        -300.. => true,
        _ => number.parse::<f64>().is_ok_and(|double| double != 0.0),
    }
}

/// The exponent, or the nearest end of `i64` for one that does not fit.
fn exponent_value(text: &str) -> i64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let size = digits.parse().unwrap_or(i64::MAX);
    if negative { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_double_holds_is_exact() {
        let exact = [
            "0",
            "-0",
            "1",
            "-1",
            "1.0",
            "0.1",
            "89.90",
            "9007199254740992",
            "-9007199254740992",
            "9.007199254740992e15",
            "9007199254740991",
            "0.30000000000000004",
            "12345678901234567e-17",
            "1e15",
            "1E+15",
            "1000000000000000",
            "0e400",
            "0.000e99999999999999999999",
            "5e-324",
            "2.2250738585072014e-308",
            "1.50000000000000000000000000",
            "0.00000000000000000000000000012345678901234567",
            "90071992547409920e-1",
            "-1.7976931348623157e-300",
        ];
        for number in exact {
            assert!(is_exact(number), "{number}");
        }
    }

    #[test]
    fn what_a_double_rounds_is_not() {
        let rounded = [
            "9007199254740993",
            "-9007199254740993",
            "9007199254740992.5",
            "9007199254740992.1",
            "18446744073709551615",
            "18446744073709551616",
            "1e400",
            "-1e400",
            "1e16",
            "1e99999999999999999999",
            "0.123456789012345678",
            "123456789012345678e-10",
            "1e-400",
            "2e-324",
            "1e-99999999999999999999",
            "10000000000000000",
            "1.7976931348623157e308",
            "90071992547409930e-1",
        ];
        for number in rounded {
            assert!(!is_exact(number), "{number}");
        }
    }
}
