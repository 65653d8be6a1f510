//! Cron rows that are all due at one instant, claimed by one instance and by two, each a process of its own; and the same work by
//! one bare SQL statement per 500 rows, which is what the database can do at most.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use sqlx::PgPool;
use tidegate::{
    scheduler::claim::{self, ClaimSettings},
    telemetry::health::Health,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use tidegate_testkit::figures::{Figures, Scale};

use crate::ground::{Database, store};

/// First argument of a process that claims.
pub(crate) const CHILD: &str = "claiming-instance";

const ROWS: u32 = 100_000;

pub(crate) async fn measure(scale: &Scale, figures: &mut Figures) {
    let rows = scale.count(ROWS);
    let (mut bare, mut one, mut two) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.runs {
        bare.push(run(rows, async |database| by_sql(&database.sql, rows).await).await);
        one.push(run(rows, async |database| by_instances(database, 1).await).await);
        two.push(run(rows, async |database| by_instances(database, 2).await).await);
    }
    let rows = format!("{rows} cron rows due at one instant");
    let bare = figures.add("claim", format!("{rows}: bare SQL, one session"), "rows/s", bare);
    let one = figures.add("claim", format!("{rows}: one instance"), "rows/s", one);
    figures.ratio(one, bare, "bare SQL");
    let two = figures.add("claim", format!("{rows}: two instances"), "rows/s", two);
    figures.ratio(two, one, "one instance");
}

/// Rows per second of `work` on a ledger of its own.
async fn run(rows: u32, work: impl AsyncFnOnce(&Database) -> Duration) -> f64 {
    let database = Database::create().await;
    register(&database.sql, rows).await;
    database.settle().await;
    let took = work(&database).await;
    let fired: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM tidegate.cron_fires f JOIN tidegate.tasks t USING (task_id) WHERE outcome = 'FIRED'",
    )
    .fetch_one(&database.sql)
    .await
    .unwrap();
    assert_eq!(fired, i64::from(rows), "every row has fired");
    database.close().await;
    f64::from(rows) / took.as_secs_f64()
}

/// Rows that fire once a day, at this second.
async fn register(sql: &PgPool, rows: u32) {
    sqlx::query(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload, next_fire_at) \
         SELECT 'nightly-' || n, 'bench.work', to_char(at AT TIME ZONE 'UTC', 'FMSS FMMI FMHH24 \"* * *\"'), '{\"shop\": 1}', at \
         FROM generate_series(1, $1) n, (SELECT date_trunc('second', clock_timestamp()) AS at) due",
    )
    .bind(rows as i32)
    .execute(sql)
    .await
    .unwrap();
}

async fn by_sql(sql: &PgPool, rows: u32) -> Duration {
    let mut connection = sql.acquire().await.unwrap();
    let began = Instant::now();
    let mut done = 0;
    for shard in (0..16).cycle() {
        let claimed = sqlx::query(
            "WITH due AS MATERIALIZED ( \
               SELECT id, version, next_fire_at AS at FROM tidegate.cron_tasks \
               WHERE (id & 15) = $1 AND enabled AND next_fire_at <= now() ORDER BY next_fire_at LIMIT 500 FOR UPDATE SKIP LOCKED), \
             moved AS (UPDATE tidegate.cron_tasks c SET next_fire_at = d.at + interval '1 day', version = c.version + 1, \
               last_triggered_at = now() FROM due d WHERE c.id = d.id AND c.version = d.version RETURNING c.id, d.at), \
             fired AS (INSERT INTO tidegate.cron_fires (cron_task_id, fire_at, outcome, task_id) \
               SELECT id, at, 'FIRED', 'cron:' || id FROM moved) \
             INSERT INTO tidegate.tasks (task_id, task_type, envelope, origin, due_at) \
             SELECT 'cron:' || id, 'bench.work', format('{\"taskId\":\"cron:%s\",\"taskType\":\"bench.work\",\"payload\":{\"shop\": 1}}', id), \
               'cron', at FROM moved",
        )
        .bind(shard)
        .execute(&mut *connection)
        .await
        .unwrap();
        done += claimed.rows_affected();
        if done >= u64::from(rows) {
            break;
        }
    }
    began.elapsed()
}

async fn by_instances(database: &Database, instances: usize) -> Duration {
    let mut all = Vec::new();
    for _ in 0..instances {
        all.push(Instance::start(database.url()).await);
    }
    let began = Instant::now();
    for instance in &mut all {
        instance.input.write_all(b"go\n").await.unwrap();
    }
    for instance in &mut all {
        assert_eq!(instance.line().await, "done");
    }
    let took = began.elapsed();
    for mut instance in all {
        instance.process.wait().await.unwrap();
    }
    took
}

/// A process that claims when told to.
struct Instance {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Instance {
    async fn start(url: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([CHILD, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut instance = Self {
            process,
            input,
            output: BufReader::new(output),
        };
        assert_eq!(instance.line().await, "ready");
        instance
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).await.unwrap();
        line.trim().to_owned()
    }
}

/// What such a process does.
pub(crate) async fn child(url: &str) {
    let (store, settings, health) = (store(url), ClaimSettings::default(), Health::default());
    store.ping().await.unwrap();
    println!("ready");
    let mut order = String::new();
    BufReader::new(tokio::io::stdin())
        .read_line(&mut order)
        .await
        .unwrap();
    // What another instance was about to take may be left after a pass.
    while claim::pass(&store, &settings, &health).await.unwrap() > 0 {}
    println!("done");
}
