//! A virtual host that exists for one run of a command.
//!
//! May import: `management`. Its name ends in a UUID v7 and so carries its age: what a killed run left behind is deleted by a
//! later one of the same purpose, an hour after it was made.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::Connection;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};
use url::Url;
use uuid::Uuid;

use super::{
    BrokerSettings,
    connection::{self, LinkError},
    management::{Management, ManagementError, encode},
};

/// Longest time until a new virtual host takes connections.
const START: Duration = Duration::from_secs(10);
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// Deleting takes a while with hundreds of queues, and the answer may not come in time.
const DELETE_ATTEMPTS: usize = 3;

/// The throw-away virtual host.
pub(crate) struct Throwaway {
    pub(crate) management: Management,
    pub(crate) settings: BrokerSettings,
}

#[derive(Deserialize)]
struct Row {
    name: String,
}

impl Throwaway {
    /// Makes it for `purpose`, one word, and lets the AMQP user of `settings` do everything in it.
    pub(crate) async fn create(
        management: &Management,
        settings: &BrokerSettings,
        purpose: &str,
    ) -> Result<Self, ManagementError> {
        let name = format!("{}{}", prefix(management, purpose), Uuid::now_v7());
        let (url, user) = in_vhost(&settings.url, &name);
        let settings = BrokerSettings {
            url,
            publish_connections: 1,
            ..settings.clone()
        };
        let made = Self {
            management: management.in_vhost(&name),
            settings,
        };
        let about = json!({"description": format!("tidegate {purpose}; can be deleted"), "tags": "tidegate"});
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        let vhost = format!("vhosts/{}", encode(&name));
        let permissions = format!("permissions/{}/{}", encode(&name), encode(&user));
        let ready = async {
            management.put(&vhost, &about).await?;
            management.put(&permissions, &all).await
        };
        match ready.await {
            Ok(()) => Ok(made),
            Err(error) => {
                // It may have been made all the same.
                if !matches!(error, ManagementError::Denied { .. }) {
                    let _ = made.delete().await;
                }
                Err(error)
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.management.vhost()
    }

    /// Connects to it. A new virtual host takes a moment to be there on every node.
    pub(crate) async fn connect(&self, purpose: &'static str) -> Result<Connection, LinkError> {
        let patience = Instant::now() + START;
        loop {
            match connection::connect(&self.settings, purpose).await {
                Err(LinkError::Broker(_)) if Instant::now() < patience => sleep(START / 20).await,
                result => return result,
            }
        }
    }

    /// Deletes it with all that is in it.
    pub(crate) async fn delete(&self) -> Result<(), ManagementError> {
        let mut result = Ok(());
        for _ in 0..DELETE_ATTEMPTS {
            result = self
                .management
                .delete(&format!("vhosts/{}", self.management.v()))
                .await;
            if !matches!(result, Err(ManagementError::Unavailable { .. })) {
                break;
            }
        }
        result
    }
}

/// Deletes what earlier runs for `purpose` left behind beside this virtual host; says how many.
pub(crate) async fn sweep(management: &Management, purpose: &str) -> Result<u64, ManagementError> {
    let all: Vec<Row> = management.get("vhosts?columns=name").await?;
    let (prefix, mut swept) = (prefix(management, purpose), 0);
    for Row { name } in all {
        if name
            .strip_prefix(&prefix)
            .is_some_and(|id| is_old(id, SystemTime::now()))
        {
            management.delete(&format!("vhosts/{}", encode(&name))).await?;
            swept += 1;
        }
    }
    Ok(swept)
}

fn prefix(management: &Management, purpose: &str) -> String {
    format!("{}.{purpose}.", management.vhost())
}

fn is_old(id: &str, now: SystemTime) -> bool {
    let made = Uuid::try_parse(id).ok().and_then(|id| id.get_timestamp());
    made.is_some_and(|made| {
        let made = UNIX_EPOCH + Duration::from_secs(made.to_unix().0);
        now.duration_since(made).is_ok_and(|age| age > LEFT_BEHIND)
    })
}

/// The AMQP URI for another virtual host, and the user in it.
fn in_vhost(url: &SecretString, vhost: &str) -> (SecretString, String) {
    let Ok(mut parsed) = Url::parse(url.expose_secret()) else {
        return (url.clone(), String::new());
    };
    parsed.set_path(&encode(vhost));
    let pairs = format!("x={}", parsed.username().replace('+', "%2B"));
    let user = url::form_urlencoded::parse(pairs.as_bytes()).next();
    let user = user
        .map(|(_, user)| user.into_owned())
        .filter(|user| !user.is_empty());
    (
        parsed.to_string().into(),
        user.unwrap_or_else(|| "guest".to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_keeps_all_but_the_vhost() {
        let (url, user) = in_vhost(
            &"amqp://a%40b:p%2Fw@host:5673/%2f?heartbeat=5".to_owned().into(),
            "/.verify.1",
        );
        assert_eq!(
            url.expose_secret(),
            "amqp://a%40b:p%2Fw@host:5673/%2F.verify.1?heartbeat=5"
        );
        assert_eq!(user, "a@b");
        let (url, user) = in_vhost(&"amqp://host".to_owned().into(), "x");
        assert_eq!((url.expose_secret(), user.as_str()), ("amqp://host/x", "guest"));
    }

    #[test]
    fn only_what_is_old_is_left_behind() {
        let id = Uuid::now_v7().to_string();
        let later = |minutes: u64| SystemTime::now() + Duration::from_secs(60 * minutes);
        assert!(is_old(&id, later(61)) && !is_old(&id, later(59)) && !is_old("orders", later(61)));
        assert!(!is_old(&Uuid::new_v4().to_string(), later(61)));
    }
}
