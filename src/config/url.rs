//! The URLs that hold credentials. Each is checked when it is read, shown without its secret, and given whole
//! only to whoever asks for it by name.
//!
//! May import: nothing of ours. No message repeats any part of a URL that could be a credential.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

/// What stands for a secret in anything shown.
pub const MASK: &str = "***";

/// Schemes that are worth naming when they are wrong; any other text before the colon may be a credential.
const WELL_KNOWN: &[&str] = &[
    "http",
    "https",
    "redis",
    "rediss",
    "mysql",
    "postgres",
    "postgresql",
    "amqp",
    "amqps",
    "tcp",
    "stomp",
    "mqtt",
];

/// Why a text is no URL of the broker, of its management API or of the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL at all.
    #[error(
        "is not a URL ({0}): write it as {1}, with special characters of user and password percent-encoded (\"@\" as %40, \"/\" as %2F, \"#\" as %23)"
    )]
    Malformed(String, &'static str),
    /// Another protocol.
    #[error("{0}: write it as {1}")]
    Scheme(String, &'static str),
    /// No host.
    #[error("names no host: write it as {0}")]
    NoHost(&'static str),
    /// An IPv6 literal, which the AMQP client would silently replace by `localhost`.
    #[error("has an IPv6 literal as its host, which the AMQP client can't use: give a host name")]
    Ipv6,
    /// `amqp://host/`.
    #[error("names the empty vhost: leave out the \"/\" at the end for the default vhost, or write %2F")]
    EmptyVhost,
    /// `amqp://host/a/b`.
    #[error("has more than one \"/\" after the host: write a \"/\" within the vhost's name as %2F")]
    SlashInVhost,
    /// The vhost is no UTF-8.
    #[error("has a vhost that is not UTF-8 after percent-decoding")]
    BadVhost,
    /// No database name.
    #[error("names no database: write it as {0}")]
    NoDatabase(&'static str),
}

const AMQP_SHAPE: &str = "amqp://USER:PASSWORD@HOST:5672/VHOST";
const MANAGEMENT_SHAPE: &str = "http://USER:PASSWORD@HOST:15672";
const WEBHOOK_SHAPE: &str = "https://HOST/PATH";
const DATABASE_SHAPE: &str = "postgres://USER:PASSWORD@HOST:5432/DATABASE";

/// URL of the broker. `Debug` and `Display` show it without its password.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct AmqpUrl {
    secret: SecretString,
    shown: String,
}

/// URL of the database. `Debug` and `Display` show it without its password.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct DatabaseUrl {
    secret: SecretString,
    shown: String,
}

/// URL of the broker's management API. `Debug` and `Display` show it without its password.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct ManagementUrl {
    secret: SecretString,
    shown: String,
}

/// URL of a webhook. `Debug` and `Display` show scheme and host only: whoever knows the rest may post there.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct WebhookUrl {
    secret: SecretString,
    shown: String,
}

impl WebhookUrl {
    /// Checks `text`: scheme and host.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = parse(text, WEBHOOK_SHAPE, &["http", "https"])?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or(UrlError::NoHost(WEBHOOK_SHAPE))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self {
            shown: format!("{}://{host}{port}/{MASK}", url.scheme()),
            secret: text.into(),
        })
    }

    /// The whole URL, for the client that posts.
    pub fn secret(&self) -> &SecretString {
        &self.secret
    }
}

impl AmqpUrl {
    /// Checks `text`: scheme, host and vhost.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = parse(text, AMQP_SHAPE, &["amqp", "amqps"])?;
        match url.host() {
            Some(url::Host::Ipv6(_)) => return Err(UrlError::Ipv6),
            Some(url::Host::Domain("")) | None => return Err(UrlError::NoHost(AMQP_SHAPE)),
            Some(_) => {}
        }
        match url.path().strip_prefix('/') {
            Some("") => return Err(UrlError::EmptyVhost),
            Some(vhost) if vhost.contains('/') => return Err(UrlError::SlashInVhost),
            Some(vhost) if decoded(vhost).is_none() => return Err(UrlError::BadVhost),
            _ => {}
        }
        Ok(Self {
            shown: masked(url),
            secret: text.into(),
        })
    }

    /// The vhost it names; the default one is `/`.
    pub fn vhost(&self) -> String {
        let vhost = Url::parse(self.expose())
            .ok()
            .and_then(|url| url.path().strip_prefix('/').and_then(decoded));
        vhost
            .filter(|vhost| !vhost.is_empty())
            .unwrap_or_else(|| "/".to_owned())
    }

    /// The URL with its credentials, for the client that connects.
    pub fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// [`secret`](Self::secret) as text.
    pub fn expose(&self) -> &str {
        self.secret.expose_secret()
    }
}

impl ManagementUrl {
    /// Checks `text`: scheme and host.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = parse(text, MANAGEMENT_SHAPE, &["http", "https"])?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(UrlError::NoHost(MANAGEMENT_SHAPE));
        }
        Ok(Self {
            shown: masked(url),
            secret: text.into(),
        })
    }

    /// The URL with its credentials, for the client that connects.
    pub fn secret(&self) -> &SecretString {
        &self.secret
    }
}

impl DatabaseUrl {
    /// Checks `text`: scheme and database.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = parse(text, DATABASE_SHAPE, &["postgres", "postgresql"])?;
        // A host may be absent: `postgres:///name?host=/run/postgresql` is a Unix socket.
        let named = url.path().trim_start_matches('/');
        if named.is_empty() && !url.query_pairs().any(|(key, _)| key == "dbname") {
            return Err(UrlError::NoDatabase(DATABASE_SHAPE));
        }
        Ok(Self {
            shown: masked(url),
            secret: text.into(),
        })
    }

    /// The URL with its credentials, for the client that connects.
    pub fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// [`secret`](Self::secret) as text.
    pub fn expose(&self) -> &str {
        self.secret.expose_secret()
    }
}

fn parse(text: &str, shape: &'static str, schemes: &[&str]) -> Result<Url, UrlError> {
    let url = Url::parse(text).map_err(|why| UrlError::Malformed(why.to_string(), shape))?;
    if schemes.contains(&url.scheme()) {
        return Ok(url);
    }
    let allowed = schemes.join("\" or \"");
    let why = if WELL_KNOWN.contains(&url.scheme()) {
        format!("has the scheme \"{}\", not \"{allowed}\"", url.scheme())
    } else {
        format!("has no scheme \"{allowed}\"")
    };
    Err(UrlError::Scheme(why, shape))
}

/// The URL with a mask for its password, and without its query: a query can hold passwords too.
fn masked(mut url: Url) -> String {
    // Neither can fail: a URL that has a password has a host.
    if url.password().is_some() {
        let _ = url.set_password(Some(MASK));
    }
    let query = url.query().is_some();
    url.set_query(None);
    url.set_fragment(None);
    if query {
        format!("{url}?{MASK}")
    } else {
        url.to_string()
    }
}

/// `text` without percent-encoding, where that is UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = (rest.next().map(char::from), rest.next().map(char::from));
        match digits {
            (Some(a), Some(b)) => match (a.to_digit(16), b.to_digit(16)) {
                (Some(a), Some(b)) => bytes.push((a * 16 + b) as u8),
                _ => return None,
            },
            _ => return None,
        }
    }
    String::from_utf8(bytes).ok()
}

macro_rules! shown {
    ($url:ty) => {
        impl TryFrom<String> for $url {
            type Error = UrlError;

            fn try_from(text: String) -> Result<Self, UrlError> {
                Self::parse(&text)
            }
        }

        impl fmt::Display for $url {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.shown)
            }
        }

        impl fmt::Debug for $url {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.shown)
            }
        }
    };
}

shown!(AmqpUrl);
shown!(ManagementUrl);
shown!(DatabaseUrl);
shown!(WebhookUrl);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_has_no_password() {
        let url = AmqpUrl::parse("amqp://tide:s3cret@mq.internal:5673/orders?heartbeat=10").unwrap();
        assert_eq!(url.to_string(), "amqp://tide:***@mq.internal:5673/orders?***");
        assert_eq!(format!("{url:?}"), url.to_string());
        assert!(url.expose().contains("s3cret"));
        assert_eq!(url.vhost(), "orders");
        assert_eq!(AmqpUrl::parse("amqp://mq").unwrap().vhost(), "/");
        assert_eq!(AmqpUrl::parse("amqp://mq/a%2Fb").unwrap().vhost(), "a/b");
        let url = ManagementUrl::parse("http://tide:s3cret@mq:15672/rabbit").unwrap();
        assert_eq!(url.to_string(), "http://tide:***@mq:15672/rabbit");
        assert!(ManagementUrl::parse("amqp://tide:s3cret@mq").is_err());
        let url = WebhookUrl::parse("https://u:s3cret@hooks.example.com:8443/T0/s3cret?access_token=s3cret")
            .unwrap();
        assert_eq!(url.to_string(), "https://hooks.example.com:8443/***");
        for bad in ["file:///s3cret", "ftp://hooks/s3cret", "s3cret", "https://"] {
            let why = WebhookUrl::parse(bad).unwrap_err().to_string();
            assert!(!why.contains("s3cret"), "{why}");
        }
        let url = DatabaseUrl::parse("postgres:///ledger?host=/run/postgresql&password=s3cret").unwrap();
        assert_eq!(url.to_string(), "postgres:///ledger?***");
    }

    #[test]
    fn every_refusal_says_why_and_repeats_no_credential() {
        for (given, why) in [
            (
                "http://tide:s3cret@mq:15672",
                "has the scheme \"http\", not \"amqp\" or \"amqps\"",
            ),
            ("tide:s3cret@mq:5672", "has no scheme \"amqp\" or \"amqps\""),
            ("s3cret:tide@mq", "has no scheme"),
            ("mq:5672", "has no scheme"),
            ("s3cret", "is not a URL"),
            ("amqp://tide:s3cret/x@mq:5672", "is not a URL"),
            ("amqp://tide:s3cret@mq:5672/", "empty vhost"),
            ("amqp://tide:s3cret@mq:5672/a/b", "as %2F"),
            ("amqp://tide:s3cret@mq:5672/%ff", "not UTF-8"),
            ("amqp://tide:s3cret@mq:99999/a", "is not a URL"),
            ("amqp://tide:s3cret@[::1]:5672/a", "IPv6"),
            ("amqp:///a", "no host"),
        ] {
            let error = AmqpUrl::parse(given).unwrap_err().to_string();
            assert!(error.contains(why), "{given}: {error}");
            assert!(!error.contains("s3cret"), "{given}: {error}");
        }
        let error = DatabaseUrl::parse("postgres://tide:s3cret@db")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("names no database") && !error.contains("s3cret"),
            "{error}"
        );
        for ok in [
            "amqp://mq",
            "amqp://u:p@mq/%2F",
            "amqps://u:p@mq:5671/orders",
            "amqp://u:p@10.0.0.1/v",
        ] {
            AmqpUrl::parse(ok).unwrap();
        }
    }
}
