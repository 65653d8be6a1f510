//! The fields at the top level of a body: presence, types and ranges.
//!
//! `null` is refused for every field: whether it would mean "absent" or "no value, not even the default" is
//! answered differently in every language, so the producer leaves the field out.

use std::{borrow::Cow, ops::RangeInclusive, time::Duration};

use chrono::{DateTime, FixedOffset, Utc};

use super::{
    Envelope, Limits, Payload,
    error::{EnvelopeError, Rule},
    field::{FIELDS, Field, REQUIRED, unknown_field_advice},
    pointer::Place,
    scan::Token,
    time,
    walk::{Stop, Walk},
};
use crate::task::{TaskId, TaskType};

/// Longest `idempotencyKey` in characters.
const MAX_KEY_CHARS: usize = 256;

/// Longest `producer` and `traceId` in bytes: they travel as AMQP short strings.
const MAX_SHORT_BYTES: usize = 255;

/// Largest integer that a double counts to without gaps.
const MAX_EXACT: i64 = 1 << 53;

const TIME_ADVICE: &str =
    "send an RFC 3339 string with offset, such as 2025-04-02T12:00:01Z or 2025-04-02T12:00:01+08:00";

/// Reads `text`, a valid JSON text, as an envelope.
pub(super) fn envelope(text: &str, limits: &Limits, now: DateTime<Utc>) -> Result<Envelope, EnvelopeError> {
    let mut reader = Reader {
        text,
        walk: Walk::new(text, limits.max_payload_depth),
        limits,
        now,
        seen: [const { None }; FIELDS.len()],
        draft: Draft::default(),
    };
    let end = reader.body();
    if !reader.walk.violations.is_empty() {
        return Err(EnvelopeError {
            violations: reader.walk.violations,
        });
    }
    match end.ok().and_then(|()| reader.draft.finish()) {
        Some(envelope) => Ok(envelope),
        // Valid JSON always reads to its end, and a missing field is a violation; should either ever be wrong, the
        // body is refused, not accepted.
        None => Err(EnvelopeError::whole_body(
            Rule::Syntax,
            "the body cannot be read; send one JSON object",
        )),
    }
}

/// An envelope while its fields come in.
#[derive(Default)]
struct Draft {
    task_id: Option<TaskId>,
    task_type: Option<TaskType>,
    payload_version: Option<u32>,
    payload: Option<Payload>,
    schedule_time: Option<DateTime<FixedOffset>>,
    timeout: Option<Duration>,
    max_retries: Option<u32>,
    priority: Option<u8>,
    idempotency_key: Option<String>,
    producer: Option<String>,
    trace_id: Option<String>,
    timestamp: Option<DateTime<FixedOffset>>,
}

impl Draft {
    fn finish(self) -> Option<Envelope> {
        Some(Envelope {
            task_id: self.task_id?,
            task_type: self.task_type?,
            payload_version: self.payload_version.unwrap_or(1),
            payload: self.payload?,
            schedule_time: self.schedule_time,
            timeout: self.timeout,
            max_retries: self.max_retries,
            priority: self.priority.unwrap_or(100),
            idempotency_key: self.idempotency_key,
            producer: self.producer,
            trace_id: self.trace_id,
            timestamp: self.timestamp,
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    walk: Walk<'a>,
    limits: &'a Limits,
    now: DateTime<Utc>,
    /// How each field was spelled, in the order of [`FIELDS`].
    seen: [Option<Cow<'a, str>>; FIELDS.len()],
    draft: Draft,
}

impl<'a> Reader<'a> {
    fn body(&mut self) -> Result<(), Stop> {
        if !self.walk.scanner.eat(b'{') {
            let advice = "the body is JSON but no object; send one object, one task per message";
            return self.walk.refuse(&Place::Body, Rule::NotAnObject, advice);
        }
        if !self.walk.scanner.eat(b'}') {
            loop {
                self.member()?;
                if !self.walk.more(b'}')? {
                    break;
                }
            }
        }
        for field in REQUIRED {
            if self.seen[field as usize].is_none() {
                let pointer = format!("/{}", field.camel());
                let advice = "the field is required; send it";
                self.walk.refuse_at(pointer, Rule::MissingField, advice)?;
            }
        }
        Ok(())
    }

    fn member(&mut self) -> Result<(), Stop> {
        let Some((raw, name)) = self.walk.key(&Place::Body)? else {
            return self.skip_value();
        };
        let place = Place::Key(&Place::Body, raw);
        let Some(field) = Field::by_name(&name) else {
            self.walk
                .refuse(&place, Rule::UnknownField, unknown_field_advice(&name))?;
            return self.skip_value();
        };
        match &self.seen[field as usize] {
            None => {}
            Some(before) if *before == name => {
                self.walk
                    .refuse(&place, Rule::DuplicateKey, "the field stands twice; send it once")?;
                return self.skip_value();
            }
            Some(before) => {
                let advice = format!("the field is there as {before} too; send one of the two spellings");
                self.walk.refuse(&place, Rule::BothSpellings, advice)?;
                return self.skip_value();
            }
        }
        self.seen[field as usize] = Some(name);
        self.field(field, &place)
    }

    fn field(&mut self, field: Field, place: &Place<'_>) -> Result<(), Stop> {
        match field {
            Field::TaskId => self.draft.task_id = self.name(place, TaskId::parse)?,
            Field::TaskType => self.draft.task_type = self.name(place, TaskType::parse)?,
            // The ledger keeps it in a 32-bit column.
            Field::PayloadVersion => {
                self.draft.payload_version = self.integer(place, 1..=i64::from(i32::MAX))?
            }
            Field::Payload => self.draft.payload = self.payload(place)?,
            Field::ScheduleTime => self.draft.schedule_time = self.schedule_time(place)?,
            Field::TimeoutMs => {
                self.draft.timeout = self.integer(place, 1..=86_400_000)?.map(Duration::from_millis);
            }
            Field::MaxRetries => self.draft.max_retries = self.integer(place, 0..=100)?,
            Field::Priority => self.draft.priority = self.integer(place, 0..=255)?,
            Field::IdempotencyKey => self.draft.idempotency_key = self.idempotency_key(place)?,
            Field::Producer => self.draft.producer = self.short_text(place)?,
            Field::TraceId => self.draft.trace_id = self.short_text(place)?,
            Field::Timestamp => self.draft.timestamp = self.time(place)?,
            Field::RetryCount => {
                self.integer::<i64>(place, -MAX_EXACT..=MAX_EXACT)?;
            }
        }
        Ok(())
    }

    fn payload(&mut self, place: &Place<'_>) -> Result<Option<Payload>, Stop> {
        match self.walk.token()? {
            Token::Object => {
                let start = self.walk.scanner.position() - 1;
                self.walk.object(place, 1)?;
                Ok(self
                    .text
                    .get(start..self.walk.scanner.position())
                    .map(|text| Payload(text.into())))
            }
            Token::Str(_) => {
                let advice = "must be an object; send the object itself, not JSON text in a string";
                self.walk.refuse(place, Rule::WrongType, advice)?;
                Ok(None)
            }
            token => self.wrong_type(place, token, "must be an object, if only {}"),
        }
    }

    fn text(&mut self, place: &Place<'_>, expected: &str) -> Result<Option<Cow<'a, str>>, Stop> {
        match self.walk.token()? {
            Token::Str(text) if self.walk.sound(place, text)? => text.decode().ok_or(Stop).map(Some),
            Token::Str(_) => Ok(None),
            token => self.wrong_type(place, token, expected),
        }
    }

    fn name<T, E: ToString>(
        &mut self,
        place: &Place<'_>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Stop> {
        let Some(text) = self.text(place, "must be a string")? else {
            return Ok(None);
        };
        match parse(&text) {
            Ok(name) => Ok(Some(name)),
            Err(error) => self.refuse(place, Rule::BadFormat, error.to_string()),
        }
    }

    fn short_text(&mut self, place: &Place<'_>) -> Result<Option<String>, Stop> {
        match self.text(place, "must be a string")? {
            Some(text) if text.len() > MAX_SHORT_BYTES => self.refuse(
                place,
                Rule::OutOfRange,
                format!("must be at most {MAX_SHORT_BYTES} bytes of UTF-8"),
            ),
            text => Ok(text.map(Cow::into_owned)),
        }
    }

    fn idempotency_key(&mut self, place: &Place<'_>) -> Result<Option<String>, Stop> {
        match self.text(place, "must be a string")? {
            // An empty key would make all tasks of the type one.
            Some(text) if text.is_empty() || text.chars().count() > MAX_KEY_CHARS => {
                let advice =
                    format!("must be 1 to {MAX_KEY_CHARS} characters; leave the field out for no key");
                self.refuse(place, Rule::OutOfRange, advice)
            }
            text => Ok(text.map(Cow::into_owned)),
        }
    }

    fn time(&mut self, place: &Place<'_>) -> Result<Option<DateTime<FixedOffset>>, Stop> {
        let Some(text) = self.text(place, TIME_ADVICE)? else {
            return Ok(None);
        };
        match time::parse(&text) {
            Some(time) => Ok(Some(time)),
            None => self.refuse(place, Rule::BadFormat, TIME_ADVICE),
        }
    }

    fn schedule_time(&mut self, place: &Place<'_>) -> Result<Option<DateTime<FixedOffset>>, Stop> {
        let limit = self.limits.max_schedule_ahead;
        match self.time(place)? {
            // `to_std` fails for a time in the past, which is fine: the task is due.
            Some(time)
                if (time.to_utc() - self.now)
                    .to_std()
                    .is_ok_and(|ahead| ahead > limit) =>
            {
                let advice = format!("is more than {} ahead; send an earlier time", span(limit));
                self.refuse(place, Rule::TooFarAhead, advice)
            }
            time => Ok(time),
        }
    }

    /// An integer in digits only: `1.0` and `1e2` are integers for some languages and not for others.
    fn integer<T: TryFrom<i64>>(
        &mut self,
        place: &Place<'_>,
        range: RangeInclusive<i64>,
    ) -> Result<Option<T>, Stop> {
        let expected = || format!("must be an integer from {} to {}", range.start(), range.end());
        match self.walk.token()? {
            Token::Number(number) if !number.contains(['.', 'e', 'E']) => {
                match number
                    .parse()
                    .ok()
                    .filter(|n| range.contains(n))
                    .and_then(|n| T::try_from(n).ok())
                {
                    Some(n) => Ok(Some(n)),
                    None => self.refuse(place, Rule::OutOfRange, expected()),
                }
            }
            Token::Number(_) => self.refuse(
                place,
                Rule::WrongType,
                expected() + ", without fraction or exponent",
            ),
            token => self.wrong_type(place, token, &expected()),
        }
    }

    fn wrong_type<T>(
        &mut self,
        place: &Place<'_>,
        token: Token<'a>,
        expected: &str,
    ) -> Result<Option<T>, Stop> {
        let advice = match token {
            Token::Null => format!("is null; {expected}, and an optional field with no value is left out"),
            _ => expected.to_owned(),
        };
        self.walk.refuse(place, Rule::WrongType, advice)?;
        self.walk.skip(token)?;
        Ok(None)
    }

    fn refuse<T>(
        &mut self,
        place: &Place<'_>,
        rule: Rule,
        advice: impl Into<String>,
    ) -> Result<Option<T>, Stop> {
        self.walk.refuse(place, rule, advice).map(|()| None)
    }

    fn skip_value(&mut self) -> Result<(), Stop> {
        let token = self.walk.token()?;
        self.walk.skip(token)
    }
}

/// `span` in days where it is whole days, else in seconds.
fn span(span: Duration) -> String {
    const DAY: u64 = 24 * 3600;
    match span.as_secs() {
        secs if secs >= DAY && secs % DAY == 0 => format!("{} days", secs / DAY),
        secs => format!("{secs} seconds"),
    }
}
