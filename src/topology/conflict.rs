//! What the broker says when an object exists with another argument, taken apart. Pure.
//!
//! The text is the only place where the broker gives the current value. Its form is the same from 3.10 to 4.3:
//! `PRECONDITION_FAILED - inequivalent arg 'A' for queue 'N' in vhost 'V': received R but current is C`, where R
//! and C are `'value'`, `the value 'value' of type 'type'` or `none`. AMQP cuts it at 255 bytes, so a long name
//! may leave no values in it. An exclusive queue in the way is refused with 405, `RESOURCE_LOCKED`.

use std::fmt;

use super::objects::{ObjectKind, ObjectName};

/// An object that exists on the broker with another argument than wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The object.
    pub object: ObjectName,
    /// The first argument that differs, e.g. `x-message-ttl`, `durable`, `type`. There may be more.
    pub argument: String,
    /// What it is on the broker.
    pub current: Setting,
    /// What it is in the topology.
    pub wanted: Setting,
}

/// What one side says of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Set to this value.
    Value(String),
    /// Not set.
    Unset,
    /// The broker's text was cut before it.
    Unknown,
}

impl Conflict {
    /// The conflict that a 406 or 405 of the broker tells about `object`; `None` if the text tells of something else.
    pub fn parse(object: &ObjectName, text: &str) -> Option<Self> {
        if text.starts_with("RESOURCE_LOCKED") {
            // We never declare an exclusive queue, so only the one that exists can be it.
            return Some(Self {
                object: object.clone(),
                argument: "exclusive".to_owned(),
                current: Setting::Value("true".to_owned()),
                wanted: Setting::Value("false".to_owned()),
            });
        }
        let (_, rest) = text.split_once("inequivalent arg '")?;
        let (argument, rest) = rest.split_once('\'')?;
        let values = rest.split_once("': received ").map_or("", |(_, values)| values);
        let (wanted, current) = values.split_once(" but current is ").unwrap_or(("", ""));
        Some(Self {
            object: object.clone(),
            argument: argument.to_owned(),
            current: Setting::parse(current),
            wanted: Setting::parse(wanted),
        })
    }

    /// What to do about it, with the command.
    fn way_out(&self) -> String {
        let name = &self.object.name;
        match self.object.kind {
            ObjectKind::Queue => format!(
                "a policy can't override this. Either make the topology file say what the broker has, or declare \
                 a queue under a new name and move the messages over, or, if the queue is empty and unused, \
                 delete it and apply again: rabbitmqctl delete_queue {name} --if-empty --if-unused"
            ),
            ObjectKind::Exchange | ObjectKind::Binding | ObjectKind::Policy => format!(
                "an exchange can't be changed. Find out who else declares {name}; if nobody publishes to it, \
                 delete it (management page, or rabbitmqadmin delete exchange name={name}) and apply again"
            ),
        }
    }
}

impl Setting {
    fn parse(text: &str) -> Self {
        let text = text.trim();
        let inner = match text.strip_prefix("the value '") {
            Some(rest) => rest.rsplit_once("' of type '").map(|(value, _)| value),
            None if text == "none" => return Self::Unset,
            None => text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')),
        };
        inner.map_or(Self::Unknown, |value| Self::Value(value.to_owned()))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value:?}"),
            Self::Unset => f.write_str("not set"),
            Self::Unknown => f.write_str("unknown (the broker's text was cut)"),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} exists with {} {}, wanted {} (the first difference; there may be more, such as another queue \
             type): {}",
            self.object,
            self.argument,
            self.current,
            self.wanted,
            self.way_out()
        )
    }
}
