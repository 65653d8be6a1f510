//! Three servers on one ledger, all of them killed, frozen and started with wrong clocks, while Postgres and RabbitMQ are restarted:
//! every occurrence is accounted for once, every scheduled task arrives, none that was cancelled in time, and none early.
//!
//! `./dev torture` runs it for ten minutes with 200 cron rows and 20,000 tasks; among the other tests it is short.
//! `TIDEGATE_SEED` repeats a run's plan.

mod books;
mod rows;
mod servers;
mod tasks;

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_testkit::{PrivateServices, eventually};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    consumer::Consumer,
    installation::{Installation, TICK_QUEUE, WORK_QUEUE},
    seed,
};

/// How much, and for how long.
struct Size {
    rows: usize,
    tasks: usize,
    span: Duration,
    /// Of Postgres and of RabbitMQ.
    restarts: usize,
}

const USUAL: Size = Size {
    rows: 50,
    tasks: 1_000,
    span: Duration::from_secs(25),
    restarts: 1,
};

const LONG: Size = Size {
    rows: 200,
    tasks: 20_000,
    span: Duration::from_secs(600),
    restarts: 3,
};

/// Until the first occurrence and the first task: the servers have noticed the rows by then.
const NOTICE: Duration = Duration::from_secs(10);

/// How long after the torture everything must be at rest.
const CALM: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_early_or_run_after_its_cancel() {
    let _machine = crate::turns::machine().await;
    let (seed, began) = (seed(), Instant::now());
    let size = if crate::is_long() { LONG } else { USUAL };
    tidegate_testkit::report(&format!("torture: TIDEGATE_SEED={seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let services = PrivateServices::start().await;
    let installation = Arc::new(Installation::on(services.services()).await);
    let sql = installation.sql();
    let consumer = Consumer::start(
        &installation,
        &[WORK_QUEUE, &format!("{WORK_QUEUE}.high"), TICK_QUEUE],
    );
    let mut servers = Vec::new();
    for clock in servers::FIRST_CLOCKS {
        servers.push(servers::Tormented::start(&installation, clock).await);
    }
    let set_up = began.elapsed();

    let starts_at = rows::database_now(&sql).await + NOTICE;
    let ends_at = starts_at + size.span;
    let rows = rows::register(&sql, &mut random, size.rows, (starts_at, ends_at)).await;
    let plan = tasks::plan(&mut random, size.tasks, (starts_at, ends_at));
    let until = Instant::now() + NOTICE + size.span;
    let seeds: [u64; 4] = random.random();
    let [one, two, three] = &mut servers[..] else {
        unreachable!("three were started")
    };
    let (deeds_one, deeds_two, deeds_three, restarts, requests) = tokio::join!(
        one.torment(seeds[0], servers::Deed::FIRST[0], until),
        two.torment(seeds[1], servers::Deed::FIRST[1], until),
        three.torment(seeds[2], servers::Deed::FIRST[2], until),
        restart(&services, seeds[3], size.restarts, until),
        tasks::send_and_cancel(&installation, plan),
    );
    let tormented = began.elapsed() - set_up;

    let calm = Instant::now();
    eventually(
        CALM,
        "every schedule to have ended and every task to be handed over",
        async || {
            let left = "SELECT (SELECT count(*) FROM tidegate.cron_tasks WHERE NOT exhausted) \
                    + (SELECT count(*) FROM tidegate.tasks WHERE state = 'PENDING')";
            sqlx::query_scalar::<_, i64>(left)
                .fetch_one(&sql)
                .await
                .is_ok_and(|left| left == 0)
        },
    )
    .await;
    let ledger = books::Ledger::read(&sql).await;
    // What is published is on its way; what never comes shows in the books.
    let patience = Instant::now() + CALM / 2;
    while !ledger.is_all_in(&consumer.arrivals()) && Instant::now() < patience {
        sleep(Duration::from_millis(500)).await;
    }
    // And what should not come has had its time.
    sleep(Duration::from_secs(2)).await;
    let books = books::Books {
        rows: &rows,
        requests: &requests,
        ledger: &ledger,
        arrivals: &consumer.arrivals(),
    };
    let deeds = deeds_one + deeds_two + deeds_three;
    let verdict = books.close();
    tidegate_testkit::report(&format!(
        "torture: TIDEGATE_SEED={seed}\n  {deeds}; Postgres and RabbitMQ restarted {restarts} times each\n{verdict}  took: \
         set-up {set_up:.1?}, torture {tormented:.1?}, calm {:.1?}",
        calm.elapsed()
    ));
    verdict.assert_clean();
    deeds.assert_thorough();
    for server in servers {
        server.stop().await;
    }
}

/// Restarts both services, at random moments spread over the time until `until`: in order or by `kill -9`.
async fn restart(services: &PrivateServices, seed: u64, times: usize, until: Instant) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let began = Instant::now() + NOTICE;
    // The last one is to be over before the end.
    let each = (until - began).mul_f64(0.8) / u32::try_from(times).unwrap();
    for n in 0..times {
        let mut at = |offset: f64| began + each.mul_f64(n as f64 + offset + random.random_range(0.0..0.4));
        let (database, broker) = (at(0.0), at(0.5));
        sleep_until(database).await;
        if random.random() {
            services.kill_postgres().await;
            sleep(Duration::from_millis(random.random_range(0..3_000))).await;
            services.start_postgres().await;
        } else {
            services.restart_postgres().await;
        }
        sleep_until(broker).await;
        if random.random() {
            services.kill_broker().await;
            sleep(Duration::from_millis(random.random_range(0..3_000))).await;
            services.start_broker().await;
        } else {
            services.restart_broker().await;
        }
    }
    times
}
