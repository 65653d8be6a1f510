//! Many queues: how long a plan takes, and an `apply` that dies in the middle.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use secrecy::SecretString;
use tidegate::{
    broker::{declare, management::Management},
    topology::{Topology, Value, plan},
};
use tidegate_testkit::{Process, report, services};

use super::Site;

fn team(queues: usize) -> String {
    (0..queues).fold(String::new(), |mut text, n| {
        let _ = writeln!(
            text,
            "[[queue]]\nname = \"q{n}.queue\"\nbind = [\"q{n}.#\"]\nowner = \"o\""
        );
        text
    })
}

/// The queues are classic, because 2,000 Raft groups take minutes; so each is a conflict, which is the most a plan can have to say.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_over_2000_queues_takes_little_beyond_the_listing() {
    let team = team(2_000);
    let topology = Topology::parse(&[("platform.toml", ""), ("team.toml", &team)]).unwrap();
    let site = Site::new(&team).await;
    let mut objects = topology.objects();
    for queue in &mut objects.queues {
        queue.arguments.clear();
        queue
            .arguments
            .insert("x-queue-type", Value::Text("classic".to_owned()));
    }
    let (connection, _) = site.client().await;
    declare::apply(&connection, &objects, |_| ()).await.unwrap();
    connection.close(200, "done".into()).await.unwrap();

    let url = SecretString::from(services().management);
    let management = Management::new(&url, site.vhost.name(), Duration::from_secs(60)).unwrap();
    let started = Instant::now();
    let live = management.read_live().await.unwrap();
    let listing = started.elapsed();
    let wanted = topology.objects();
    let started = Instant::now();
    let planned = plan::plan(&wanted, &live, &topology.scope("v", &live));
    let deciding = started.elapsed();
    assert_eq!(planned.counts().conflict, wanted.queues.len());
    assert_eq!(planned.counts().add, 0);
    let started = Instant::now();
    let ran = site.run(&["topology", "plan"]);
    assert_eq!(ran.code, 3);
    report(&format!(
        "a plan over {} queues and {} bindings: {listing:.2?} to list, {deciding:.2?} to decide, {:.2?} for the whole command \
         (debug build)",
        live.queues.len(),
        live.bindings.len(),
        started.elapsed(),
    ));
    // A tenth of the goal would fit a release build; this only catches what is quadratic.
    assert!(deciding < Duration::from_secs(60), "{deciding:?}");
    site.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_killed_in_the_middle_is_finished_by_the_next() {
    // With the ladder and the platform's own this makes 500 quorum queues.
    let site = Site::new(&team(500 - 110)).await;
    let mut command = site.tidegate.command(&["topology", "apply"]);
    let started = Instant::now();
    let mut first = Process::start("topology apply", &mut command);
    first.printed(Duration::from_secs(120), "declared ").await;
    first.printed(Duration::from_secs(120), " …").await;
    assert!(first.is_running(), "killed too late: {}", first.output());
    first.kill();
    let killed = started.elapsed();
    let there = site.vhost.management().queues().await.len();
    assert!(there < 500, "{there}");
    let ran = site.run(&["topology", "apply", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains(" of "), "progress is shown: {}", ran.stderr);
    report(&format!(
        "apply of 500 quorum queues: killed after {killed:.1?} with {there} queues there, finished in {} ms",
        ran.json()["elapsedMs"]
    ));
    site.settled(&[]).await;
    site.vhost.close().await;
}
