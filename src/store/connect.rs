//! The pool, and what every session is set to.
//!
//! May import: sqlx, secrecy. Nothing is connected until first use, so a process starts while Postgres is away. Which
//! connections of the pool may be used again, and what happens while the database is in trouble: [`super::vigil`].

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    ConnectOptions, Connection, PgConnection, PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{
    StoreError,
    cron_tasks::CronTasks,
    executions::Executions,
    life::Life,
    retention::Retention,
    tasks::{Tasks, unwritten::Unwritten},
    vigil::{self, Trouble},
};

/// A connection is replaced after so long at the latest: where the name of the database leads elsewhere by now, without
/// a sign of trouble, all of the pool follows within that time.
const LIFETIME: Duration = Duration::from_secs(600);

/// Longest wait of a handler for a connection.
const HANDLER_PATIENCE: Duration = Duration::from_secs(30);

/// Begins a transaction, in a task of its own: a `BEGIN` whose caller gives up in the middle would leave the pool a
/// connection with a transaction that nobody knows of, and what is told to it next would not be committed.
pub(super) async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    let pool = pool.clone();
    match tokio::spawn(async move { pool.begin().await }).await {
        Ok(begun) => Ok(begun?),
        Err(_) => Err(StoreError::Unavailable("the process is stopping".to_owned())),
    }
}

fn pool(most: u32, acquire_timeout: Duration, session: &PgConnectOptions, trouble: &Arc<Trouble>) -> PgPool {
    let pool = PgPoolOptions::new()
        .max_connections(most)
        .acquire_timeout(acquire_timeout)
        .max_lifetime(LIFETIME);
    vigil::guard(pool, trouble).connect_lazy_with(session.clone())
}

/// How the ledger is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Most connections of the pool. Beside it each role that listens for `NOTIFY` keeps one, and the watch.
    pub max_connections: u32,
    /// Longest wait for a connection.
    pub acquire_timeout: Duration,
    /// Longest run of one statement; the server cancels it then.
    pub statement_timeout: Duration,
    /// Longest silence inside a transaction: the server then frees the row locks of a process that is frozen or
    /// unreachable. Must exceed the time the relay waits for confirms.
    pub idle_in_transaction_timeout: Duration,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            max_connections: 8,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            idle_in_transaction_timeout: Duration::from_secs(60),
        }
    }
}

/// The ledger; cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(super) pool: PgPool,
    /// For connections outside the pool, without its time-outs.
    pub(super) options: PgConnectOptions,
    pub(super) trouble: Arc<Trouble>,
    pub(super) acquire_timeout: Duration,
    /// What every session of the pool is set to.
    session: Arc<PgConnectOptions>,
    /// Shared by all clones: a relay that starts again knows what it has sent.
    unwritten: Arc<Unwritten>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the options: they hold the password.
        f.debug_struct("Store")
            .field("connections", &self.pool.size())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Whether every connection that is open rests in the pool.
    #[doc(hidden)]
    pub fn is_at_rest(&self) -> bool {
        self.pool.num_idle() == self.pool.size() as usize
    }

    /// A store at `url`. Connects on first use; fails only if `url` is no Postgres URL. Needs a tokio runtime.
    pub fn connect(url: &SecretString, settings: &StoreSettings) -> Result<Self, StoreError> {
        let text = url.expose_secret();
        let options = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
            // The cause may quote the URL.
            .then(|| PgConnectOptions::from_str(text).ok())
            .flatten()
            .ok_or_else(|| {
                StoreError::Bad(
                    "the database URL is not of the form postgres://user:password@host:port/database, or an option \
                     after its `?` has a value that does not exist"
                        .to_owned(),
                )
            })?
            .application_name("tidegate")
            .disable_statement_logging()
            // The server notices within a minute that this end has vanished, and frees what it had locked. With its
            // defaults that takes two hours.
            .options([
                ("tcp_keepalives_idle", "20"),
                ("tcp_keepalives_interval", "10"),
                ("tcp_keepalives_count", "3"),
                // Every statement here is written for it. Under a stricter default of the database or the role, a relay
                // could not write back what changed while it waited for the broker, and would send it again.
                ("default_transaction_isolation", "read committed"),
            ]);
        let session = [
            (
                "statement_timeout",
                settings.statement_timeout.as_millis().to_string(),
            ),
            (
                "idle_in_transaction_session_timeout",
                settings.idle_in_transaction_timeout.as_millis().to_string(),
            ),
            // A statement prepared while a table was empty keeps a plan for an empty table, at a sixth of the
            // speed, until something analyses it. Planning anew costs a tenth of a millisecond.
            ("plan_cache_mode", "force_custom_plan".to_owned()),
            // Before the first analysis a backlog looks like ten rows, which a bitmap scan would read and sort whole
            // for each batch. Every statement here is served by an index in order.
            ("enable_bitmapscan", "off".to_owned()),
        ];
        let trouble = Arc::new(Trouble::default());
        let session = Arc::new(options.clone().options(session));
        let pool = pool(
            settings.max_connections,
            settings.acquire_timeout,
            &session,
            &trouble,
        );
        Ok(Self {
            pool,
            options,
            trouble,
            acquire_timeout: settings.acquire_timeout,
            session,
            unwritten: Arc::default(),
        })
    }

    /// The same ledger by a pool of its own, which belongs to the tokio runtime it is made in. Connects on first use.
    #[must_use]
    pub fn beside(&self, max_connections: u32, acquire_timeout: Duration) -> Self {
        Self {
            pool: pool(max_connections, acquire_timeout, &self.session, &self.trouble),
            acquire_timeout,
            ..self.clone()
        }
    }

    /// The same database by a pool for the statements of others: without what the sessions of the ledger's own are tuned
    /// to. Only silence inside a transaction is limited, to a minute, since what it has locked may be anybody's.
    #[must_use]
    pub fn for_handlers(&self, max_connections: u32) -> Self {
        let session = self
            .options
            .clone()
            .application_name("tidegate handler")
            .options([("idle_in_transaction_session_timeout", "60000")]);
        Self {
            pool: pool(max_connections, HANDLER_PATIENCE, &session, &self.trouble),
            acquire_timeout: HANDLER_PATIENCE,
            session: Arc::new(session),
            ..self.clone()
        }
    }

    /// Begins a transaction. Dropped, it is rolled back.
    pub async fn begin(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        begin(&self.pool).await
    }

    /// The cron rows.
    pub fn cron_tasks(&self) -> CronTasks<'_> {
        CronTasks::new(&self.pool)
    }

    /// The tasks.
    pub fn tasks(&self) -> Tasks<'_> {
        Tasks::new(&self.pool, &self.unwritten)
    }

    /// The life of tasks after the hand-over.
    pub fn life(&self) -> Life<'_> {
        Life::new(&self.pool)
    }

    /// Idempotency keys.
    pub fn executions(&self) -> Executions<'_> {
        Executions::new(&self.pool)
    }

    /// Pruning by age.
    pub fn retention(&self) -> Retention<'_> {
        Retention::new(&self.pool)
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Opens one connection outside the pool and closes it. The pool hides why it can't connect (it tries until its
    /// time is over); this says it: refused, unknown host, wrong password.
    pub async fn reach(&self) -> Result<(), StoreError> {
        let once = async {
            let connection = PgConnection::connect_with(&self.options).await?;
            connection.close().await
        };
        match tokio::time::timeout(self.acquire_timeout, once).await {
            Ok(reached) => Ok(reached?),
            Err(_) => Err(StoreError::Unavailable(format!(
                "no answer within {:?}",
                self.acquire_timeout
            ))),
        }
    }

    /// Closes all connections, waiting for those in use.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
