//! A filter as conditions of a statement, on the table alias `d`.
//!
//! May import: `core`, sqlx. Means what [`Filter::matches`] means; a test compares the two. Every value is bound. Columns
//! compare by bytes (`COLLATE "C"`), as the core does.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{Encode, Postgres, QueryBuilder, Type, postgres::PgHasArrayType};
use tidegate_core::{
    dead_letter::DeadLetterState,
    dead_letter_filter::{Condition, Filter, TypeIs},
    topic::Pattern,
};
use uuid::Uuid;

use super::is_open;

/// Patterns in one regular expression: a session of Postgres keeps 32 compiled ones, and [`Filter::MAX_VALUES`] patterns
/// make no more.
const PATTERNS_EACH: usize = 32;

/// Appends ` AND (…)` for every condition.
pub(super) fn push(query: &mut QueryBuilder<Postgres>, filter: &Filter) {
    push_each(query, filter.conditions());
}

/// The same for some conditions of a filter. Those of type, queue, reason and fingerprint fit the table of counts too.
pub(super) fn push_each<'c>(
    query: &mut QueryBuilder<Postgres>,
    conditions: impl IntoIterator<Item = &'c Condition>,
) {
    for condition in conditions {
        query.push(" AND (");
        push_condition(query, condition);
        query.push(")");
    }
}

/// Whether the counts have what `condition` asks for.
pub(super) fn is_counted(condition: &Condition) -> bool {
    matches!(
        condition,
        Condition::Type(_) | Condition::Queue(_) | Condition::Reason(_) | Condition::Fingerprint(_)
    )
}

fn push_condition(query: &mut QueryBuilder<Postgres>, condition: &Condition) {
    match condition {
        Condition::Type(types) => {
            let patterns = types.iter().filter_map(|is| match is {
                TypeIs::Like(pattern) => Some(pattern),
                TypeIs::Absent => None,
            });
            Names::of(patterns).push(query, "d.task_type", types.contains(&TypeIs::Absent));
        }
        Condition::Queue(queues) => Names::of(queues).push(query, "d.queue", false),
        Condition::Reason(reasons) => {
            push_any(
                query,
                "d.reason",
                reasons.iter().map(|r| r.as_str().to_owned()).collect(),
            );
        }
        Condition::Fingerprint(prints) => {
            for (at, is) in prints.iter().enumerate() {
                query.push(if at == 0 { "" } else { " OR " });
                if is.first == is.last {
                    query.push("d.fingerprint = ").push_bind(is.first.0.to_vec());
                } else {
                    query
                        .push("d.fingerprint BETWEEN ")
                        .push_bind(is.first.0.to_vec());
                    query.push(" AND ").push_bind(is.last.0.to_vec());
                }
            }
        }
        Condition::Since(time) => {
            let time = in_micros(*time);
            query.push("d.died_at >= ").push_bind(time);
            // None is archived before it died. These two find the partitions and the place in the index; a transaction that
            // began before midnight may have the day before.
            query.push(" AND d.archived_at >= ").push_bind(time);
            query
                .push(" AND d.day >= ")
                .push_bind(time.date_naive() - TimeDelta::days(1));
        }
        Condition::Until(time) => {
            query.push("d.died_at < ").push_bind(in_micros(*time));
        }
        Condition::Text(texts) => {
            for (at, text) in texts.iter().enumerate() {
                query.push(if at == 0 { "" } else { " OR " });
                query
                    .push("strpos(d.error, ")
                    .push_bind(text.clone())
                    .push(") > 0");
            }
        }
        Condition::State(states) if states[..] == [DeadLetterState::Open] => {
            query.push(is_open!());
        }
        Condition::State(states) => {
            push_any(
                query,
                "d.state",
                states.iter().map(|s| s.as_str().to_owned()).collect(),
            );
        }
        Condition::Id(ids) => {
            push_any(
                query,
                "d.id",
                ids.iter().map(|id| Uuid::from_bytes(id.0)).collect(),
            );
        }
        Condition::TaskId(ids) => {
            push_any(
                query,
                "d.task_id",
                ids.iter().map(|id| id.as_str().to_owned()).collect(),
            );
        }
    }
}

/// `column` is one of `values`. A single one by `=`, so that an index in which it comes first gives its rows in order.
fn push_any<T>(query: &mut QueryBuilder<Postgres>, column: &'static str, mut values: Vec<T>)
where
    T: for<'q> Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType + Send + 'static,
{
    match values.pop() {
        Some(only) if values.is_empty() => query.push(column).push(" = ").push_bind(only),
        last => {
            values.extend(last);
            query.push(column).push(" = ANY (").push_bind(values).push(")")
        }
    };
}

/// The first of the instants which Postgres can hold, microseconds, that is not before `time`.
fn in_micros(time: DateTime<Utc>) -> DateTime<Utc> {
    match time.timestamp_subsec_nanos() % 1_000 {
        0 => time,
        over => time + TimeDelta::nanoseconds(i64::from(1_000 - over)),
    }
}

/// Topic patterns by how they are asked for.
#[derive(Debug, Default)]
struct Names {
    /// These names.
    exact: Vec<String>,
    /// These names, and all that go on with a dot: `order` for `order.#`.
    trees: Vec<String>,
    /// Regular expressions, for a name with a dot before each word.
    expressions: Vec<String>,
    /// Any name.
    any: bool,
}

impl Names {
    fn of<'p>(patterns: impl IntoIterator<Item = &'p Pattern>) -> Self {
        let mut names = Self::default();
        for pattern in patterns {
            let tree = pattern
                .as_str()
                .strip_suffix(".#")
                .and_then(|root| Pattern::parse(root).ok());
            match tree {
                _ if pattern.as_str() == "#" => names.any = true,
                _ if pattern.is_literal() => names.exact.push(pattern.to_string()),
                // No text has one empty word, so `.#` has no root that could be asked for.
                Some(root) if root.is_literal() && !root.as_str().is_empty() => {
                    names.trees.push(root.to_string());
                }
                _ => names.expressions.push(expression(pattern)),
            }
        }
        names
    }

    /// `column` is like one of them, or, if `absent`, NULL.
    fn push(self, query: &mut QueryBuilder<Postgres>, column: &'static str, absent: bool) {
        let mut joint = "";
        let mut or = |query: &mut QueryBuilder<Postgres>| {
            query.push(joint);
            joint = " OR ";
        };
        if absent {
            or(query);
            query.push(column).push(" IS NULL");
        }
        if self.any {
            or(query);
            query.push(column).push(" IS NOT NULL");
        }
        if !self.exact.is_empty() {
            or(query);
            push_any(query, column, self.exact);
        }
        for root in self.trees {
            or(query);
            // In the order of bytes `/` follows `.`, so this is what begins with the root and a dot.
            query.push(column).push(" >= ").push_bind(format!("{root}."));
            query
                .push(" AND ")
                .push(column)
                .push(" < ")
                .push_bind(format!("{root}/"));
            query.push(" OR ").push(column).push(" = ").push_bind(root);
        }
        if !self.expressions.is_empty() {
            or(query);
            // A dot before each word; the empty text has no word. Behind CASE the planner takes it for as likely as not, and
            // reads on in order; bare it counts on few rows, and would read and sort all of them.
            query
                .push("CASE WHEN CASE ")
                .push(column)
                .push(" WHEN '' THEN '' ELSE '.' || ")
                .push(column);
            let expressions: Vec<String> = self
                .expressions
                .chunks(PATTERNS_EACH)
                .map(|each| format!("^(?:{})$", each.join("|")))
                .collect();
            query
                .push(" END ~ ANY (")
                .push_bind(expressions)
                .push(") THEN true ELSE false END");
        }
    }
}

/// `pattern` as a regular expression of Postgres, in which `.` and `[^.]` match line breaks too.
fn expression(pattern: &Pattern) -> String {
    let mut expression = String::new();
    for word in pattern.words() {
        match word {
            "#" => expression.push_str(r"(?:\..*)?"),
            "*" => expression.push_str(r"\.[^.]*"),
            word => {
                expression.push_str(r"\.");
                for c in word.chars() {
                    if c.is_ascii_punctuation() {
                        expression.push('\\');
                    }
                    expression.push(c);
                }
            }
        }
    }
    expression
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(words: &[&str]) -> String {
        let mut query = QueryBuilder::new("WHERE true");
        push(
            &mut query,
            &Filter::parse_words(words.iter().copied(), Utc::now()).unwrap(),
        );
        query.into_string()
    }

    /// No value is part of the text, so none can change its meaning.
    #[test]
    fn every_value_is_bound() {
        let hostile = "x'); DROP TABLE x; --";
        let words = [
            format!("type={hostile}"),
            format!("type={hostile}.#"),
            format!("type=*.{hostile}"),
            format!("queue={hostile}"),
            format!("text={hostile}"),
            "since=7d".to_owned(),
            "until=1s".to_owned(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let sql = sql(&words);
        assert!(!sql.contains("DROP"), "{sql}");
    }

    /// Only then an index that begins with the column gives the rows in the order of the list.
    #[test]
    fn one_value_is_asked_for_by_equality() {
        assert_eq!(sql(&["type=order.close"]), "WHERE true AND (d.task_type = $1)");
        assert_eq!(sql(&["state=replayed"]), "WHERE true AND (d.state = $1)");
        assert_eq!(
            sql(&["state=open"]),
            "WHERE true AND (d.state = 'OPEN' AND d.replay_id IS NULL AND d.discarded_in IS NULL)"
        );
        assert_eq!(
            sql(&["reason=rejected", "reason=expired"]),
            "WHERE true AND (d.reason = ANY ($1))"
        );
    }

    #[test]
    fn words_of_a_pattern_are_taken_as_they_are() {
        let of = |text: &str| expression(&Pattern::parse(text).unwrap());
        assert_eq!(of("a*.*.#"), r"\.a\*\.[^.]*(?:\..*)?");
        assert_eq!(of("*.(x|\\d)[^"), r"\.[^.]*\.\(x\|\\d\)\[\^");
    }
}
