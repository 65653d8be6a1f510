//! One field of an expression as a set of values.

use super::error::{CronError, FieldName, cut};

/// The values a field allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Bit `n` is set if value `n` matches. Sunday is bit 0 only.
    pub(super) bits: u64,
    /// Whether its first character is `*`: decides the day rule and the DST rule.
    pub(super) star: bool,
    /// Whether the last day of the month matches too.
    pub(super) last_day: bool,
    /// Weekdays that match in one week of the month only: bit `8 * weekday + n` is set if the `n`th (1 to 5) does,
    /// bit `8 * weekday` if the last does.
    nth: u64,
}

/// Highest `n` of a weekday's `#n`.
const MOST_IN_A_MONTH: u32 = 5;

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl FieldName {
    /// Smallest and largest value of the cycle.
    const fn cycle(self) -> (u32, u32) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
        }
    }

    /// Largest value that may be written; 7 is another Sunday.
    const fn largest(self) -> u32 {
        match self {
            Self::DayOfWeek => 7,
            _ => self.cycle().1,
        }
    }

    fn allowed(self) -> String {
        let (min, max) = (self.cycle().0, self.largest());
        let names = match self {
            Self::DayOfMonth => " or L",
            Self::Month => " or JAN-DEC",
            Self::DayOfWeek => " or SUN-SAT, FRI#2 (the second Friday of the month), FRIL (the last)",
            _ => "",
        };
        format!("allowed are {min}-{max}{names}, *, lists, ranges and steps such as {min}-{max}/2")
    }

    fn value(self, text: &str) -> Option<u32> {
        let name = |names: &[&str]| names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = match self {
            Self::Month => name(&MONTHS).map(|at| at + 1),
            Self::DayOfWeek => name(&WEEKDAYS),
            _ => None,
        };
        if let Some(named) = named {
            return u32::try_from(named).ok();
        }
        // `parse` alone would take a sign.
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let value = text.parse().ok().filter(|_| plain)?;
        (self.cycle().0..=self.largest())
            .contains(&value)
            .then_some(value)
    }
}

impl Field {
    /// Only `value`.
    pub(super) const fn only(value: u32) -> Self {
        Self {
            bits: 1 << value,
            star: false,
            last_day: false,
            nth: 0,
        }
    }

    /// `text` as the field `name`.
    pub(super) fn parse(name: FieldName, text: &str) -> Result<Self, CronError> {
        let mut field = Self {
            bits: 0,
            star: text.starts_with('*'),
            last_day: false,
            nth: 0,
        };
        for item in text.split(',') {
            field.add(name, item).map_err(|reason| CronError::Field {
                field: name,
                text: cut(text),
                reason,
            })?;
        }
        Ok(field)
    }

    fn add(&mut self, name: FieldName, item: &str) -> Result<(), String> {
        if name == FieldName::DayOfMonth && item.eq_ignore_ascii_case("L") {
            self.last_day = true;
        } else if name == FieldName::DayOfWeek && item.contains(['#', 'L', 'l']) {
            self.nth |= nth_bit(item)?;
        } else {
            self.bits |= item_bits(name, item)?;
        }
        Ok(())
    }

    /// How many values match, in a field without `L` and `#`.
    pub(super) const fn count(&self) -> u64 {
        self.bits.count_ones() as u64
    }

    /// How many values below `value` match.
    pub(super) const fn count_below(&self, value: u32) -> u64 {
        (self.bits & !(u64::MAX << value)).count_ones() as u64
    }

    /// As day of month, the days that match in a month of `length` days: bit `n` for the `n`th.
    pub(super) fn days_of_month(&self, length: u32) -> u64 {
        let last = if self.last_day { 1 << length } else { 0 };
        (self.bits | last) & all_days(length)
    }

    /// As day of week, the days that match in a month of `length` days that begins on the weekday `first`.
    pub(super) fn days_of_week(&self, length: u32, first: u32) -> u64 {
        let mut days = 0;
        for weekday in 0..7 {
            let earliest = 1 + (7 + weekday - first) % 7;
            let nth = self.nth >> (8 * weekday);
            for n in 1..=MOST_IN_A_MONTH {
                if self.contains(weekday) || nth & 1 << n != 0 {
                    days |= 1 << (earliest + 7 * (n - 1));
                }
            }
            if nth & 1 != 0 {
                days |= 1 << (earliest + (length - earliest) / 7 * 7);
            }
        }
        days & all_days(length)
    }

    pub(super) const fn contains(&self, value: u32) -> bool {
        self.bits & (1 << value) != 0
    }

    /// The smallest value from `from` up.
    pub(super) const fn next(&self, from: u32) -> Option<u32> {
        let rest = if from < 64 {
            self.bits & (u64::MAX << from)
        } else {
            0
        };
        if rest == 0 {
            None
        } else {
            Some(rest.trailing_zeros())
        }
    }
}

/// Bits 1 to `length`.
const fn all_days(length: u32) -> u64 {
    (2 << length) - 2
}

/// `FRI#2` or `FRIL`: a weekday in one week of the month.
fn nth_bit(item: &str) -> Result<u64, String> {
    let weekday = |text: &str| {
        FieldName::DayOfWeek.value(text).map(|value| value % 7).ok_or_else(|| {
            format!(
                "{:?} is no weekday; before # or L stands one weekday: FRI#2 is the second Friday of the month, FRIL the last",
                cut(text)
            )
        })
    };
    if let Some((day, n)) = item.split_once('#') {
        let bit = weekday(day)? * 8;
        if n.eq_ignore_ascii_case("L") {
            return Err(format!("write {}L for the last of the month", cut(day)));
        }
        return match n.as_bytes() {
            [n @ b'1'..=b'5'] => Ok(1 << (bit + u32::from(n - b'0'))),
            _ => Err(format!(
                "{:?} is no week of a month; after # stands 1 to 5, and {}L is the last",
                cut(n),
                cut(day)
            )),
        };
    }
    match item.strip_suffix(['L', 'l']) {
        Some("") => Err("write FRIL for the last Friday of the month, and SAT for each Saturday".to_owned()),
        Some(day) => Ok(1 << (weekday(day)? * 8)),
        None => Err(format!(
            "{:?} is no value here; {}",
            cut(item),
            FieldName::DayOfWeek.allowed()
        )),
    }
}

/// One item of a list: `*`, `a`, `a-b`, `*/n` or `a-b/n`.
fn item_bits(name: FieldName, item: &str) -> Result<u64, String> {
    let (base, step) = match item.split_once('/') {
        Some((base, step)) => (base, Some(step)),
        None => (item, None),
    };
    let (min, max) = name.cycle();
    let size = max - min + 1;
    let value = |text: &str| {
        name.value(text).ok_or_else(|| match text {
            "" => format!("a value is missing; {}", name.allowed()),
            "?" => "'?' is not offered; write '*'".to_owned(),
            _ if text.contains('#') => format!("'#' belongs into the {} field: FRI#2", FieldName::DayOfWeek),
            _ => format!("{:?} is no value here; {}", cut(text), name.allowed()),
        })
    };
    let (start, length) = match (base, base.split_once('-')) {
        ("*", _) => (min, max - min),
        (_, Some((from, to))) => {
            let (from, to) = (value(from)?, value(to)?);
            // A range that ends before it starts goes round the cycle.
            (from, if to >= from { to - from } else { to + size - from })
        }
        (_, None) => {
            let start = value(base)?;
            if let Some(step) = step {
                return Err(format!(
                    "a step needs a range; write {start}-{max}/{step} or */{step}",
                    step = cut(step)
                ));
            }
            (start, 0)
        }
    };
    let step = match step {
        None => 1,
        Some(text) => step_value(text, length)?,
    };
    let values = (0..=length)
        .step_by(step)
        .map(|distance| min + (start - min + distance) % size);
    Ok(values.fold(0, |bits, value| bits | 1 << value))
}

/// A step must come round at least once within the range: programs differ in what a larger one means.
fn step_value(text: &str, length: u32) -> Result<usize, String> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let step: Option<u32> = text.parse().ok().filter(|_| plain);
    match step {
        Some(1) => Ok(1),
        Some(step) if (1..=length).contains(&step) => Ok(step as usize),
        _ => Err(format!(
            "{:?} is no step here; a step is 1-{}, and more than that is written as a plain value",
            cut(text),
            length.max(1)
        )),
    }
}
