//! A run as its row says.
//!
//! May import: `core`, sqlx.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Row, postgres::PgRow};
use uuid::Uuid;

use super::super::unreadable;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Under way, or its process is dead and nobody has taken it over yet.
    Running,
    /// Everything was taken.
    Done,
    /// Messages of its canary died again; the rest is open.
    CanaryFailed,
    /// Somebody stopped it; the rest is open.
    Stopped,
    /// It can't go on; the rest is open.
    Failed,
}

/// A run as it stands.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Its id.
    pub id: Uuid,
    /// When it began.
    pub began_at: DateTime<Utc>,
    /// Who wanted it.
    pub asked_by: String,
    /// Why.
    pub why: String,
    /// Which dead letters, as text.
    pub filter: String,
    /// What is changed, as text.
    pub edit: String,
    /// How it goes, as text.
    pub options: String,
    /// Most that it takes.
    pub planned: u64,
    /// Confirmed.
    pub sent: u64,
    /// Not sent, because they don't fit.
    pub refused: u64,
    /// Wanted, and dealt with by others.
    pub lost: u64,
    /// Claimed, and neither confirmed nor refused.
    pub unsettled: u64,
    /// When the last one was confirmed.
    pub last_sent_at: Option<DateTime<Utc>>,
    /// Where its walk is.
    pub at: Option<(DateTime<Utc>, Uuid)>,
    /// How far it is.
    pub state: RunState,
    /// Whether somebody wants it to stop.
    pub stop_asked: bool,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// What there is to say about its end.
    pub outcome: Option<String>,
    /// The process that works on it, or did last.
    pub owner: String,
    /// The number that it is held under.
    pub fence: i64,
    /// How long its lease still lasts; zero once it is over.
    pub lease_left: Duration,
    /// The database's time.
    pub now: DateTime<Utc>,
}

impl RunState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Running,
        Self::Done,
        Self::CanaryFailed,
        Self::Stopped,
        Self::Failed,
    ];

    /// The state as it stands in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Done => "DONE",
            Self::CanaryFailed => "CANARY_FAILED",
            Self::Stopped => "STOPPED",
            Self::Failed => "FAILED",
        }
    }
}

macro_rules! run_columns {
    () => {
        "r.id, r.began_at, r.asked_by, r.why, r.filter, r.edit, r.options, r.planned, r.sent, r.refused, r.lost, \
         r.last_sent_at, r.at_archived, r.at_id, r.state, r.stop_asked, r.ended_at, r.outcome, r.owner, r.fence, \
         greatest(extract(epoch FROM r.lease_until - clock_timestamp()), 0)::float8 AS lease_left, clock_timestamp() AS now, \
         CASE WHEN r.state = 'RUNNING' THEN \
           (SELECT count(*) FROM tidegate.dead_letters d WHERE d.replay_id = r.id AND d.state = 'REPLAYING') ELSE 0 END AS unsettled"
    };
}
pub(super) use run_columns;

impl FromRow<'_, PgRow> for RunRow {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let count = |column| {
            row.try_get::<i64, _>(column)
                .map(|n| u64::try_from(n).unwrap_or_default())
        };
        let state: &str = row.try_get("state")?;
        let at: (Option<DateTime<Utc>>, Option<Uuid>) = (row.try_get("at_archived")?, row.try_get("at_id")?);
        let state = RunState::ALL.into_iter().find(|known| known.as_str() == state);
        Ok(Self {
            id: row.try_get("id")?,
            began_at: row.try_get("began_at")?,
            asked_by: row.try_get("asked_by")?,
            why: row.try_get("why")?,
            filter: row.try_get("filter")?,
            edit: row.try_get("edit")?,
            options: row.try_get("options")?,
            planned: count("planned")?,
            sent: count("sent")?,
            refused: count("refused")?,
            lost: count("lost")?,
            unsettled: count("unsettled")?,
            last_sent_at: row.try_get("last_sent_at")?,
            at: at.0.zip(at.1),
            state: state.ok_or_else(|| unreadable("state", "a state that this program doesn't know"))?,
            stop_asked: row.try_get("stop_asked")?,
            ended_at: row.try_get("ended_at")?,
            outcome: row.try_get("outcome")?,
            owner: row.try_get("owner")?,
            fence: row.try_get("fence")?,
            lease_left: Duration::try_from_secs_f64(row.try_get("lease_left")?).unwrap_or_default(),
            now: row.try_get("now")?,
        })
    }
}
