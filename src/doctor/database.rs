//! The ledger: does it let us in, does its schema fit, do the clocks agree?
//!
//! May import: `store`, core.

use tidegate_core::doctor::{
    Cause, Finding, Part, Report, Severity,
    clock::{self, Reading},
    reach::{Target, Unreached},
    schema,
};

use super::{ANSWER, network};
use crate::store::{
    Store, StoreError,
    inspect::{EnabledSchedule, Inspected},
};

/// The enabled schedules, if they could be read.
pub(super) async fn look(
    database: &Option<(Target, Store)>,
    report: &mut Report,
) -> Option<Vec<EnabledSchedule>> {
    let Some((target, store)) = database else {
        report.unseen(
            "the database",
            "DATABASE_URL (database.url) is not set; only router and plain tasks work without it",
        );
        return None;
    };
    let inspected = match enter(target, store).await {
        Ok(inspected) => inspected,
        Err(why) => {
            report.push(target.unreached(&why));
            return None;
        }
    };
    let place = target.place.as_str();
    let what = format!(
        "Postgres {} lets user {:?} into database {:?}",
        inspected.version, target.user, target.inside
    );
    report.push(Finding::ok(Part::Database, "login", what, place));
    if inspected.read_only {
        let what = "the database takes no writes: a standby, or read-only by default";
        report.push(Finding::ok(Part::Database, "read_only", what, place).bad(
            Severity::Error(Cause::Wrong),
            "let DATABASE_URL lead to the primary; look at default_transaction_read_only",
        ));
    }
    let (before, there, after) = inspected.clock;
    let reading = Reading {
        before_ms: before.timestamp_millis(),
        there_ms: there.timestamp_millis(),
        after_ms: after.timestamp_millis(),
        resolution_ms: 0,
    };
    report.push(clock::difference(Part::Database, "the database", reading, place));
    let has_no_schema = matches!(inspected.applied, Ok(None));
    match inspected.applied {
        Ok(applied) => {
            let known = Store::known_migrations();
            for finding in schema::schema(applied.as_deref(), &known, place) {
                report.push(finding);
            }
        }
        Err(error) => report.unseen("the migrations", rights(&error, "tidegate.schema_migrations")),
    }
    match inspected.schedules {
        Ok(schedules) => Some(schedules),
        // Said already.
        Err(_) if has_no_schema => None,
        Err(error) => {
            report.unseen("the schedules", rights(&error, "tidegate.cron_tasks"));
            None
        }
    }
}

async fn enter(target: &Target, store: &Store) -> Result<Inspected, Unreached> {
    if store.address().server.is_some() {
        network::reach(target).await?;
    }
    store.inspect(ANSWER).await
}

/// Why it can't be read, with the right that is missing if that is why.
fn rights(error: &StoreError, table: &str) -> String {
    match error {
        StoreError::Forbidden(said) => {
            format!("{said}; GRANT SELECT ON {table}, and USAGE ON SCHEMA tidegate, would show them")
        }
        error => error.to_string(),
    }
}
