//! What a run writes down of dead letters that it has claimed: the task ids that they go out with, and what became of them.
//!
//! May import: `core`, sqlx. Each is one statement, and changes nothing of what the run does not hold any more. Rows are found
//! one by one by their key and written by their place: no statistics can make the planner read a day's rows instead. Both may
//! be sent twice.

use std::time::Duration;

use chrono::NaiveDate;
use tidegate_core::dead_letter::DeadLetterId;
use uuid::Uuid;

use super::{DeadLetters, runs::Hold};
use crate::store::{StoreError, audit::what};

/// What became of a claimed dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Its id.
    pub id: DeadLetterId,
    /// Whether its message was confirmed. If not it was refused, and is open again.
    pub sent: bool,
    /// The task id that it went out with.
    pub sent_task_id: Option<String>,
    /// The body that went out, if it was edited.
    pub edited: Option<Vec<u8>>,
}

/// Where those of `told` are that the run has claimed.
macro_rules! found {
    ($day:literal) => {
        concat!(
            "found AS MATERIALIZED (SELECT f.place FROM told CROSS JOIN LATERAL (\
               SELECT d.ctid AS place FROM tidegate.dead_letters d \
               WHERE d.day = ",
            $day,
            " AND d.id = told.id AND d.replay_id = $1 AND d.state = 'REPLAYING' OFFSET 0\
             ) AS f)"
        )
    };
}

impl DeadLetters<'_> {
    /// Writes down, before they go out, which task ids claimed dead letters of `day` go out with: one that dies again before its
    /// confirm is here is known by it.
    pub async fn announce(
        &self,
        hold: &Hold,
        day: NaiveDate,
        ids: &[(DeadLetterId, Option<String>)],
    ) -> Result<(), StoreError> {
        let (ids, sent): (Vec<Uuid>, Vec<Option<&str>>) = ids
            .iter()
            .map(|(id, sent)| (Uuid::from_bytes(id.0), sent.as_deref()))
            .unzip();
        sqlx::query(
            concat!(
                "WITH told AS MATERIALIZED (SELECT * FROM unnest($3::uuid[], $4::text[]) AS t (id, sent_task_id)), ",
                found!("$2"),
                " UPDATE tidegate.dead_letters d SET sent_task_id = t.sent_task_id FROM told t \
                 WHERE d.day = $2 AND d.ctid = ANY (ARRAY(SELECT place FROM found)) AND d.id = t.id \
                   AND d.state = 'REPLAYING'"
            ),
        )
        .bind(hold.run)
        .bind(day)
        .bind(ids)
        .bind(sent)
        .execute(self.pool)
        .await?;
        Ok(())
    }

    /// Writes down what became of claimed dead letters of `day`, with the audit of what was edited. Whether the run is still
    /// held; if not, nothing is written. May be sent twice.
    pub async fn settle(
        &self,
        hold: &Hold,
        day: NaiveDate,
        settled: &[Settled],
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let ids: Vec<Uuid> = settled.iter().map(|one| Uuid::from_bytes(one.id.0)).collect();
        let sent: Vec<bool> = settled.iter().map(|one| one.sent).collect();
        let task_ids: Vec<Option<&str>> = settled.iter().map(|one| one.sent_task_id.as_deref()).collect();
        let (edited, after): (Vec<Uuid>, Vec<&[u8]>) = settled
            .iter()
            .filter(|one| one.sent)
            .filter_map(|one| Some((Uuid::from_bytes(one.id.0), one.edited.as_deref()?)))
            .unzip();
        Ok(sqlx::query_scalar(
            concat!("WITH run AS MATERIALIZED (\
               SELECT asked_by, why FROM tidegate.replays WHERE id = $1 AND fence = $2 AND state = 'RUNNING' FOR NO KEY UPDATE\
             ), told AS MATERIALIZED (\
               SELECT * FROM unnest($4::uuid[], $5::boolean[], $6::text[]) AS t (id, sent, sent_task_id) WHERE EXISTS (SELECT FROM run)\
             ), ", found!("$3"), ", edited AS MATERIALIZED (\
               SELECT e.id, m.body AS before, e.after FROM unnest($7::uuid[], $8::bytea[]) AS e (id, after) CROSS JOIN LATERAL (\
                 SELECT m.body FROM tidegate.dead_letter_messages m WHERE m.day = $3 AND m.id = e.id OFFSET 0\
               ) AS m WHERE EXISTS (SELECT FROM run)\
             ), written AS (\
               UPDATE tidegate.dead_letters d SET \
                 state = CASE WHEN t.sent THEN 'REPLAYED' ELSE 'OPEN' END, \
                 replay_id = CASE WHEN t.sent THEN d.replay_id END, \
                 replayed_at = CASE WHEN t.sent THEN clock_timestamp() END, \
                 sent_task_id = CASE WHEN t.sent THEN t.sent_task_id END, \
                 refused_by = CASE WHEN t.sent THEN d.refused_by ELSE $1 END \
               FROM told t WHERE d.day = $3 AND d.ctid = ANY (ARRAY(SELECT place FROM found)) AND d.id = t.id \
                 AND d.state = 'REPLAYING' \
               RETURNING d.id, t.sent\
             ), audited AS (\
               INSERT INTO tidegate.audit_log (who, what, subject, why, replay_id, before, after) \
               SELECT run.asked_by, $9, e.id::text, run.why, $1, e.before, e.after FROM run, edited e \
               WHERE e.id IN (SELECT w.id FROM written w WHERE w.sent)\
             ), counted AS (\
               UPDATE tidegate.replays r SET sent = r.sent + n.sent, refused = r.refused + n.refused, \
                 last_sent_at = CASE WHEN n.sent > 0 THEN clock_timestamp() ELSE r.last_sent_at END, \
                 lease_until = greatest(r.lease_until, clock_timestamp() + interval '1 second' * $10) \
               FROM (SELECT count(*) FILTER (WHERE sent) AS sent, count(*) FILTER (WHERE NOT sent) AS refused FROM written) AS n \
               WHERE r.id = $1 AND EXISTS (SELECT FROM run)\
             ) SELECT EXISTS (SELECT FROM run)"),
        )
        .bind(hold.run)
        .bind(hold.fence)
        .bind(day)
        .bind(ids)
        .bind(sent)
        .bind(task_ids)
        .bind(edited)
        .bind(after)
        .bind(what::EDIT)
        .bind(lease.as_secs_f64())
        .fetch_one(self.pool)
        .await?)
    }
}
