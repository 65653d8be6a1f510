//! Starts the roles of `serve`: each a loop under `supervise`, registered with health first.
//!
//! May import: as `serve`.

use std::{convert::Infallible, sync::Arc};

use tokio::task::JoinSet;

use super::Shared;
use crate::{
    config::{Config, DigestFormat, Role},
    deadletter::{
        archivist::{Archivist, ArchivistSettings},
        digest::{self, DigestSettings, render::Format},
        keeping::{self, KeepingSettings},
        replay::{Replays, adopt},
    },
    ledger::PostgresLedger,
    router::{self, Router},
    scheduler::{
        claim::{self, ClaimSettings},
        relay::{self, RelaySettings},
        retention::{self, RetentionSettings},
    },
    store::retention::Kept,
    supervisor::supervise,
};

/// Starts one role. `build` has made what it needs; a role whose needs are missing isn't started, and as it is
/// registered with health first, readiness would say so.
pub(super) fn start(role: Role, config: &Config, shared: &Shared, roles: &mut JoinSet<()>) {
    let name = role.as_str();
    let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
    match role {
        Role::Scheduler => {
            health.expect(name);
            let Some(store) = shared.store.clone() else { return };
            let settings = ClaimSettings {
                batch: config.scheduler.batch,
                safety_scan: config.scheduler.scan_interval,
                ..ClaimSettings::default()
            };
            roles.spawn(async move {
                let run = || {
                    store.unless_lost(claim::run(
                        store.clone(),
                        settings.clone(),
                        health.clone(),
                        cancel.clone(),
                    ))
                };
                supervise(name, health.clone(), cancel.clone(), run).await;
            });
            prune(config, shared, roles);
        }
        Role::Relay => {
            health.expect(name);
            let (Some(store), Some(publisher)) = (shared.store.clone(), shared.publisher.clone()) else {
                return;
            };
            let defaults = RelaySettings::default();
            let settings = RelaySettings {
                batch: config.relay.batch,
                safety_scan: config.scheduler.scan_interval,
                // Rows stay locked that long, so not as long as a caller at a terminal would wait.
                confirm_limit: config.amqp.confirm_timeout.min(defaults.confirm_limit),
                limits: config.limits.envelope(),
            };
            roles.spawn(async move {
                let run = || {
                    store.unless_lost(relay::run(
                        store.clone(),
                        publisher.clone(),
                        settings.clone(),
                        health.clone(),
                        cancel.clone(),
                    ))
                };
                supervise(name, health.clone(), cancel.clone(), run).await;
            });
        }
        Role::Router => {
            let (Some(link), Some(publisher)) = (shared.link.clone(), shared.publisher.clone()) else {
                return;
            };
            let ledger = shared
                .store
                .clone()
                .map(|store| Arc::new(PostgresLedger::from(store)) as Arc<dyn router::Ledger>);
            let router = Router::new(link, publisher, config.limits.envelope(), ledger);
            health.expect(name);
            // Its three consumers come back by themselves and register with health one by one; a panic ends them all.
            roles.spawn(async move {
                let run = || {
                    let (router, health, cancel) = (router.clone(), health.clone(), cancel.clone());
                    async move {
                        health.up(name);
                        Box::pin(router.run(health, cancel)).await;
                        Ok::<(), Infallible>(())
                    }
                };
                supervise(name, health.clone(), cancel.clone(), run).await;
            });
        }
        Role::Archivist => {
            health.expect(name);
            let (Some(link), Some(store), Some(publisher)) =
                (shared.link.clone(), shared.store.clone(), &shared.publisher)
            else {
                return;
            };
            let settings = ArchivistSettings {
                batch: config.archive.batch,
                limits: config.limits.envelope(),
                ..ArchivistSettings::default()
            };
            adopt_replays(config, shared, roles);
            let archivist = Archivist::new(link, store, &publisher.topology().names, settings);
            roles.spawn(async move {
                let run = || {
                    let (archivist, health, cancel) = (archivist.clone(), health.clone(), cancel.clone());
                    async move { Box::pin(archivist.run(health, cancel)).await }
                };
                supervise(name, health.clone(), cancel.clone(), run).await;
            });
            keep_days(config, shared, roles);
        }
        Role::Monitor => monitor(config, shared, roles),
    }
}

/// Sends digests. Without a webhook there is nothing to do, and the role is well.
fn monitor(config: &Config, shared: &Shared, roles: &mut JoinSet<()>) {
    let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
    health.expect(digest::ROLE);
    let Some(webhook) = &config.digest.webhook else {
        health.up(digest::ROLE);
        return;
    };
    let Some(store) = shared.store.clone() else { return };
    let format = match config.digest.format {
        DigestFormat::Plain => Format::Plain,
        DigestFormat::Slack => Format::Slack,
        DigestFormat::Feishu => Format::Feishu,
        DigestFormat::DingTalk => Format::DingTalk,
    };
    let settings = DigestSettings {
        interval: config.digest.interval,
        ..DigestSettings::new(webhook.secret().clone(), format)
    };
    roles.spawn(async move {
        let run = || {
            store.unless_lost(digest::run(
                store.clone(),
                settings.clone(),
                health.clone(),
                cancel.clone(),
            ))
        };
        supervise(digest::ROLE, health.clone(), cancel.clone(), run).await;
    });
}

/// Whether a role can't work without the database.
pub(super) fn needs_database(config: &Config) -> bool {
    config.serve.roles.iter().any(|role| match role {
        Role::Scheduler | Role::Relay | Role::Archivist => true,
        Role::Monitor => config.digest.webhook.is_some(),
        Role::Router => false,
    })
}

/// Goes on with replays whose process is dead; goes with the archivist.
fn adopt_replays(config: &Config, shared: &Shared, roles: &mut JoinSet<()>) {
    let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
    let (Some(link), Some(store), Some(publisher)) = (
        shared.link.clone(),
        shared.store.clone(),
        shared.publisher.clone(),
    ) else {
        return;
    };
    let owner = format!("serve, process {}", std::process::id());
    let replays = Replays::new(store, publisher, link, config.limits.envelope(), owner);
    health.expect(adopt::ROLE);
    roles.spawn(async move {
        let run = || Box::pin(adopt::run(replays.clone(), health.clone(), cancel.clone()));
        supervise(adopt::ROLE, health.clone(), cancel.clone(), run).await;
    });
}

/// What is kept how long in the archive; goes with the archivist.
fn keep_days(config: &Config, shared: &Shared, roles: &mut JoinSet<()>) {
    let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
    let Some(store) = shared.store.clone() else { return };
    let settings = KeepingSettings {
        keep: config.retention.dead_letters,
        interval: config.retention.interval,
    };
    health.expect(keeping::ROLE);
    roles.spawn(async move {
        let run = || {
            store.unless_lost(keeping::run(
                store.clone(),
                settings.clone(),
                health.clone(),
                cancel.clone(),
            ))
        };
        supervise(keeping::ROLE, health.clone(), cancel.clone(), run).await;
    });
}

/// Goes with the scheduler: any number of instances may have it, and one at a time works.
fn prune(config: &Config, shared: &Shared, roles: &mut JoinSet<()>) {
    let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
    let Some(store) = shared.store.clone() else { return };
    let kept = &config.retention;
    let keep = [
        (Kept::Success, kept.success),
        (Kept::Failed, kept.failed),
        (Kept::Canceled, kept.canceled),
        (Kept::Unreported, kept.unreported),
        (Kept::CronFires, kept.cron_fires),
        (Kept::Executions, kept.executions),
    ];
    let settings = RetentionSettings {
        keep: keep
            .into_iter()
            .filter_map(|(kind, keep)| Some((kind, keep?)))
            .collect(),
        interval: kept.interval,
    };
    health.expect(retention::ROLE);
    roles.spawn(async move {
        let run = || {
            store.unless_lost(retention::run(
                store.clone(),
                settings.clone(),
                health.clone(),
                cancel.clone(),
            ))
        };
        supervise(retention::ROLE, health.clone(), cancel.clone(), run).await;
    });
}
