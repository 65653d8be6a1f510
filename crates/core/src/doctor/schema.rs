//! Whether the schema of the ledger fits this program.
//!
//! Imports the findings.

use super::{Cause, Finding, Part, Severity};

/// A migration as the database has it on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its number.
    pub version: i64,
    /// Whether it went through.
    pub success: bool,
    /// Whether its text is the one this program knows; true for those that it doesn't know.
    pub same_text: bool,
}

/// What to say of the migrations `applied`, `None` if there is no record, to a program that knows `known`.
pub fn schema(applied: Option<&[Applied]>, known: &[i64], place: &str) -> Vec<Finding> {
    let found = |rule: &'static str, what: String| Finding::ok(Part::Database, rule, what, place);
    let wrong = Severity::Error(Cause::Wrong);
    let Some(applied) = applied else {
        return vec![
            found(
                "schema_missing",
                "the schema `tidegate` is not in this database".to_owned(),
            )
            .bad(
                wrong,
                "run `tidegate migrate`, or name the right database in DATABASE_URL",
            ),
        ];
    };
    let numbers = |of: Vec<i64>| {
        let texts: Vec<String> = of.iter().map(ToString::to_string).collect();
        texts.join(", ")
    };
    let is_done = |version: &i64| applied.iter().any(|a| a.version == *version && a.success);
    let pick = |wanted: &dyn Fn(&Applied) -> bool| -> Vec<i64> {
        applied.iter().filter(|a| wanted(a)).map(|a| a.version).collect()
    };
    let broken = pick(&|a| !a.success);
    let changed = pick(&|a| !a.same_text);
    let ahead = pick(&|a| !known.contains(&a.version));
    let behind: Vec<i64> = known
        .iter()
        .filter(|v| !is_done(v) && !broken.contains(v))
        .copied()
        .collect();
    let mut findings = Vec::new();
    if !broken.is_empty() {
        let what = format!("migration {} was begun and did not end", numbers(broken));
        findings.push(
            found("schema_broken", what).bad(wrong, "run `tidegate migrate`, which says what is in its way"),
        );
    }
    if !behind.is_empty() {
        let what = format!(
            "the schema is older than this program: missing {}",
            numbers(behind)
        );
        findings.push(found("schema_behind", what).bad(wrong, "run `tidegate migrate`"));
    }
    if !changed.is_empty() {
        let what = format!(
            "migration {} was applied with another text than this program has",
            numbers(changed)
        );
        findings.push(found("schema_changed", what).bad(
            wrong,
            "use the program that this database was migrated by, or one released after it",
        ));
    }
    if !ahead.is_empty() {
        let what = format!(
            "the schema is newer than this program: {} is unknown to it",
            numbers(ahead)
        );
        findings.push(found("schema_ahead", what).bad(
            Severity::Warning,
            "upgrade this program to the version that migrated the database",
        ));
    }
    if findings.is_empty() {
        findings.push(found("schema", "the schema is current".to_owned()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(versions: &[i64]) -> Vec<Applied> {
        let of = |version: &i64| Applied {
            version: version.abs(),
            success: *version > 0,
            same_text: version.abs() < 100,
        };
        versions.iter().map(of).collect()
    }

    /// A negative number is a migration that did not end, one from 100 on has another text.
    #[test]
    fn each_state_has_its_name() {
        for (there, known, expected) in [
            (None, vec![1, 2], vec!["schema_missing"]),
            (Some(vec![1, 2]), vec![1, 2], vec!["schema"]),
            (Some(vec![]), vec![1, 2], vec!["schema_behind"]),
            (Some(vec![1]), vec![1, 2], vec!["schema_behind"]),
            (Some(vec![1, 2, 3]), vec![1, 2], vec!["schema_ahead"]),
            (Some(vec![1, -2]), vec![1, 2], vec!["schema_broken"]),
            (Some(vec![1, 100]), vec![1, 100], vec!["schema_changed"]),
            (
                Some(vec![2, 3]),
                vec![1, 2],
                vec!["schema_behind", "schema_ahead"],
            ),
        ] {
            let there = there.map(|versions| applied(&versions));
            let found = schema(there.as_deref(), &known, "db");
            let rules: Vec<&str> = found.iter().map(|f| f.rule).collect();
            assert_eq!(rules, expected, "{there:?} {known:?}");
            assert!(found.iter().all(|f| f.next.is_empty() == (f.rule == "schema")));
        }
    }
}
