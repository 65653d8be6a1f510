//! Replay runs: begun, found again, held by one process at a time, ended.
//!
//! May import: `core`, sqlx. Whoever holds a run's lease works on it, and writes only under its fence, a number that grows
//! with each change of hands: each statement of [`super::replay`] locks the run's row and looks. If the process dies, the
//! lease ends, and whoever [takes](DeadLetters::take_run) the run finds its claims in the rows of the dead letters.
//! A statement may be sent twice.

mod row;

use std::time::Duration;

use chrono::{DateTime, Days, Utc};
use sqlx::{PgConnection, Postgres, QueryBuilder, Row};
use tidegate_core::dead_letter_filter::Filter;
use uuid::Uuid;

use self::row::run_columns;
pub use self::row::{RunRow, RunState};
use super::{DeadLetters, filter, is_open, subject::subject};
use crate::store::{
    StoreError,
    audit::{self, Entry, what},
    connect::begin,
};

/// Most runs of a list.
pub const MAX_RUNS: u32 = 1_000;

/// A run to be.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'r> {
    /// Its id.
    pub id: Uuid,
    /// Who wants it, 1 to 255 bytes.
    pub asked_by: &'r str,
    /// Why, up to 4,096 bytes.
    pub why: &'r str,
    /// Which dead letters are meant. Of these it takes those that are open.
    pub filter: &'r Filter,
    /// The filter as text, to be read again by whoever takes the run over.
    pub filter_text: &'r str,
    /// What is changed, as text.
    pub edit: &'r str,
    /// How it goes, as text.
    pub options: &'r str,
    /// Most dead letters that it takes.
    pub limit: Option<u64>,
    /// The process that works on it.
    pub owner: &'r str,
    /// How long it holds unless it is renewed.
    pub lease: Duration,
}

/// A run that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The run.
    pub run: Uuid,
    /// The number that it is held under.
    pub fence: i64,
    /// When it began, by the database's clock: it takes what was archived before.
    pub began_at: DateTime<Utc>,
}

/// What came of asking for a run.
#[derive(Clone, Debug)]
pub enum Taken {
    /// It is held by this process now.
    Held(Hold),
    /// Its process is alive, as far as its lease tells.
    Busy(Box<RunRow>),
    /// It has ended.
    Ended(Box<RunRow>),
    /// There is none.
    Unknown,
}

/// What came of asking a run to stop.
#[derive(Clone, Debug)]
pub enum StopAsked {
    /// Its process will hear of it within seconds.
    Asked,
    /// Nobody works on it: it has been stopped, and what it had claimed is open again.
    Stopped,
    /// It had ended.
    Ended(Box<RunRow>),
    /// There is none.
    Unknown,
}

/// How many of `filter` are open and were archived before `began_at`, counted up to `limit`.
async fn open_ones(
    connection: &mut PgConnection,
    wanted: &Filter,
    began_at: DateTime<Utc>,
    limit: Option<u64>,
) -> Result<i64, StoreError> {
    let mut sql = QueryBuilder::<Postgres>::new(concat!(
        "SELECT count(*) FROM (SELECT FROM tidegate.dead_letters d WHERE ",
        is_open!(),
        " AND d.archived_at < "
    ));
    sql.push_bind(began_at).push(" AND d.day <= ");
    sql.push_bind(began_at.date_naive() + Days::new(1));
    filter::push(&mut sql, wanted);
    sql.push(" LIMIT ");
    sql.push_bind(limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)));
    sql.push(") AS matching");
    Ok(sql.build_query_scalar().fetch_one(connection).await?)
}

impl DeadLetters<'_> {
    /// How many dead letters of `filter` are open, counted up to `limit`.
    pub async fn count_open(&self, wanted: &Filter, limit: Option<u64>) -> Result<u64, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let now = sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(&mut *connection)
            .await?;
        let open = open_ones(&mut connection, wanted, now, limit).await?;
        Ok(open.unsigned_abs())
    }

    /// Begins a run and holds it; `None`, and nothing is written, if nothing that it means is open.
    pub async fn begin_run(&self, new: &NewRun<'_>) -> Result<Option<Hold>, StoreError> {
        let mut tx = begin(self.pool).await?;
        let began_at: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(&mut *tx)
            .await?;
        let planned = open_ones(&mut tx, new.filter, began_at, new.limit).await?;
        if planned == 0 {
            return Ok(None);
        }
        sqlx::query(
            "INSERT INTO tidegate.replays (id, began_at, asked_by, why, filter, edit, options, planned, owner, lease_until) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp() + interval '1 second' * $10)",
        )
        .bind(new.id)
        .bind(began_at)
        .bind(new.asked_by)
        .bind(new.why)
        .bind(new.filter_text)
        .bind(new.edit)
        .bind(new.options)
        .bind(planned)
        .bind(new.owner)
        .bind(new.lease.as_secs_f64())
        .execute(&mut *tx)
        .await?;
        let entry = Entry {
            who: new.asked_by,
            what: what::REPLAY,
            subject: &subject(new.filter),
            why: new.why,
            replay_id: Some(new.id),
            before: None,
            after: None,
        };
        audit::write(&mut tx, &entry).await?;
        tx.commit().await?;
        Ok(Some(Hold {
            run: new.id,
            fence: 1,
            began_at,
        }))
    }

    /// A run as it stands.
    pub async fn run(&self, id: Uuid) -> Result<Option<RunRow>, StoreError> {
        let sql = concat!(
            "SELECT ",
            run_columns!(),
            " FROM tidegate.replays r WHERE r.id = $1"
        );
        Ok(sqlx::query_as(sql).bind(id).fetch_optional(self.pool).await?)
    }

    /// The latest runs, at most `limit` and [`MAX_RUNS`]; only those under way, if asked.
    pub async fn runs(&self, only_running: bool, limit: u32) -> Result<Vec<RunRow>, StoreError> {
        let sql = concat!(
            "SELECT ",
            run_columns!(),
            " FROM tidegate.replays r WHERE NOT $1 OR r.state = 'RUNNING' ORDER BY r.began_at DESC, r.id DESC LIMIT $2"
        );
        let limit = i64::from(limit.clamp(1, MAX_RUNS));
        Ok(sqlx::query_as(sql)
            .bind(only_running)
            .bind(limit)
            .fetch_all(self.pool)
            .await?)
    }

    /// Takes a run over whose lease has ended, for `owner`. `by` is who does it by hand.
    pub async fn take_run(
        &self,
        id: Uuid,
        owner: &str,
        lease: Duration,
        by: Option<(&str, &str)>,
    ) -> Result<Taken, StoreError> {
        let mut tx = begin(self.pool).await?;
        let held = sqlx::query(
            "UPDATE tidegate.replays SET owner = $2, fence = fence + 1, \
               lease_until = clock_timestamp() + interval '1 second' * $3 \
             WHERE id = $1 AND state = 'RUNNING' AND lease_until <= clock_timestamp() RETURNING fence, began_at",
        )
        .bind(id)
        .bind(owner)
        .bind(lease.as_secs_f64())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(held) = held else {
            drop(tx);
            return Ok(match self.run(id).await? {
                Some(run) if run.state == RunState::Running => Taken::Busy(Box::new(run)),
                Some(run) => Taken::Ended(Box::new(run)),
                None => Taken::Unknown,
            });
        };
        if let Some((who, why)) = by {
            let entry = Entry {
                who,
                what: what::RESUME,
                subject: &id.to_string(),
                why,
                replay_id: Some(id),
                before: None,
                after: None,
            };
            audit::write(&mut tx, &entry).await?;
        }
        tx.commit().await?;
        Ok(Taken::Held(Hold {
            run: id,
            fence: held.try_get("fence")?,
            began_at: held.try_get("began_at")?,
        }))
    }

    /// Takes over the run whose lease ended first, if there is one.
    pub async fn adopt_run(&self, owner: &str, lease: Duration) -> Result<Option<Hold>, StoreError> {
        let held: Option<(Uuid, i64, DateTime<Utc>)> = sqlx::query_as(
            "UPDATE tidegate.replays SET owner = $1, fence = fence + 1, \
               lease_until = clock_timestamp() + interval '1 second' * $2 \
             WHERE id = (SELECT id FROM tidegate.replays WHERE state = 'RUNNING' AND lease_until <= clock_timestamp() \
               ORDER BY lease_until LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, fence, began_at",
        )
        .bind(owner)
        .bind(lease.as_secs_f64())
        .fetch_optional(self.pool)
        .await?;
        Ok(held.map(|(run, fence, began_at)| Hold { run, fence, began_at }))
    }

    /// Holds on to a run for another `lease`. Says whether somebody wants it to stop; `None`: it is in other hands.
    pub async fn renew_run(&self, hold: &Hold, lease: Duration) -> Result<Option<bool>, StoreError> {
        Ok(sqlx::query_scalar(
            "UPDATE tidegate.replays SET lease_until = clock_timestamp() + interval '1 second' * $3 \
             WHERE id = $1 AND fence = $2 AND state = 'RUNNING' RETURNING stop_asked",
        )
        .bind(hold.run)
        .bind(hold.fence)
        .bind(lease.as_secs_f64())
        .fetch_optional(self.pool)
        .await?)
    }

    /// Ends the lease of a run that goes on: whoever wants to takes it over.
    pub async fn let_go(&self, hold: &Hold) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE tidegate.replays SET lease_until = clock_timestamp() WHERE id = $1 AND fence = $2 AND state = 'RUNNING'",
        )
        .bind(hold.run)
        .bind(hold.fence)
        .execute(self.pool)
        .await?;
        Ok(())
    }

    /// Asks a run to stop. One that nobody works on is stopped here.
    pub async fn stop_run(&self, id: Uuid, who: &str, why: &str) -> Result<StopAsked, StoreError> {
        let mut tx = begin(self.pool).await?;
        let asked: Option<(i64, DateTime<Utc>, bool)> = sqlx::query_as(
            "UPDATE tidegate.replays SET stop_asked = true WHERE id = $1 AND state = 'RUNNING' \
             RETURNING fence, began_at, lease_until <= clock_timestamp()",
        )
        .bind(id)
        .fetch_optional(&mut *tx)
        .await?;
        let Some((fence, began_at, is_dead)) = asked else {
            drop(tx);
            return Ok(match self.run(id).await? {
                Some(run) => StopAsked::Ended(Box::new(run)),
                None => StopAsked::Unknown,
            });
        };
        let entry = Entry {
            who,
            what: what::STOP,
            subject: &id.to_string(),
            why,
            replay_id: Some(id),
            before: None,
            after: None,
        };
        audit::write(&mut tx, &entry).await?;
        if is_dead {
            let hold = Hold {
                run: id,
                fence,
                began_at,
            };
            end(
                &mut tx,
                &hold,
                RunState::Stopped,
                0,
                Some("stopped while nobody worked on it"),
            )
            .await?;
        }
        tx.commit().await?;
        Ok(if is_dead {
            StopAsked::Stopped
        } else {
            StopAsked::Asked
        })
    }

    /// Ends a run: what it has claimed and nobody knows to be out is open again. Answers how many that are; `None`: the run is
    /// in other hands.
    pub async fn end_run(
        &self,
        hold: &Hold,
        state: RunState,
        lost: u64,
        outcome: Option<&str>,
    ) -> Result<Option<u64>, StoreError> {
        let mut tx = begin(self.pool).await?;
        let released = end(&mut tx, hold, state, lost, outcome).await?;
        tx.commit().await?;
        Ok(released)
    }
}

async fn end(
    tx: &mut PgConnection,
    hold: &Hold,
    state: RunState,
    lost: u64,
    outcome: Option<&str>,
) -> Result<Option<u64>, StoreError> {
    let ended = sqlx::query(
        "UPDATE tidegate.replays SET state = $3, ended_at = clock_timestamp(), lost = $4, outcome = $5 \
         WHERE id = $1 AND fence = $2 AND state = 'RUNNING'",
    )
    .bind(hold.run)
    .bind(hold.fence)
    .bind(state.as_str())
    .bind(i64::try_from(lost).unwrap_or(i64::MAX))
    .bind(outcome)
    .execute(&mut *tx)
    .await?;
    if ended.rows_affected() == 0 {
        return Ok(None);
    }
    let released = sqlx::query(
        "UPDATE tidegate.dead_letters SET state = 'OPEN', replay_id = NULL, sent_task_id = NULL \
         WHERE replay_id = $1 AND state = 'REPLAYING'",
    )
    .bind(hold.run)
    .execute(&mut *tx)
    .await?;
    Ok(Some(released.rows_affected()))
}
