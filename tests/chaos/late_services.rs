//! Services that come late: programs wait for them quietly and go to work by themselves.

use std::time::Duration;

use tidegate_testkit::{PrivateServices, eventually};
use tokio::time::Instant;

use crate::{
    installation::{Installation, PATIENCE, WORK},
    server::Server,
};

/// How long broker and database are away.
const AWAY: Duration = Duration::from_secs(20);

/// Most CPU time that a program may use meanwhile: a tenth of a core, in a debug build on a busy machine. One that spins uses all.
const QUIET: Duration = Duration::from_millis(2_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_start_before_their_services_come_up_by_themselves() {
    let began = Instant::now();
    let services = PrivateServices::start().await;
    let installation = Installation::on(services.services()).await;
    let sql = installation.sql();
    // A task of the ledger is to get through once everything is there.
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope) \
         VALUES ('late', $1, '{\"taskId\":\"late\",\"taskType\":\"chaos.work\",\"payload\":{}}')",
    )
    .bind(WORK)
    .execute(&sql)
    .await
    .unwrap();
    services.kill_broker().await;
    services.kill_postgres().await;

    let server = installation.serve(&[]).await;
    let worker = installation.worker();
    let (from, cpu_from) = (Instant::now(), [server.cpu(), worker.cpu()]);
    while from.elapsed() < AWAY {
        let (status, why) = server.readyz().await;
        assert_eq!(status, 503, "not ready without services: {why}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let used = [server.cpu() - cpu_from[0], worker.cpu() - cpu_from[1]];
    assert!(
        used.iter().all(|used| *used < QUIET),
        "CPU time in {AWAY:?} of waiting, serve and worker: {used:?}"
    );
    let (_, why) = server.readyz().await;
    for part in ["scheduler", "relay", "router task.failed.queue"] {
        assert!(why.contains(part), "{part} is named: {why}");
    }

    services.start_broker().await;
    services.start_postgres().await;
    let back = Instant::now();
    server.wait_ready().await;
    let ready = back.elapsed();
    eventually(PATIENCE, "the task to be done", async || {
        installation.journal().effects("late") == 1
    })
    .await;
    let done = back.elapsed();
    tidegate_testkit::report(&format!(
        "late services: red for {AWAY:?} at {used:?} of CPU time (serve, worker); ready {ready:.1?} after their return, the task \
         done after {done:.1?}; took {:.1?}",
        began.elapsed()
    ));
}

/// B30: wrong credentials are named as such, by log and readiness, and don't show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_named_and_not_shown() {
    let installation = Installation::on(&tidegate_testkit::services()).await;
    let secret = "wr0ng-pa55";
    let wrong = |url: &str| {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (user, host) = rest.split_once('@').unwrap();
        format!("{scheme}://{}:{secret}@{host}", user.split(':').next().unwrap())
    };
    let (amqp, database) = (
        wrong(installation.vhost.amqp_url()),
        wrong(installation.database.url()),
    );
    let server = Server::start(installation.tidegate_at(&amqp, &database, &Server::arguments(&[]))).await;
    let cpu_from = (Instant::now(), server.cpu());
    let why = eventually(PATIENCE, "every part to say that it is refused", async || {
        let (status, why) = server.readyz().await;
        assert_eq!(status, 503);
        let refused = why.contains("password authentication failed") && why.contains("ACCESS_REFUSED");
        refused.then_some(why)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let log = server.process.output();
    assert!(
        log.contains("password authentication failed") && log.contains("ACCESS_REFUSED"),
        "{log}"
    );
    assert!(
        !log.contains(secret) && !why.contains(secret),
        "the password shows"
    );
    let attempts = log.lines().filter(|line| line.contains("ACCESS_REFUSED")).count();
    let seconds = cpu_from.0.elapsed().as_secs_f64();
    tidegate_testkit::report(&format!(
        "wrong password: {attempts} lines of the log in {seconds:.1} s name it, {:?} of CPU time",
        server.cpu() - cpu_from.1
    ));
}
