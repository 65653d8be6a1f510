//! What values a setting takes, and how each is read from a text or from the file.
//!
//! May import: `url`. Messages never repeat the value of a secret.

use std::{net::SocketAddr, time::Duration};

use toml::Value;

use super::url::{AmqpUrl, DatabaseUrl, ManagementUrl, WebhookUrl};

/// Written where nothing is to be deleted.
pub(super) const NEVER: &str = "never";

/// A kind of value with its limits.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// URL of the broker; secret.
    AmqpUrl,
    /// URL of the broker's management API; secret.
    ManagementUrl,
    /// URL of the database; secret.
    DatabaseUrl,
    /// URL of a webhook; secret.
    WebhookUrl,
    /// Path of a file or directory.
    Path,
    /// Any text.
    Text,
    /// `host:port` with a numeric host.
    Address,
    /// A whole number.
    Count {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A span of time such as `500ms`, `10s` or `90d`.
    Duration {
        /// Shortest, in milliseconds.
        min: u64,
        /// Longest, in milliseconds.
        max: u64,
    },
    /// How long something is kept: as a duration, or `never` for never deleted.
    Keep {
        /// Longest, in milliseconds.
        max: u64,
    },
    /// One of some names.
    Choice(&'static [&'static str]),
    /// Some of some names.
    List(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
}

impl Kind {
    /// Whether the value must never be shown.
    pub fn is_secret(self) -> bool {
        matches!(
            self,
            Self::AmqpUrl | Self::ManagementUrl | Self::DatabaseUrl | Self::WebhookUrl
        )
    }

    /// Reads `raw`: a text from the environment or the command line, or any value from the file. The error says
    /// what is wrong and what would be right.
    pub fn read(self, raw: &Value) -> Result<Value, String> {
        match self {
            Self::AmqpUrl => AmqpUrl::parse(text(raw)?)
                .map(|_| raw.clone())
                .map_err(|e| e.to_string()),
            Self::ManagementUrl => ManagementUrl::parse(text(raw)?)
                .map(|_| raw.clone())
                .map_err(|e| e.to_string()),
            Self::DatabaseUrl => DatabaseUrl::parse(text(raw)?)
                .map(|_| raw.clone())
                .map_err(|e| e.to_string()),
            Self::WebhookUrl => WebhookUrl::parse(text(raw)?)
                .map(|_| raw.clone())
                .map_err(|e| e.to_string()),
            Self::Path | Self::Text => match text(raw)? {
                "" => Err("is empty".to_owned()),
                given => Ok(Value::from(given)),
            },
            Self::Address => match text(raw)?.parse::<SocketAddr>() {
                Ok(address) => Ok(Value::from(address.to_string())),
                Err(_) => Err(format!(
                    "{raw} is not an address such as \"127.0.0.1:8080\" or \"[::1]:8080\""
                )),
            },
            Self::Count { min, max } => {
                let count = match raw {
                    Value::Integer(count) => Some(*count),
                    Value::String(given) => given.trim().parse().ok(),
                    _ => None,
                };
                match count {
                    Some(count) if (min..=max).contains(&count) => Ok(Value::from(count)),
                    _ => Err(format!("{raw} is not a whole number from {min} to {max}")),
                }
            }
            Self::Duration { min, max } => {
                let given = match raw {
                    Value::String(given) => given.trim(),
                    _ => {
                        return Err(format!(
                            "{raw} has no unit: write a text such as \"10s\" or \"500ms\""
                        ));
                    }
                };
                let span = humantime::parse_duration(given).map_err(|_| {
                    format!("{raw} is not a span of time such as \"500ms\", \"10s\" or \"90d\"")
                })?;
                let (min, max) = (Duration::from_millis(min), Duration::from_millis(max));
                if span < min || span > max {
                    return Err(format!(
                        "{raw} is not between {} and {}",
                        humantime::format_duration(min),
                        humantime::format_duration(max)
                    ));
                }
                Ok(Value::from(given))
            }
            Self::Keep { max } => match raw {
                Value::String(given) if given.trim() == NEVER => Ok(Value::from(NEVER)),
                _ => Self::Duration { min: 0, max }
                    .read(raw)
                    .map_err(|why| format!("{why}, nor {NEVER:?}")),
            },
            Self::Choice(names) => {
                let given = text(raw)?.trim();
                if names.contains(&given) {
                    return Ok(Value::from(given));
                }
                Err(format!("{raw} is not one of {}", names.join(", ")))
            }
            Self::List(names) => {
                let given: Vec<String> = match raw {
                    Value::String(given) => given.split(',').map(|name| name.trim().to_owned()).collect(),
                    Value::Array(given) => given
                        .iter()
                        .map(|v| text(v).map(str::to_owned))
                        .collect::<Result<_, _>>()?,
                    _ => return Err(format!("{raw} is not a list of names")),
                };
                if let Some(unknown) = given.iter().find(|name| !names.contains(&name.as_str())) {
                    return Err(format!("{unknown:?} is not one of {}", names.join(", ")));
                }
                if given.is_empty() {
                    return Err(format!("is empty: name at least one of {}", names.join(", ")));
                }
                Ok(Value::from(given))
            }
            Self::Switch => match raw {
                Value::Boolean(_) => Ok(raw.clone()),
                Value::String(given) if given == "true" || given == "false" => {
                    Ok(Value::from(given == "true"))
                }
                _ => Err(format!("{raw} is neither true nor false")),
            },
        }
    }
}

fn text(raw: &Value) -> Result<&str, String> {
    // The value is not repeated: it may be a secret of the wrong type.
    raw.as_str()
        .ok_or_else(|| format!("is a {} where a text is needed", raw.type_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_their_limits_are_refused_with_the_limit() {
        let count = Kind::Count { min: 1, max: 64 };
        assert_eq!(count.read(&Value::from("2")), Ok(Value::from(2)));
        assert_eq!(
            count.read(&Value::from(0)).unwrap_err(),
            "0 is not a whole number from 1 to 64"
        );
        assert_eq!(
            count.read(&Value::from("many")).unwrap_err(),
            "\"many\" is not a whole number from 1 to 64"
        );
        let span = Kind::Duration {
            min: 100,
            max: 10_000,
        };
        assert_eq!(span.read(&Value::from("500ms")), Ok(Value::from("500ms")));
        assert!(span.read(&Value::from(5)).unwrap_err().contains("has no unit"));
        assert_eq!(
            span.read(&Value::from("1h")).unwrap_err(),
            "\"1h\" is not between 100ms and 10s"
        );
        assert!(span.read(&Value::from("-1s")).is_err());
    }

    #[test]
    fn what_is_kept_may_be_kept_for_ever() {
        let keep = Kind::Keep { max: 1_000 };
        for good in ["never", "500ms", "0s"] {
            assert_eq!(keep.read(&Value::from(good)), Ok(Value::from(good)));
        }
        for bad in [Value::from("2s"), Value::from("ever"), Value::from(0)] {
            assert!(keep.read(&bad).unwrap_err().contains("never"), "{bad}");
        }
    }

    #[test]
    fn lists_come_as_text_or_array() {
        let list = Kind::List(&["relay", "router"]);
        let both = Value::from(vec!["relay", "router"]);
        assert_eq!(list.read(&Value::from("relay, router")), Ok(both.clone()));
        assert_eq!(list.read(&both), Ok(both));
        assert_eq!(
            list.read(&Value::from("relay,api")).unwrap_err(),
            "\"api\" is not one of relay, router"
        );
        assert!(list.read(&Value::from("")).is_err());
    }

    #[test]
    fn switches_and_addresses() {
        assert_eq!(Kind::Switch.read(&Value::from("true")), Ok(Value::from(true)));
        assert!(Kind::Switch.read(&Value::from("yes")).is_err());
        assert!(
            Kind::Address
                .read(&Value::from("localhost"))
                .unwrap_err()
                .contains("127.0.0.1:8080")
        );
    }
}
