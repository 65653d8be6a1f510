//! Idempotency keys: claimed before a run, renewed while it lasts, completed or released after it.
//!
//! May import: sqlx. One statement serves a whole batch, and none waits for a row that somebody else has locked (a
//! handler's transaction between its completion and its commit): such a key is answered as busy and asked about again.
//! So no two statements wait for each other; claims that insert the same new keys at once do it in the same order.
//! If the process dies after a claim, the lease ends and the key is free; after a completion, it is done. Each
//! statement may be sent twice.
//!
//! Keys are looked up one by one (`LATERAL … OFFSET 0` and `FOR UPDATE` can't become a join), and written by the place
//! found or by `ON CONFLICT`: no statistics, missing or wrong, make the planner read the table instead.

use std::{collections::HashMap, time::Duration};

use sqlx::{FromRow, PgConnection, PgPool};

use super::StoreError;

/// Most keys of one statement.
pub const MOST: usize = 200;

/// A key that is to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Task type.
    pub task_type: &'a str,
    /// Key within the type, 1 to 1,024 bytes without a NUL.
    pub key: &'a str,
    /// The task that wants it.
    pub task_id: &'a str,
    /// Names this claim: sent again, it is granted again. 1 to 255 bytes.
    pub owner: &'a str,
    /// How long the claim holds unless it is renewed.
    pub lease: Duration,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The key is the claimer's, under this number.
    Granted(i64),
    /// It has been processed to success.
    Done,
    /// Somebody holds it, for so long unless they renew it.
    Held(Duration),
    /// Somebody is changing it at this moment: ask again.
    Busy,
}

/// A granted claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    /// Task type.
    pub task_type: &'a str,
    /// Key within the type.
    pub key: &'a str,
    /// The number it was granted under.
    pub fence: i64,
    /// How long it holds once it is renewed.
    pub lease: Duration,
}

/// What became of a completion, a release or a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is as asked for.
    Yes,
    /// The key is no longer held under this number: taken over, released, or deleted.
    Refused,
    /// Somebody has locked it: ask again.
    Busy,
}

/// Access to idempotency keys.
#[derive(Clone, Copy, Debug)]
pub struct Executions<'a> {
    pool: &'a PgPool,
}

#[derive(FromRow)]
struct Looked {
    n: i64,
    fence: Option<i64>,
    state: Option<String>,
    /// Seconds until the lease found ends.
    left: Option<f64>,
}

impl Looked {
    fn claim(&self) -> Claim {
        match (self.fence, self.state.as_deref(), self.left) {
            (Some(fence), ..) => Claim::Granted(fence),
            (None, Some("DONE"), _) => Claim::Done,
            (None, Some(_), Some(left)) if left > 0.0 => {
                Claim::Held(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX))
            }
            // Free, but locked; or claimed by somebody since this statement began.
            _ => Claim::Busy,
        }
    }
}

#[doc(hidden)]
pub const CLAIM: &str = "WITH looked AS MATERIALIZED (\
       SELECT a.*, s.state, s.left, s.state IS NULL OR h.mine AS free \
       FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::float8[]) \
           WITH ORDINALITY AS a (task_type, idempotency_key, task_id, owner, lease, n) \
         LEFT JOIN LATERAL (\
           SELECT e.state, e.owner AS holder, extract(epoch FROM e.lease_until - clock_timestamp())::float8 AS left \
           FROM tidegate.executions e \
           WHERE e.task_type = a.task_type AND e.idempotency_key = a.idempotency_key OFFSET 0\
         ) s ON true LEFT JOIN LATERAL (\
           SELECT true AS mine FROM tidegate.executions e \
           WHERE e.task_type = a.task_type AND e.idempotency_key = a.idempotency_key \
             AND e.state = 'RUNNING' AND (e.lease_until <= clock_timestamp() OR e.owner = a.owner) \
             AND s.state = 'RUNNING' AND (s.left <= 0 OR s.holder = a.owner) \
           FOR NO KEY UPDATE SKIP LOCKED\
         ) h ON true\
     ), claimed AS (\
       INSERT INTO tidegate.executions AS e (task_type, idempotency_key, task_id, owner, lease_until) \
       SELECT task_type, idempotency_key, task_id, owner, clock_timestamp() + interval '1 second' * lease \
       FROM looked WHERE free \
       ON CONFLICT (task_type, idempotency_key) DO UPDATE SET \
         fence = CASE WHEN e.owner = excluded.owner THEN e.fence ELSE greatest(excluded.fence, e.fence + 1) END, \
         owner = excluded.owner, task_id = excluded.task_id, lease_until = excluded.lease_until, started_at = clock_timestamp() \
       WHERE e.state = 'RUNNING' AND (e.lease_until <= clock_timestamp() OR e.owner = excluded.owner) \
       RETURNING task_type, idempotency_key, fence\
     ) \
     SELECT l.n, c.fence, l.state, l.left FROM looked l LEFT JOIN claimed c USING (task_type, idempotency_key)";

/// The keys of grants: found, and locked unless somebody else has done so.
macro_rules! held {
    ($arrays:literal, $columns:literal) => {
        concat!(
            "WITH told AS MATERIALIZED (SELECT * FROM unnest(",
            $arrays,
            ") WITH ORDINALITY AS r (",
            $columns,
            ", n)), held AS MATERIALIZED (\
               SELECT r.n, e.* FROM told r CROSS JOIN LATERAL (\
                 SELECT e.ctid AS place, e.state FROM tidegate.executions e \
                 WHERE e.task_type = r.task_type AND e.idempotency_key = r.idempotency_key AND e.fence = r.fence \
                 FOR NO KEY UPDATE SKIP LOCKED\
               ) e\
             ), written AS ("
        )
    };
}

/// What became of each: as it should be, locked by somebody else, or not held. Of a row that was changed between the
/// statement's look and its lock the new version is not written; then all of the batch are to be asked about again.
macro_rules! answered {
    () => {
        " RETURNING 1), whole AS MATERIALIZED (\
           SELECT (SELECT count(*) FROM written) = (SELECT count(*) FROM held WHERE state = 'RUNNING') AS is\
         ) \
         SELECT r.n, h.n IS NOT NULL AND (h.state = 'DONE' OR (SELECT w.is FROM whole w)) AS settled, \
           h.n IS NOT NULL OR coalesce(k.fence = r.fence, false) AS exists \
         FROM told r LEFT JOIN held h USING (n) LEFT JOIN LATERAL (\
           SELECT e.fence FROM tidegate.executions e \
           WHERE e.task_type = r.task_type AND e.idempotency_key = r.idempotency_key OFFSET 0\
         ) k ON h.n IS NULL"
    };
}

#[doc(hidden)]
pub const COMPLETE: &str = concat!(
    held!(
        "$1::text[], $2::text[], $3::bigint[]",
        "task_type, idempotency_key, fence"
    ),
    "UPDATE tidegate.executions e SET state = 'DONE', finished_at = clock_timestamp() \
     WHERE e.ctid = ANY (ARRAY(SELECT place FROM held)) AND e.state = 'RUNNING'",
    answered!()
);

#[doc(hidden)]
pub const RELEASE: &str = concat!(
    held!(
        "$1::text[], $2::text[], $3::bigint[]",
        "task_type, idempotency_key, fence"
    ),
    "DELETE FROM tidegate.executions e WHERE e.ctid = ANY (ARRAY(SELECT place FROM held)) AND e.state = 'RUNNING'",
    answered!()
);

#[doc(hidden)]
pub const RENEW: &str = concat!(
    held!(
        "$1::text[], $2::text[], $3::bigint[], $4::float8[]",
        "task_type, idempotency_key, fence, lease"
    ),
    "UPDATE tidegate.executions e SET lease_until = clock_timestamp() + interval '1 second' * r.lease \
     FROM held h JOIN told r USING (n) \
     WHERE e.ctid = ANY (ARRAY(SELECT place FROM held)) AND e.ctid = h.place AND e.state = 'RUNNING'",
    answered!()
);

const FORGET: &str = "DELETE FROM tidegate.executions WHERE ctid = ANY (ARRAY(\
     SELECT ctid FROM tidegate.executions WHERE task_type = $1 LIMIT 10000))";

impl<'a> Executions<'a> {
    pub(super) fn new(pool: &'a PgPool) -> Self {
        Self { pool }
    }

    /// Deletes all keys of `task_type`, some thousands at a time; how many.
    pub async fn forget(&self, task_type: &str) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            let deleted = sqlx::query(FORGET)
                .bind(task_type)
                .execute(self.pool)
                .await?
                .rows_affected();
            forgotten += deleted;
            if deleted == 0 {
                return Ok(forgotten);
            }
        }
    }

    /// Claims keys: one that is absent, or whose lease has ended. Answers in the same order. Of two equal keys the
    /// first is claimed, and the other is [`Claim::Busy`].
    pub async fn claim(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Claim>, StoreError> {
        let mut sorted: Vec<(usize, &Wanted<'_>)> = wanted.iter().enumerate().collect();
        // Two claims that insert the same keys wait for each other's keys in one order only.
        sorted.sort_by_key(|(n, w)| (w.task_type, w.key, *n));
        sorted.dedup_by_key(|(_, w)| (w.task_type, w.key));
        let of = |text: for<'w> fn(&'w Wanted<'_>) -> &'w str| -> Vec<&str> {
            sorted.iter().map(|(_, w)| text(w)).collect()
        };
        let leases: Vec<f64> = sorted.iter().map(|(_, w)| w.lease.as_secs_f64()).collect();
        let looked: Vec<Looked> = sqlx::query_as(CLAIM)
            .bind(of(|w| w.task_type))
            .bind(of(|w| w.key))
            .bind(of(|w| w.task_id))
            .bind(of(|w| w.owner))
            .bind(leases)
            .fetch_all(self.pool)
            .await?;
        let mut claims = vec![Claim::Busy; wanted.len()];
        for looked in looked {
            if let Some((place, _)) = position(looked.n).and_then(|n| sorted.get(n)) {
                claims[*place] = looked.claim();
            }
        }
        Ok(claims)
    }

    /// Records success. Answers in the same order; one that is done under its number already is [`Written::Yes`].
    pub async fn complete(&self, grants: &[Grant<'_>]) -> Result<Vec<Written>, StoreError> {
        self.write(COMPLETE, grants, false).await
    }

    /// Frees keys that are not done. Answers in the same order; one that is free already is [`Written::Refused`].
    pub async fn release(&self, grants: &[Grant<'_>]) -> Result<Vec<Written>, StoreError> {
        self.write(RELEASE, grants, false).await
    }

    /// Lets claims hold for another lease from now, ended or not, as long as nobody has taken them over.
    pub async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Written>, StoreError> {
        self.write(RENEW, grants, true).await
    }

    async fn write(
        &self,
        sql: &'static str,
        grants: &[Grant<'_>],
        with_leases: bool,
    ) -> Result<Vec<Written>, StoreError> {
        // One that is asked about twice is told once, and answered twice.
        let mut places = HashMap::new();
        let mut told: Vec<&Grant<'_>> = Vec::with_capacity(grants.len());
        let place = |grant| {
            *places.entry(identity(grant)).or_insert_with(|| {
                told.push(grant);
                told.len() - 1
            })
        };
        let asked: Vec<usize> = grants.iter().map(place).collect();
        let types: Vec<&str> = told.iter().map(|g| g.task_type).collect();
        let keys: Vec<&str> = told.iter().map(|g| g.key).collect();
        let fences: Vec<i64> = told.iter().map(|g| g.fence).collect();
        let mut query = sqlx::query_as(sql).bind(types).bind(keys).bind(fences);
        if with_leases {
            query = query.bind(told.iter().map(|g| g.lease.as_secs_f64()).collect::<Vec<f64>>());
        }
        let answers: Vec<(i64, bool, bool)> = query.fetch_all(self.pool).await?;
        let mut written = vec![Written::Busy; told.len()];
        for (n, settled, exists) in answers {
            if let Some(answer) = position(n).and_then(|n| written.get_mut(n)) {
                *answer = match (settled, exists) {
                    (true, _) => Written::Yes,
                    (false, true) => Written::Busy,
                    (false, false) => Written::Refused,
                };
            }
        }
        Ok(asked.into_iter().map(|place| written[place]).collect())
    }
}

fn identity<'g>(grant: &Grant<'g>) -> (&'g str, &'g str, i64) {
    (grant.task_type, grant.key, grant.fence)
}

/// Records success in a transaction of the caller's, to be committed with what else it wrote. `false`: the key is
/// no longer held under this number, and the transaction must be rolled back.
pub async fn complete_in(transaction: &mut PgConnection, grant: Grant<'_>) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(
        "UPDATE tidegate.executions SET state = 'DONE', finished_at = clock_timestamp() \
         WHERE task_type = $1 AND idempotency_key = $2 AND fence = $3 AND state = 'RUNNING'",
    )
    .bind(grant.task_type)
    .bind(grant.key)
    .bind(grant.fence)
    .execute(transaction)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// `WITH ORDINALITY` counts from one.
fn position(n: i64) -> Option<usize> {
    usize::try_from(n).ok()?.checked_sub(1)
}
