//! Settings, read once at the start: flags over environment over file over defaults.
//!
//! May import: `core`. Everything else gets its section handed in and never reads the environment.
//! Every key that is not known is an error, and no message repeats a secret.

pub mod fields;
pub mod kind;
pub mod layers;
pub mod print;
mod sections;
pub mod url;

use std::path::PathBuf;

use toml::{Table, Value};

pub use self::{
    layers::{Outside, Setting, Settings, Source},
    sections::{
        Amqp, Config, Database, Digest, DigestFormat, Http, Limits, Log, LogFormat, Metrics, Relay,
        Retention, Role, Scheduler, Serve, Topology,
    },
};

/// Why the settings can't be used. All are mistakes of whoever runs the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file that can't be read.
    #[error("{}: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file that is no TOML.
    #[error("{}, line {line}: {why}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// A key that does not exist.
    #[error("unknown setting {key:?} in {place}: known are {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        place: String,
        /// Keys of its section, or the sections.
        known: String,
    },
    /// A variable that looks like a setting and is none.
    #[error("unknown setting in the environment variable {name}: known are {known}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// Variables of its section.
        known: String,
    },
    /// A value that its setting doesn't take.
    #[error("{key} (from {place}): {why}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// Where the value is from.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// A secret in the process list.
    #[error("{key} is a secret and can't be given on the command line: use {env} or {env}_FILE")]
    SecretOnCommandLine {
        /// The key.
        key: &'static str,
        /// Its variable.
        env: &'static str,
    },
    /// A secret given both ways.
    #[error("{key} is given twice, by {place} and as a file by {other}: keep one of them")]
    TwoSecrets {
        /// The key.
        key: &'static str,
        /// Where the value is from.
        place: String,
        /// Where the file's path is from.
        other: String,
    },
    /// A setting that this command needs.
    #[error("{key} is not set: set {env}, or {env}_FILE, or {key} in tidegate.toml")]
    Missing {
        /// The key.
        key: &'static str,
        /// Its variable.
        env: &'static str,
    },
    /// An open listener without authentication.
    #[error(
        "http.listen is {0}, which other machines can reach, and no token guards it: listen on 127.0.0.1, or set http.insecure_bind (TIDEGATE_HTTP_INSECURE_BIND=true) where the network is trusted"
    )]
    OpenBind(std::net::SocketAddr),
    /// The table of settings and the types disagree.
    #[error("settings don't fit their types, which is a bug of tidegate: {0}")]
    Internal(String),
}

/// The settings and where each is from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings as types.
    pub config: Config,
    /// The settings as written, with their sources.
    pub settings: Settings,
}

/// Reads all layers into types.
pub fn load(outside: &Outside) -> Result<Loaded, ConfigError> {
    let settings = layers::merge(outside)?;
    let mut root = Table::new();
    for field in fields::FIELDS {
        let (section, name) = field.section_and_name();
        let entry = root.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let (Value::Table(table), Some(setting)) = (entry, settings.get(field.key)) {
            table.insert(name.to_owned(), setting.value.clone());
        }
    }
    let config: Config = Value::Table(root)
        .try_into()
        .map_err(|why: toml::de::Error| ConfigError::Internal(why.message().to_owned()))?;
    if !config.http.listen.ip().is_loopback() && !config.http.insecure_bind {
        return Err(ConfigError::OpenBind(config.http.listen));
    }
    Ok(Loaded { config, settings })
}

#[cfg(test)]
mod tests;
