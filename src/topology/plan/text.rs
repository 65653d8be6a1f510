//! A plan as people read it. Names and values are anybody's: what would steer a terminal is shown escaped.

use std::fmt::{self, Write};

use serde_json::Value as Json;
use tidegate_core::ladder::Destination;

use super::{
    Change, Conflict, Counts, Difference, Edit, Extra, Origin, Plan, Remedy, Unwanted, Wanted,
    change::as_json, force::same,
};
use crate::topology::{
    ObjectName, counted,
    live::{LiveBinding, Version},
};

/// What a line is about, for whoever colours it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `+`
    Add,
    /// `~`
    Change,
    /// `!`
    Conflict,
    /// `-`
    Extra,
    /// A warning.
    Warning,
    /// Anything else.
    Plain,
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub mark: Mark,
    /// Its text, without a line break.
    pub text: String,
}

impl Mark {
    /// The character at the start of its lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Change => "~",
            Self::Conflict => "!",
            Self::Extra => "-",
            Self::Warning | Self::Plain => " ",
        }
    }
}

/// `text` with all that a terminal would act on, instead of showing it, escaped.
pub fn shown(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

impl Plan {
    /// The plan as lines.
    pub fn lines(&self) -> Vec<Line> {
        let mut page = Page::default();
        for change in &self.changes {
            page.change(change, self.version);
        }
        for note in &self.notes {
            page.line(Mark::Plain, format!("note: {}: {}", note.about, note.text));
        }
        for lint in &self.lints {
            let object = lint
                .object
                .as_ref()
                .map_or("broker".to_owned(), ToString::to_string);
            page.line(
                Mark::Warning,
                format!("warning: {object}: {} [{}]: {}", lint.what, lint.rule, lint.next),
            );
        }
        for unread in &self.unread {
            page.line(
                Mark::Warning,
                format!("not seen: {}: {}", unread.what, unread.why),
            );
        }
        if !page.0.is_empty() {
            page.line(Mark::Plain, String::new());
        }
        page.line(Mark::Plain, self.summary());
        page.0
    }

    /// The last line.
    pub fn summary(&self) -> String {
        if !self.has_differences() {
            return if self.unread.is_empty() {
                format!(
                    "No differences: the broker is as described ({} objects).",
                    self.wanted
                )
            } else {
                "No differences in what could be seen.".to_owned()
            };
        }
        let Counts {
            add,
            change,
            conflict,
            migrating,
            extra,
        } = self.counts();
        let conflicts = counted(conflict as u64, "conflict");
        let mut text = format!("Plan: {add} to add, {change} to change, {conflicts}, {extra} extra");
        if migrating > 0 {
            let _ = write!(text, ", {} under way", counted(migrating as u64, "migration"));
        }
        text + "."
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines()
            .iter()
            .try_for_each(|line| writeln!(f, "{}", line.text))
    }
}

#[derive(Default)]
struct Page(Vec<Line>);

impl Page {
    fn line(&mut self, mark: Mark, text: String) {
        self.0.push(Line {
            mark,
            text: shown(&text),
        });
    }

    fn head(&mut self, mark: Mark, object: &ObjectName, more: &str) {
        self.line(mark, format!("{} {object}{more}", mark.as_str()));
    }

    fn change(&mut self, change: &Change, version: Version) {
        let object = change.object();
        match change {
            Change::Add(wanted) => {
                self.head(Mark::Add, &object, "");
                for (name, value) in properties(wanted) {
                    self.line(Mark::Add, format!("    + {name}: {value}"));
                }
            }
            Change::Edit(Edit { differences, .. }) => {
                self.head(Mark::Change, &object, "");
                self.differences(Mark::Change, differences, version);
            }
            Change::Conflict(Conflict {
                differences,
                remedies,
                ..
            }) => {
                self.head(Mark::Conflict, &object, "");
                self.differences(Mark::Conflict, differences, version);
                for remedy in remedies {
                    self.line(Mark::Plain, format!("    fix: {remedy}"));
                }
            }
            Change::Migrating(migrating) => {
                self.head(Mark::Conflict, &object, " (migration under way)");
                let leftovers: Vec<String> = migrating.leftovers.iter().map(ToString::to_string).collect();
                self.line(Mark::Plain, format!("    there is {}", leftovers.join(", ")));
                self.line(Mark::Plain, format!("    fix: {}", change.advice()));
            }
            Change::Extra(extra) => {
                self.head(Mark::Extra, &object, &format!(" ({})", extra.why));
                let Unwanted::Binding(LiveBinding { arguments, .. }) = &extra.object else {
                    if let Some(holds) = extra.holds() {
                        self.line(Mark::Plain, format!("    not pruned while it has {holds}"));
                    }
                    return;
                };
                for (name, value) in arguments {
                    self.line(Mark::Extra, format!("    - {name}: {value}"));
                }
            }
        }
    }

    fn differences(&mut self, mark: Mark, differences: &[Difference], version: Version) {
        for difference in differences {
            self.line(mark, format!("    {}", difference.text(version)));
        }
    }
}

impl Difference {
    /// `~ x-overflow: "drop-head" (policy ops-1) → "reject-publish"`
    fn text(&self, version: Version) -> String {
        let value = |value: &Option<Json>| value.as_ref().map_or("not set".to_owned(), Json::to_string);
        let from = match &self.from {
            Origin::Declared => String::new(),
            Origin::Default if self.on_broker.is_none() => String::new(),
            Origin::Default => format!(" (default of RabbitMQ {version})"),
            policy => format!(" ({policy})"),
        };
        let declared = self.on_broker.is_some() && self.from != Origin::Default;
        let mark = match (declared, &self.wanted) {
            (false, Some(_)) => Mark::Add,
            (true, None) => Mark::Extra,
            _ => Mark::Change,
        };
        let same = if same(self.on_broker.as_ref(), self.wanted.as_ref()) {
            ", declared"
        } else {
            ""
        };
        format!(
            "{} {}: {}{from} → {}{same}",
            mark.as_str(),
            self.name,
            value(&self.on_broker),
            value(&self.wanted)
        )
    }
}

impl Change {
    /// What to do about a change that `apply` doesn't make; empty for others.
    pub fn advice(&self) -> String {
        match self {
            Self::Conflict(conflict) => {
                let remedies: Vec<String> = conflict.remedies.iter().map(ToString::to_string).collect();
                remedies.join("; ")
            }
            Self::Migrating(migrating) => {
                let queue = quoted(&migrating.queue);
                format!(
                    "run `tidegate topology migrate {queue}` to finish; until then `apply` leaves the queue alone"
                )
            }
            Self::Add(_) | Self::Edit(_) | Self::Extra(_) => String::new(),
        }
    }
}

impl Conflict {
    /// What differs, in one line.
    pub fn sentence(&self, version: Version) -> String {
        let differences: Vec<String> = self
            .differences
            .iter()
            .map(|d| d.text(version)[2..].to_owned())
            .collect();
        format!("{}: {}", self.object, differences.join("; "))
    }
}

impl Extra {
    /// What prevents pruning it, as last counted.
    pub fn holds(&self) -> Option<String> {
        let count = |n: Option<u64>, what: &str| n.filter(|n| *n > 0).map(|n| counted(n, what));
        let found: Vec<String> = [count(self.messages, "message"), count(self.consumers, "consumer")]
            .into_iter()
            .flatten()
            .collect();
        (!found.is_empty()).then(|| found.join(" and "))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared => f.write_str("declared"),
            Self::Policy(name) => write!(f, "policy {name}"),
            Self::OperatorPolicy(name) => write!(f, "operator policy {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Migrate { queue } => write!(f, "tidegate topology migrate {}", quoted(queue)),
            Self::ReplaceExchange { exchange } => write!(
                f,
                "tidegate topology apply --replace-exchanges deletes {exchange}, declares it anew and binds it \
                 again; what is published in between is refused"
            ),
            Self::Policy {
                name,
                operator,
                pattern,
                object,
                vhost,
            } => {
                let (what, set, clear) = if *operator {
                    ("operator policy", "set_operator_policy", "clear_operator_policy")
                } else {
                    ("policy", "set_policy", "clear_policy")
                };
                write!(
                    f,
                    "{what} {name} has the pattern {pattern:?}: narrow it with `rabbitmqctl {set}` so that it does not \
                     match {object}, or remove it: rabbitmqctl {clear} -p {} {}",
                    quoted(vhost),
                    quoted(name)
                )
            }
            Self::Exclusive { queue } => write!(
                f,
                "a connection holds {queue} as its exclusive queue: find its owner (rabbitmqctl list_queues name \
                 owner_pid) and let it use another name"
            ),
        }
    }
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn properties(wanted: &Wanted) -> Vec<(String, String)> {
    let text = |name: &str, value: &str| (name.to_owned(), Json::from(value).to_string());
    match wanted {
        Wanted::Exchange(exchange) => {
            let alternate = exchange.alternate.iter();
            std::iter::once(text("type", exchange.kind.as_str()))
                .chain(alternate.map(|a| text("alternate-exchange", a)))
                .collect()
        }
        Wanted::Queue(queue) => as_json(&queue.arguments)
            .into_iter()
            .map(|(name, value)| (name, value.to_string()))
            .collect(),
        Wanted::Binding(binding) => match &binding.destination {
            Destination::Exchange(_) => vec![("to".to_owned(), "an exchange".to_owned())],
            Destination::Queue(_) => Vec::new(),
        },
        Wanted::Policy(policy) => {
            let definition = as_json(&policy.definition);
            let head = [
                text("pattern", &policy.pattern),
                text("apply-to", policy.apply_to),
                ("priority".to_owned(), policy.priority.to_string()),
            ];
            let values = definition
                .into_iter()
                .map(|(name, value)| (name, value.to_string()));
            head.into_iter().chain(values).collect()
        }
    }
}
