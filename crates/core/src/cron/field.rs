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
}

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
            Self::DayOfWeek => " or SUN-SAT",
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
        }
    }

    /// `text` as the field `name`.
    pub(super) fn parse(name: FieldName, text: &str) -> Result<Self, CronError> {
        let mut field = Self {
            bits: 0,
            star: text.starts_with('*'),
            last_day: false,
        };
        for item in text.split(',') {
            if name == FieldName::DayOfMonth && item.eq_ignore_ascii_case("L") {
                field.last_day = true;
            } else {
                field.bits |= item_bits(name, item).map_err(|reason| CronError::Field {
                    field: name,
                    text: cut(text),
                    reason,
                })?;
            }
        }
        Ok(field)
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
