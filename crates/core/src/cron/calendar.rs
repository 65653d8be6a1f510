//! An expression as sets of values: the next local time that matches, and how many do.
//!
//! Local times are seconds since 1970 as a wall clock shows them; zones are the business of [`super::walk`].

use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

use super::MAX_EXPRESSION_BYTES;
use super::error::{CronError, FieldName, cut};
use super::field::Field;

/// After this many years every combination of date and weekday has come.
const GREGORIAN_CYCLE_YEARS: i32 = 400;

/// Last year searched: the last that RFC 3339 can write.
const LAST_YEAR: i32 = 9999;

/// The end of that year as a local time.
const END: i64 = 253_402_300_800;

/// A parsed expression; at least one date matches it.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    second: Field,
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Calendar {
    pub(super) fn parse(expression: &str) -> Result<Self, CronError> {
        if expression.len() > MAX_EXPRESSION_BYTES {
            return Err(CronError::TooLong {
                bytes: expression.len(),
            });
        }
        let text = expression.trim_ascii();
        let text = if text.starts_with('@') {
            expand(text)?
        } else {
            text
        };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let (second, rest) = match fields.as_slice() {
            [second, rest @ ..] if rest.len() == 5 => (Field::parse(FieldName::Second, second)?, rest),
            rest => (Field::only(0), rest),
        };
        let &[minute, hour, day, month, weekday] = rest else {
            return Err(CronError::FieldCount { found: fields.len() });
        };
        let calendar = Self {
            second,
            minute: Field::parse(FieldName::Minute, minute)?,
            hour: Field::parse(FieldName::Hour, hour)?,
            day: Field::parse(FieldName::DayOfMonth, day)?,
            month: Field::parse(FieldName::Month, month)?,
            weekday: Field::parse(FieldName::DayOfWeek, weekday)?,
        };
        let fires = NaiveDate::from_ymd_opt(2000, 1, 1).and_then(|start| calendar.next_date(start));
        match fires {
            Some(_) => Ok(calendar),
            None => Err(CronError::NeverFires { text: cut(text) }),
        }
    }

    /// Whether it follows real time across changes of the clock: its minute or hour starts with `*`.
    pub(super) const fn follows_real_time(&self) -> bool {
        self.minute.star || self.hour.star
    }

    /// The first matching local time from `local` on; `None` if there is none before the year 10000.
    pub(super) fn next_local(&self, local: i64) -> Option<i64> {
        let from = DateTime::from_timestamp(local, 0)?.naive_utc();
        let mut date = self.next_date(from.date())?;
        let time = if date == from.date() {
            self.next_time(from.time())
        } else {
            self.first_time()
        };
        let time = match time {
            Some(time) => time,
            None => {
                date = self.next_date(date.succ_opt()?)?;
                self.first_time()?
            }
        };
        Some(date.and_time(time).and_utc().timestamp())
    }

    /// How many matching local times lie in [`from`, `until`). Costs a few steps per month.
    pub(super) fn count_local(&self, from: i64, until: i64) -> u64 {
        let end = |local| DateTime::from_timestamp(local, 0).map(|at| at.naive_utc());
        let (Some(from), Some(until)) = (end(from), end(until.min(END))) else {
            return 0;
        };
        if from >= until {
            return 0;
        }
        let before = |at: NaiveDateTime| {
            let matches =
                self.month.contains(at.month()) && self.days(first_of_month(at.date())) & 1 << at.day() != 0;
            if matches { self.times_before(at.time()) } else { 0 }
        };
        let a_day = self.hour.count() * self.minute.count() * self.second.count();
        self.dates_between(from.date(), until.date()) * a_day + before(until) - before(from)
    }

    /// How many dates match in [`from`, `until`).
    fn dates_between(&self, from: NaiveDate, until: NaiveDate) -> u64 {
        let mut dates = 0;
        let mut first = first_of_month(from);
        while first < until {
            let mut days = 0;
            if self.month.contains(first.month()) {
                days = self.days(first);
            }
            if first <= from {
                days &= u64::MAX << from.day();
            }
            let next = first.checked_add_months(Months::new(1)).unwrap_or(NaiveDate::MAX);
            if next > until {
                days &= !(u64::MAX << until.day());
            }
            dates += u64::from(days.count_ones());
            first = next;
        }
        dates
    }

    /// How many times of a day before `time` match.
    fn times_before(&self, time: NaiveTime) -> u64 {
        let (minutes, seconds) = (self.minute.count(), self.second.count());
        let mut times = self.hour.count_below(time.hour()) * minutes * seconds;
        if self.hour.contains(time.hour()) {
            times += self.minute.count_below(time.minute()) * seconds;
            if self.minute.contains(time.minute()) {
                times += self.second.count_below(time.second());
            }
        }
        times
    }

    fn next_date(&self, from: NaiveDate) -> Option<NaiveDate> {
        let last = LAST_YEAR.min(from.year().saturating_add(GREGORIAN_CYCLE_YEARS));
        let (mut year, mut month, mut from_day) = (from.year(), from.month(), from.day());
        while year <= last {
            if self.month.contains(month)
                && let Some(day) = self.next_day(NaiveDate::from_ymd_opt(year, month, 1)?, from_day)
            {
                return NaiveDate::from_ymd_opt(year, month, day);
            }
            (year, month) = if month == 12 {
                (year + 1, 1)
            } else {
                (year, month + 1)
            };
            from_day = 1;
        }
        None
    }

    /// The first matching day from `from` on in the month that begins with `first`.
    fn next_day(&self, first: NaiveDate, from: u32) -> Option<u32> {
        let rest = self.days(first) & (u64::MAX << from);
        (rest != 0).then(|| rest.trailing_zeros())
    }

    /// The days that match in the month that begins with `first`: bit `n` is set if the `n`th does.
    fn days(&self, first: NaiveDate) -> u64 {
        let length = u32::from(first.num_days_in_month());
        let of_month = self.day.days_of_month(length);
        let of_week = self
            .weekday
            .days_of_week(length, first.weekday().num_days_from_sunday());
        if self.day.star || self.weekday.star {
            of_month & of_week
        } else {
            of_month | of_week
        }
    }

    fn first_time(&self) -> Option<NaiveTime> {
        self.next_time(NaiveTime::MIN)
    }

    fn next_time(&self, from: NaiveTime) -> Option<NaiveTime> {
        let (first_minute, first_second) = (self.minute.next(0)?, self.second.next(0)?);
        let hour = self.hour.next(from.hour())?;
        if hour > from.hour() {
            return NaiveTime::from_hms_opt(hour, first_minute, first_second);
        }
        if let Some(minute) = self.minute.next(from.minute()) {
            if minute > from.minute() {
                return NaiveTime::from_hms_opt(hour, minute, first_second);
            }
            if let Some(second) = self.second.next(from.second()) {
                return NaiveTime::from_hms_opt(hour, minute, second);
            }
            if let Some(minute) = self.minute.next(minute + 1) {
                return NaiveTime::from_hms_opt(hour, minute, first_second);
            }
        }
        NaiveTime::from_hms_opt(self.hour.next(hour + 1)?, first_minute, first_second)
    }
}

fn first_of_month(date: NaiveDate) -> NaiveDate {
    // The first is a day of every month.
    date.with_day(1).unwrap_or(date)
}

fn expand(text: &str) -> Result<&'static str, CronError> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return Err(CronError::Macro { text: cut(text) }),
    })
}
