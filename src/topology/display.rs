//! How objects are written for people: one line each, stable, so that two topologies can be compared as text.

use std::fmt;

use tidegate_core::ladder::Destination;

use super::objects::{
    Binding, Exchange, ExchangeKind, Object, ObjectKind, ObjectName, Objects, Policy, Queue, Value,
};

/// A number with what it counts: `1 message`, `2 messages`.
pub fn counted(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{s}")
}

impl Object<'_> {
    /// Its kind and name.
    pub fn name(&self) -> ObjectName {
        let (kind, name) = match self {
            Self::Exchange(exchange) => (ObjectKind::Exchange, exchange.name.clone()),
            Self::Queue(queue) => (ObjectKind::Queue, queue.name.clone()),
            Self::Binding(b) => (
                ObjectKind::Binding,
                format!("{} → {} ({})", b.source, b.destination_name(), b.pattern),
            ),
        };
        ObjectName { kind, name }
    }
}

impl ExchangeKind {
    /// The type as the broker writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Fanout => "fanout",
        }
    }
}

impl ObjectKind {
    /// The kind as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::Queue => "queue",
            Self::Binding => "binding",
            Self::Policy => "policy",
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

impl Value {
    /// As JSON writes it.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Int(number) => (*number).into(),
            Self::Bool(yes) => (*yes).into(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(yes) => write!(f, "{yes}"),
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exchange {} {}", self.name, self.kind.as_str())?;
        match &self.alternate {
            Some(alternate) => write!(f, " alternate-exchange={alternate}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {}", self.name)?;
        self.arguments
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.destination {
            Destination::Queue(_) => ObjectKind::Queue,
            Destination::Exchange(_) => ObjectKind::Exchange,
        };
        write!(
            f,
            "binding {} → {} {}",
            self.source,
            kind.as_str(),
            self.destination_name()
        )?;
        if self.pattern.is_empty() {
            Ok(())
        } else {
            write!(f, " key={}", self.pattern)
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            pattern,
            apply_to,
            priority,
            definition,
        } = self;
        write!(f, "policy {name} for {apply_to} {pattern} priority={priority}")?;
        definition
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exchanges.iter().try_for_each(|e| writeln!(f, "{e}"))?;
        self.queues.iter().try_for_each(|q| writeln!(f, "{q}"))?;
        self.bindings.iter().try_for_each(|b| writeln!(f, "{b}"))?;
        self.policies.iter().try_for_each(|p| writeln!(f, "{p}"))
    }
}
