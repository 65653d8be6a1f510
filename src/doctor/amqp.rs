//! The broker by AMQP: does it let us in, and what is missing there?
//!
//! May import: `broker`, `topology`, core.

use tidegate_core::doctor::{
    Finding, Part, Report,
    reach::{Target, Unreached},
};

use super::{ANSWER, network};
use crate::{
    broker::{
        BrokerSettings,
        connection::{self, Connection},
        declare, refusal,
    },
    topology::{ObjectName, Objects},
};

/// What an AMQP client says first.
const HELLO: &[u8] = b"AMQP\x00\x00\x09\x01";

/// The open connection, if there is one.
pub(super) async fn look(
    broker: &Option<(Target, BrokerSettings)>,
    report: &mut Report,
) -> Option<Connection> {
    let Some((target, settings)) = broker else {
        report.unseen("the broker by AMQP", "AMQP_URL (amqp.url) is not set");
        return None;
    };
    match enter(target, settings).await {
        Ok(connection) => {
            let what = format!(
                "RabbitMQ lets user {:?} into vhost {:?}",
                target.user, target.inside
            );
            report.push(Finding::ok(Part::Broker, "login", what, target.place.as_str()));
            Some(connection)
        }
        Err(why) => {
            report.push(target.unreached(&why));
            None
        }
    }
}

async fn enter(target: &Target, settings: &BrokerSettings) -> Result<Connection, Unreached> {
    network::reach(target).await?;
    let settings = BrokerSettings {
        connect_timeout: settings.connect_timeout.min(ANSWER),
        ..settings.clone()
    };
    match connection::connect(&settings, "doctor").await {
        Ok(connection) => Ok(connection),
        Err(error) => {
            let why = refusal::of(&error);
            let is_plain = target.place.starts_with("amqp://");
            let odd = matches!(
                why,
                Unreached::OtherProtocol | Unreached::Dropped | Unreached::Other(_) | Unreached::Silent(_)
            );
            if is_plain && odd && network::speaks_tls(target, HELLO).await {
                return Err(Unreached::WantsTls);
            }
            Err(why)
        }
    }
}

/// Exchanges and queues that don't exist.
pub(super) async fn missing(connection: &Connection, wanted: &Objects) -> Result<Vec<ObjectName>, String> {
    declare::missing(connection, wanted)
        .await
        .map_err(|error| error.to_string())
}
