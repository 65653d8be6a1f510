//! Load at 70 % of what the platform can do, while workers are killed, connections closed and the broker is restarted: every
//! confirmed task ends, every key's effect is had once where that is promised, and memory stays flat.
//!
//! `./dev soak` runs it for ten minutes; among the other tests it is short. `TIDEGATE_SEED` repeats a run's plan.

mod books;
mod course;
mod deeds;
mod generator;
mod marks;
mod memory;
mod plan;
mod staff;
mod worker;

use std::{sync::Arc, time::Duration};

use deeds::Order;
use rand::{Rng, SeedableRng, rngs::StdRng};
use sqlx::PgPool;
use tidegate_testkit::{PrivateServices, report};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{consumer::Consumer, installation::Installation, killer::Habit, seed};

/// How long, and how much is done to it.
struct Size {
    /// How long one span is in which the maximum is measured.
    measure: Duration,
    lease: &'static str,
    order: Order,
    kills: Habit,
    look_every: Duration,
    memory: Growth,
}

/// How memory is judged.
#[derive(Clone, Copy, Debug)]
struct Growth {
    /// Where the early and the last window begin and end, as parts of the span.
    early: (f64, f64),
    late: (f64, f64),
    /// How much more there may be in the last one: a part, and a number of MiB.
    part: f64,
    mib: u64,
}

const USUAL: Size = Size {
    measure: Duration::from_secs(1),
    lease: "3s",
    order: Order {
        span: Duration::from_secs(8),
        closes: 4,
        // Before the first restart: the broker's list of connections is some seconds late after it.
        between: (0.05, 0.3),
        afresh: &[],
    },
    kills: Habit {
        up: 1_500..4_000,
        down: 100..800,
        at_least: 2,
    },
    look_every: Duration::from_millis(200),
    memory: Growth {
        early: (0.0, 0.2),
        late: (0.7, 1.0),
        // Too short to tell more: the buffers of three connections are 24 MiB once they have been used.
        part: 0.5,
        mib: 24,
    },
};

const LONG: Size = Size {
    measure: Duration::from_secs(10),
    lease: "10s",
    order: Order {
        span: Duration::from_secs(600),
        closes: 30,
        // Not in the windows of memory.
        between: (0.2, 0.89),
        afresh: &[0.08, 0.9],
    },
    kills: Habit {
        up: 5_000..30_000,
        down: 100..3_000,
        at_least: 10,
    },
    look_every: Duration::from_secs(1),
    memory: Growth {
        early: (0.08, 0.18),
        late: (0.9, 1.0),
        part: 0.1,
        mib: 4,
    },
};

/// Longest time after the load in which nothing more is done and all is not yet at rest: leases, and the ladder.
const CALM: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_confirmed_ends_once_and_memory_stays_flat_under_load() {
    let _machine = crate::turns::machine().await;
    let (seed, began) = (seed(), Instant::now());
    let size = if crate::is_long() { LONG } else { USUAL };
    report(&format!("soak: TIDEGATE_SEED={seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let services = PrivateServices::start().await;
    let installation = Installation::with(services.services(), &plan::queues(size.lease)).await;
    let installation = Arc::new(installation);
    let sql = installation.sql();
    sqlx::query(worker::EFFECTS).execute(&sql).await.unwrap();
    // What the broker dead-letters by itself goes by the router. Nobody archives: the books are of what is in the queue.
    let mut server = installation.serve(&["--roles", "scheduler,relay,router"]).await;
    let dead = Consumer::start(&installation, &["task.dead.queue"]);
    let staff = staff::Staff::start(&installation);
    let generator = generator::Generator::new(&installation, plan::Plan(random.random()), &staff);
    let set_up = began.elapsed();

    let maximum = generator.flat_out(size.measure).await;
    let measured = generator.published();
    let rate = maximum * 0.7;
    let watch = staff.watch(size.look_every);
    let (from, from_micros) = (Instant::now(), chrono::Utc::now().timestamp_micros());
    let until = from + size.order.span;
    let stop = CancellationToken::new();
    let seeds: [u64; 2] = random.random();
    let torment = async {
        let done = tokio::join!(
            deeds::to_the_broker(&services, &installation, &staff, seeds[0], size.order),
            deeds::to_workers(&staff, seeds[1], &size.kills, until),
            sleep_until(until),
        );
        stop.cancel();
        (done.0, done.1, Instant::now())
    };
    let ((done, kills, to), ()) = tokio::join!(torment, generator.steadily(rate, &stop));
    drop(watch);
    let sent = Instant::now();

    at_rest(&installation, &sql, &dead, &generator, &staff).await;
    let (ledger, lives, dead) = (books::Ledger::read(&sql).await, staff.lives(), dead.arrivals());
    let books = books::Books {
        plan: generator.plan,
        published: generator.published(),
        ledger: &ledger,
        lives: &lives,
        dead: &dead,
    };
    let course = course::Course {
        lives: &lives,
        done: &done,
        span: from..to,
        from_micros,
        growth: size.memory,
    };
    let mut verdict = books.close();
    course.judge(&mut verdict);
    verdict.demand("kills", kills >= 2 * size.kills.at_least);
    report(&format!(
        "soak: TIDEGATE_SEED={seed}\n  measured maximum {maximum:.0}/s, asked for {rate:.0}/s, sent {:.0}/s; most unfinished {}\n  \
         sends of unknown outcome, repeated: {}; published twice under one id: {}\n  worker kills {kills}\n{verdict}  took: set-up \
         {set_up:.1?}, measuring {:.1?}, load {:.1?}, calm {:.1?}",
        f64::from(generator.published() - measured) / (sent - from).as_secs_f64(),
        generator.backlog.into_inner(),
        generator.unknown.into_inner(),
        generator.sent_twice.into_inner(),
        from - began - set_up,
        sent - from,
        sent.elapsed(),
    ));
    verdict.assert_clean();
    assert!(server.process.is_running(), "{}", server.process.output());
    staff.dismiss().await;
}

/// Waits until nothing is under way, or for so long that what is still missing then never comes.
async fn at_rest(
    installation: &Installation,
    sql: &PgPool,
    dead: &Consumer,
    generator: &generator::Generator,
    staff: &staff::Staff,
) {
    let (mut deadline, mut marks) = (Instant::now() + CALM, staff.marks());
    let numbers = 0..generator.published();
    let failing = numbers.filter(|n| generator.plan.task(*n).behaviour.dead_reason().is_some());
    let failing = failing.count();
    let mut quiet = 0;
    // Quiet is to be seen twice: a message may move behind the back of one look.
    while quiet < 2 && Instant::now() < deadline {
        let queues = installation.vhost.management().queues().await;
        let running = "SELECT count(*) FROM tidegate.executions WHERE state = 'RUNNING'";
        let running: i64 = sqlx::query_scalar(running).fetch_one(sql).await.unwrap();
        let is_quiet = queues.len() > 100
            && queues.iter().all(|queue| queue.messages == 0)
            && running == 0
            && dead.count() >= failing;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        // A backlog takes as long as it takes.
        if staff.marks() > marks {
            (deadline, marks) = (Instant::now() + CALM, staff.marks());
        }
        sleep(Duration::from_millis(600)).await;
    }
}
