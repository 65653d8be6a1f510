//! What a URL leads to, without its password.
//!
//! May import: core, url.

use std::fmt::Display;

use secrecy::{ExposeSecret, SecretString};
use tidegate_core::doctor::{Part, reach::Target};
use url::Url;

/// The target of `url`, shown as `shown`. `inside` is the vhost.
pub fn of_url(part: Part, url: &SecretString, shown: &impl Display, inside: String) -> Option<Target> {
    let url = Url::parse(url.expose_secret()).ok()?;
    let by_scheme = match url.scheme() {
        "amqps" => 5671,
        "https" => 443,
        "http" => 80,
        _ => 5672,
    };
    // Without a user the client takes RabbitMQ's own default.
    let user = match url.username() {
        "" => "guest",
        user => user,
    };
    Some(Target {
        part,
        place: shown.to_string(),
        host: url.host_str()?.trim_matches(['[', ']']).to_owned(),
        port: url.port().unwrap_or(by_scheme),
        user: user.to_owned(),
        inside,
    })
}
