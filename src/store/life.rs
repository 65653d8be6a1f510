//! The life of a task after the hand-over: claimed by a worker, ended, asked to be cancelled.
//!
//! May import: `core`, sqlx. One statement serves a whole batch, and none waits for a row that somebody else has
//! locked (the relay until its commit, a transaction that cancels and stays open): such a row is answered as busy
//! and asked about again, so that it holds up nobody else's. If the process dies after a claim, the row says
//! `RUNNING` until the broker delivers the task again; a claim and a result may both be sent twice.
//!
//! `= ANY (ARRAY(SELECT …))` hides from the planner how many rows are asked for: knowing it, it would read a table of
//! up to some ten thousand rows whole, three times per statement, rather than look up two hundred by their key.

use sqlx::{FromRow, PgPool};

pub use tidegate_core::lifecycle::End;

use super::StoreError;

/// What the ledger says about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Start it: the row is `RUNNING`, and this is its run with that number.
    Start(i32),
    /// Start it, but report nothing: the row follows the delivery of another queue.
    Shared,
    /// It was cancelled.
    Canceled,
    /// This queue has had it to success.
    Done,
    /// There is no such row.
    Unknown,
    /// Somebody has locked the row: ask again.
    Busy,
}

/// A result to write down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The task.
    pub task_id: String,
    /// The queue it was delivered by.
    pub queue: String,
    /// The run that [`Claim::Start`] gave it; `None` where it ended without being started. A result of an earlier
    /// run than the latest counts only if it is a success.
    pub run: Option<i32>,
    /// How it ended.
    pub end: End,
    /// Why, without a NUL character.
    pub error: Option<String>,
}

/// Access to the life of tasks.
#[derive(Clone, Copy, Debug)]
pub struct Life<'a> {
    pool: &'a PgPool,
}

#[derive(FromRow)]
struct Answer {
    /// The state that the claim wrote, if it wrote one.
    written: Option<String>,
    run: Option<i32>,
    /// The state before, if the row could be locked.
    found: Option<String>,
    /// Whether the row follows the asking queue.
    own: Option<bool>,
    asked_to_cancel: Option<bool>,
    exists: bool,
}

impl Answer {
    fn claim(&self) -> Claim {
        match (self.written.as_deref(), self.found.as_deref()) {
            (Some("RUNNING"), _) => Claim::Start(self.run.unwrap_or_default()),
            (Some(_), _) | (None, Some("CANCELED")) => Claim::Canceled,
            (None, Some("SUCCESS")) if self.own == Some(true) => Claim::Done,
            (None, Some(_)) if self.asked_to_cancel == Some(true) => Claim::Canceled,
            (None, Some(_)) => Claim::Shared,
            (None, None) if self.exists => Claim::Busy,
            (None, None) => Claim::Unknown,
        }
    }
}

impl<'a> Life<'a> {
    pub(super) fn new(pool: &'a PgPool) -> Self {
        Self { pool }
    }

    /// Claims deliveries: (task id, queue) each, no task id twice. Answers in the same order.
    ///
    /// A task with a request to cancel that nobody has served yet becomes `CANCELED` here.
    pub async fn start(&self, asked: &[(&str, &str)]) -> Result<Vec<Claim>, StoreError> {
        let (ids, queues): (Vec<&str>, Vec<&str>) = asked.iter().copied().unzip();
        let answers: Vec<Answer> = sqlx::query_as(
            "WITH asked AS MATERIALIZED (\
               SELECT * FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS a (task_id, queue, n)\
             ), held AS MATERIALIZED (\
               SELECT t.task_id, t.state, t.queue, \
                 t.cancel_requested_at IS NOT NULL AND t.state IN ('PUBLISHED', 'RUNNING', 'RETRYING') AS asked_to_cancel \
               FROM tidegate.tasks t WHERE t.task_id = ANY (ARRAY(SELECT task_id FROM asked)) FOR NO KEY UPDATE SKIP LOCKED\
             ), written AS (\
               UPDATE tidegate.tasks t SET \
                 state = CASE WHEN h.asked_to_cancel THEN 'CANCELED' ELSE 'RUNNING' END, \
                 queue = a.queue, \
                 attempts = CASE WHEN h.asked_to_cancel THEN t.attempts ELSE t.attempts + 1 END, \
                 published_at = coalesce(t.published_at, clock_timestamp()), \
                 started_at = CASE WHEN h.asked_to_cancel THEN t.started_at ELSE clock_timestamp() END, \
                 finished_at = CASE WHEN h.asked_to_cancel THEN clock_timestamp() END, \
                 idempotency_key = CASE WHEN NOT h.asked_to_cancel THEN t.idempotency_key END \
               FROM asked a JOIN held h USING (task_id) \
               WHERE t.task_id = h.task_id AND t.task_id = ANY (ARRAY(SELECT task_id FROM held)) \
                 AND coalesce(t.queue, a.queue) = a.queue \
                 AND t.state NOT IN ('SUCCESS', 'CANCELED') \
               RETURNING t.task_id, t.state, t.attempts\
             ) \
             SELECT w.state AS written, w.attempts AS run, h.state AS found, coalesce(h.queue, a.queue) = a.queue AS own, \
               h.asked_to_cancel, k.task_id IS NOT NULL AS exists \
             FROM asked a LEFT JOIN held h USING (task_id) LEFT JOIN written w USING (task_id) LEFT JOIN (\
               SELECT task_id FROM tidegate.tasks WHERE task_id = ANY (ARRAY(SELECT task_id FROM asked))\
             ) k USING (task_id) ORDER BY a.n",
        )
        .bind(ids)
        .bind(queues)
        .fetch_all(self.pool)
        .await?;
        Ok(answers.iter().map(Answer::claim).collect())
    }

    /// Writes results down, no task id twice. Answers in the same order whether each is settled (written, or of no
    /// interest any more); `false`: somebody has locked the row, tell again.
    pub async fn report(&self, told: &[Told]) -> Result<Vec<bool>, StoreError> {
        let ids: Vec<&str> = told.iter().map(|t| t.task_id.as_str()).collect();
        let queues: Vec<&str> = told.iter().map(|t| t.queue.as_str()).collect();
        let runs: Vec<Option<i32>> = told.iter().map(|t| t.run).collect();
        let states: Vec<&str> = told.iter().map(|t| t.end.state().as_str()).collect();
        let errors: Vec<Option<&str>> = told.iter().map(|t| t.error.as_deref()).collect();
        Ok(sqlx::query_scalar(
            "WITH told AS MATERIALIZED (\
               SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::text[]) \
                 WITH ORDINALITY AS r (task_id, queue, run, state, error, n)\
             ), held AS MATERIALIZED (\
               SELECT t.task_id FROM tidegate.tasks t WHERE t.task_id = ANY (ARRAY(SELECT task_id FROM told)) FOR NO KEY UPDATE SKIP LOCKED\
             ), written AS (\
               UPDATE tidegate.tasks t SET state = r.state, queue = r.queue, \
                 finished_at = CASE WHEN r.state IN ('SUCCESS', 'FAILED', 'CANCELED') THEN clock_timestamp() END, \
                 last_error = CASE WHEN r.state <> 'SUCCESS' THEN coalesce(r.error, t.last_error) END, \
                 cancel_requested_at = CASE WHEN r.state <> 'FAILED' THEN t.cancel_requested_at END, \
                 idempotency_key = CASE WHEN r.state <> 'CANCELED' THEN t.idempotency_key END \
               FROM told r JOIN held h USING (task_id) \
               WHERE t.task_id = h.task_id AND t.task_id = ANY (ARRAY(SELECT task_id FROM held)) \
                 AND coalesce(t.queue, r.queue) = r.queue AND CASE \
                 WHEN r.state = 'SUCCESS' THEN t.state <> 'SUCCESS' \
                 WHEN r.run IS NULL THEN t.state IN ('PENDING', 'PUBLISHED', 'RUNNING', 'RETRYING') \
                 ELSE t.state = 'RUNNING' AND t.attempts = r.run END\
             ) \
             SELECT h.task_id IS NOT NULL OR k.task_id IS NULL FROM told r LEFT JOIN held h USING (task_id) LEFT JOIN (\
               SELECT task_id FROM tidegate.tasks WHERE task_id = ANY (ARRAY(SELECT task_id FROM told))\
             ) k USING (task_id) ORDER BY r.n",
        )
        .bind(ids)
        .bind(queues)
        .bind(runs)
        .bind(states)
        .bind(errors)
        .fetch_all(self.pool)
        .await?)
    }

    /// Which of these running tasks somebody asked to cancel.
    pub async fn cancel_requested(&self, running: &[&str]) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar(
            "SELECT task_id FROM tidegate.tasks \
             WHERE task_id = ANY (ARRAY(SELECT unnest($1::text[]))) \
               AND (cancel_requested_at IS NOT NULL OR state = 'CANCELED')",
        )
        .bind(running)
        .fetch_all(self.pool)
        .await?)
    }
}
