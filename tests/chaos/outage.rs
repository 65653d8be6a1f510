//! Postgres in every kind of trouble, under a running server: it says so, goes on by itself, and accounts for every occurrence.
//!
//! Stated: readiness is red within [`NOTICED`] of trouble that lasts, and green within [`RECOVERED`] of its end.

use std::time::Duration;

use sqlx::PgPool;
use tidegate_testkit::{PrivateServices, Proxy, Replica, eventually, services};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    installation::{Installation, PATIENCE},
    schedules::{Fire, Schedules},
    server::Server,
};

/// A silent database is noticed by the watch, one that refuses at once.
const NOTICED: Duration = Duration::from_secs(12);

/// The watch looks every two seconds, waits five for an answer; roles start again after five at most.
const RECOVERED: Duration = Duration::from_secs(20);

const ROLES: [&str; 2] = ["--roles", "scheduler,relay"];

const PERIODS: [u32; 6] = [1, 1, 2, 3, 5, 7];

/// Ends the sessions of servers as an administrator does.
const END_SESSIONS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
    WHERE datname = current_database() AND application_name = 'tidegate'";

/// A server that reaches Postgres through `proxy`.
async fn serve_through(proxy: &Proxy, installation: &Installation) -> Server {
    let database = proxy.url(installation.database.url());
    let arguments = Server::arguments(&ROLES);
    let command = installation.tidegate_at(installation.vhost.amqp_url(), &database, &arguments);
    let server = Server::start(command).await;
    server.wait_ready().await;
    server
}

/// How long it took until readiness was as wanted, and what it then said.
async fn ready(server: &Server, wanted: bool, within: Duration) -> (Duration, String) {
    let began = Instant::now();
    let what = if wanted {
        "green readiness"
    } else {
        "red readiness"
    };
    let said = eventually(within, what, async || {
        let (status, said) = server.readyz().await;
        ((status == 200) == wanted).then_some(said)
    })
    .await;
    (began.elapsed(), said)
}

/// All is accounted for, and handed over.
async fn settle(schedules: &Schedules, sql: &PgPool) -> Vec<Fire> {
    schedules.ended(sql, PATIENCE).await;
    eventually(PATIENCE, "all tasks to be handed over", async || {
        let left = "SELECT count(*) FROM tidegate.tasks WHERE state <> 'PUBLISHED'";
        sqlx::query_scalar::<_, i64>(left)
            .fetch_one(sql)
            .await
            .is_ok_and(|left| left == 0)
    })
    .await;
    schedules.verified(sql).await
}

/// Most that an occurrence was recorded after its time.
fn latest(fires: &[Fire]) -> f64 {
    let late = fires
        .iter()
        .map(|fire| (fire.recorded_at - fire.at).as_seconds_f64());
    late.fold(0.0, f64::max)
}

/// B65: `pg_terminate_backend` of everything, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_ended_every_other_second_delay_little_and_lose_nothing() {
    let installation = Installation::on(&services()).await;
    let sql = installation.sql();
    let server = installation.serve(&ROLES).await;
    server.wait_ready().await;
    let schedules = Schedules::register(&sql, &PERIODS, Duration::from_secs(10)).await;
    let mut ended = 0_i64;
    while chrono::Utc::now() < schedules.ends_at {
        ended += sqlx::query_scalar::<_, i64>(END_SESSIONS)
            .fetch_one(&sql)
            .await
            .unwrap();
        sleep(Duration::from_secs(2)).await;
    }
    assert!(ended > 10, "{ended} sessions ended");
    let fires = settle(&schedules, &sql).await;
    let (green, _) = ready(&server, true, RECOVERED).await;
    let late = latest(&fires);
    assert!(late < 10.0, "an occurrence came {late:.1} s late");
    tidegate_testkit::report(&format!(
        "sessions ended every 2 s: {ended}; occurrences {}, each recorded once, the latest {late:.1} s late; green after {green:.1?}",
        fires.len()
    ));
}

/// A network that drops everything, then comes back without the connections that were open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_swallows_everything_is_noticed_and_survived() {
    let installation = Installation::on(&services()).await;
    let sql = installation.sql();
    let proxy = Proxy::before(installation.database.url()).await;
    let server = serve_through(&proxy, &installation).await;
    let schedules = Schedules::register(&sql, &PERIODS, Duration::from_secs(20)).await;
    proxy.silence();
    let (red, why) = ready(&server, false, NOTICED).await;
    assert!(why.contains("no answer"), "{why}");
    sleep(Duration::from_secs(8)).await;
    proxy.forget_connections();
    proxy.resume();
    let (green, _) = ready(&server, true, RECOVERED).await;
    let fires = settle(&schedules, &sql).await;
    tidegate_testkit::report(&format!(
        "network silent: red after {red:.1?}, green {green:.1?} after its end; occurrences {}, each recorded once",
        fires.len()
    ));
}

/// Connections that a firewall has forgotten, one by one, while new ones work: nobody says anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_go_silent_are_replaced() {
    let installation = Installation::on(&services()).await;
    let sql = installation.sql();
    let proxy = Proxy::before(installation.database.url()).await;
    let server = serve_through(&proxy, &installation).await;
    let schedules = Schedules::register(&sql, &PERIODS, Duration::from_secs(15)).await;
    let began = Instant::now();
    for _ in 0..3 {
        proxy.forget_connections();
        sleep(Duration::from_secs(4)).await;
    }
    let last = Instant::now();
    let (green, _) = ready(&server, true, RECOVERED).await;
    let fires = settle(&schedules, &sql).await;
    let late = latest(&fires);
    assert!(
        late < RECOVERED.as_secs_f64() + (last - began).as_secs_f64(),
        "{late:.1} s late"
    );
    tidegate_testkit::report(&format!(
        "connections forgotten three times: green {green:.1?} after, the latest occurrence {late:.1} s late; occurrences {}, \
         each recorded once; {} connections opened",
        fires.len(),
        proxy.opened()
    ));
}

/// Frozen, which looks like a network that swallows everything but goes on where it stood; then killed; then restarted in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_killed_and_restarted_postgres_is_survived() {
    let services = PrivateServices::start().await;
    let installation = Installation::on(services.services()).await;
    let sql = installation.sql();
    let server = installation.serve(&ROLES).await;
    server.wait_ready().await;
    let schedules = Schedules::register(&sql, &PERIODS, Duration::from_secs(20)).await;
    services.pause_postgres().await;
    let (frozen_red, why) = ready(&server, false, NOTICED).await;
    assert!(why.contains("no answer"), "{why}");
    services.resume_postgres().await;
    let (frozen_green, _) = ready(&server, true, RECOVERED).await;
    services.kill_postgres().await;
    let (killed_red, _) = ready(&server, false, NOTICED).await;
    services.start_postgres().await;
    let (killed_green, _) = ready(&server, true, RECOVERED).await;
    services.restart_postgres().await;
    let (restarted_green, _) = ready(&server, true, RECOVERED).await;
    let fires = settle(&schedules, &sql).await;
    tidegate_testkit::report(&format!(
        "Postgres frozen: red after {frozen_red:.1?}, green after {frozen_green:.1?}; killed: {killed_red:.1?}, \
         {killed_green:.1?}; restarted: green after {restarted_green:.1?}; occurrences {}, each recorded once",
        fires.len()
    ));
}

/// A standby takes over at another address. The old primary lives on, connections to it stand, and it refuses writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_at_a_fresh_address() {
    let services = PrivateServices::start().await;
    let installation = Installation::on(services.services()).await;
    let replica = Replica::of(services.services()).await;
    let proxy = Proxy::before(installation.database.url()).await;
    let server = serve_through(&proxy, &installation).await;
    let old = installation.sql();
    let schedules = Schedules::register(&old, &PERIODS, Duration::from_secs(15)).await;
    let began = (schedules.starts_at - chrono::Utc::now())
        .to_std()
        .unwrap_or_default();
    sleep(began + Duration::from_secs(2)).await;

    for order in [
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    ] {
        sqlx::query(order).execute(&old).await.unwrap();
    }
    let (red, why) = ready(&server, false, NOTICED).await;
    assert!(why.contains("read-only"), "{why}");
    replica.promote().await;
    proxy.lead_to(replica.url());
    let (green, _) = ready(&server, true, RECOVERED).await;
    let sql = PgPool::connect(&with_database(replica.url(), installation.database.url()))
        .await
        .unwrap();
    let fires = settle(&schedules, &sql).await;
    let on_the_old: i64 = sqlx::query_scalar("SELECT count(*) FROM tidegate.cron_fires")
        .fetch_one(&old)
        .await
        .unwrap();
    assert!(
        0 < on_the_old && on_the_old < fires.len() as i64,
        "both have recorded some"
    );
    let stays = timeout(Duration::from_secs(3), async {
        while server.readyz().await.0 == 200 {
            sleep(Duration::from_millis(200)).await;
        }
    });
    assert!(stays.await.is_err(), "it stays green");
    tidegate_testkit::report(&format!(
        "fail-over: read-only seen after {red:.1?}, green {green:.1?} after the new primary was there; occurrences {}, each recorded \
         once, {on_the_old} of them on the old one",
        fires.len()
    ));
}

/// `server` with the database of `url`.
fn with_database(server: &str, url: &str) -> String {
    let (server, _) = server.rsplit_once('/').unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    format!("{server}/{database}")
}
