//! Puts the four layers on top of each other: flags over environment over file over defaults. What comes out knows,
//! for each setting, where its value is from.
//!
//! May import: `fields`, `kind`. Reads files; the environment and the flags are handed in.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use super::{
    ConfigError,
    fields::{FIELDS, Field},
};

/// Where the file is looked for when nothing names one.
pub const SEARCH: [&str; 2] = ["tidegate.toml", "/etc/tidegate/tidegate.toml"];

/// Longest secret file that is read, in bytes.
const MAX_SECRET_BYTES: u64 = 16 * 1024;

/// Where a value is from, lowest layer first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Built in.
    Default,
    /// The file.
    File(PathBuf),
    /// An environment variable.
    Env(&'static str),
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Env(name) => f.write_str(name),
            Self::Flag => f.write_str("command line"),
        }
    }
}

/// What the outside says, apart from the file itself.
#[derive(Clone, Default)]
pub struct Outside {
    /// The file to read; `None` looks in [`SEARCH`].
    pub file: Option<PathBuf>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Settings from the command line: key and value.
    pub flags: Vec<(String, String)>,
}

impl fmt::Debug for Outside {
    // The environment holds secrets, ours and others'.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// The value of one setting and where it is from.
#[derive(Clone)]
pub struct Setting {
    /// The value, in its canonical form.
    pub value: Value,
    /// Where it is from.
    pub source: Source,
}

impl fmt::Debug for Setting {
    // The value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// All settings that have a value, by key.
pub type Settings = BTreeMap<&'static str, Setting>;

/// Reads all layers.
pub fn merge(outside: &Outside) -> Result<Settings, ConfigError> {
    let mut settings = Settings::new();
    for field in FIELDS {
        if let Some(default) = field.default {
            set(&mut settings, field, &Value::from(default), Source::Default)?;
        }
    }
    if let Some(path) = file_to_read(outside)? {
        from_file(&mut settings, &path)?;
    }
    from_env(&mut settings, &outside.env)?;
    for (key, value) in &outside.flags {
        let field = Field::find(key).ok_or_else(|| ConfigError::UnknownKey {
            key: key.clone(),
            place: Source::Flag.to_string(),
            known: keys_like(key),
        })?;
        if field.kind.is_secret() {
            return Err(ConfigError::SecretOnCommandLine {
                key: field.key,
                env: field.env,
            });
        }
        set(&mut settings, field, &Value::from(value.as_str()), Source::Flag)?;
    }
    read_secret_files(&mut settings)?;
    Ok(settings)
}

fn set(
    settings: &mut Settings,
    field: &'static Field,
    raw: &Value,
    source: Source,
) -> Result<(), ConfigError> {
    let value = field.kind.read(raw).map_err(|why| {
        // Some kinds quote what they were given; a secret's kind never does.
        ConfigError::BadValue {
            key: field.key,
            place: source.to_string(),
            why,
        }
    })?;
    settings.insert(field.key, Setting { value, source });
    Ok(())
}

fn file_to_read(outside: &Outside) -> Result<Option<PathBuf>, ConfigError> {
    if let Some(named) = &outside.file {
        return Ok(Some(named.clone()));
    }
    for path in SEARCH {
        let found = Path::new(path)
            .try_exists()
            .map_err(|why| unreadable(Path::new(path), &why))?;
        if found {
            return Ok(Some(path.into()));
        }
    }
    Ok(None)
}

fn unreadable(path: &Path, why: &std::io::Error) -> ConfigError {
    ConfigError::Unreadable {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn from_file(settings: &mut Settings, path: &Path) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|why| unreadable(path, &why))?;
    let table: Table = text.parse().map_err(|why: toml::de::Error| {
        // The error's own text repeats the line, which may hold a secret.
        let line = why.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        ConfigError::Malformed {
            path: path.to_owned(),
            line,
            why: why.message().to_owned(),
        }
    })?;
    let place = path.display().to_string();
    let unknown = |key: String| ConfigError::UnknownKey {
        known: keys_like(&key),
        key,
        place: place.clone(),
    };
    for (section, content) in &table {
        let Value::Table(content) = content else {
            return Err(unknown(section.clone()));
        };
        for (name, value) in content {
            let key = format!("{section}.{name}");
            let field = Field::find(&key).ok_or_else(|| unknown(key.clone()))?;
            set(settings, field, value, Source::File(path.to_owned()))?;
        }
        if !FIELDS.iter().any(|field| field.section_and_name().0 == section) {
            return Err(unknown(section.clone()));
        }
    }
    Ok(())
}

fn from_env(settings: &mut Settings, env: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    for field in FIELDS {
        // Compose files and unit files pass unset variables as empty ones.
        if let Some(value) = env.get(field.env).filter(|value| !value.is_empty()) {
            set(
                settings,
                field,
                &Value::from(value.as_str()),
                Source::Env(field.env),
            )?;
        }
    }
    for name in env.keys() {
        if is_ours(name) && !FIELDS.iter().any(|field| field.env == name) {
            return Err(ConfigError::UnknownVariable {
                name: name.clone(),
                known: variables_like(name),
            });
        }
    }
    Ok(())
}

/// Whether a variable claims to be a setting: `TIDEGATE_<section>_…`, other than what Kubernetes sets for a service
/// of such a name (`…_SERVICE_HOST`, `…_PORT_9400_TCP`, …).
fn is_ours(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("TIDEGATE_") else {
        return false;
    };
    let section = FIELDS.iter().any(|field| {
        let section = field.section_and_name().0.to_ascii_uppercase();
        rest.strip_prefix(section.as_str())
            .is_some_and(|rest| rest.starts_with('_'))
    });
    let service_link = rest.ends_with("_PORT")
        || rest.contains("_PORT_")
        || rest.contains("_SERVICE_HOST")
        || rest.contains("_SERVICE_PORT");
    section && !service_link
}

/// A secret comes as itself or as the path of a file; whichever is of the higher layer counts.
fn read_secret_files(settings: &mut Settings) -> Result<(), ConfigError> {
    for (key, file_key) in [
        ("amqp.url", "amqp.url_file"),
        ("management.url", "management.url_file"),
        ("database.url", "database.url_file"),
        ("digest.webhook", "digest.webhook_file"),
    ] {
        let Some(file) = settings.get(file_key).cloned() else {
            continue;
        };
        if let Some(direct) = settings.get(key) {
            let same_layer = std::mem::discriminant(&direct.source) == std::mem::discriminant(&file.source);
            if same_layer {
                return Err(ConfigError::TwoSecrets {
                    key,
                    place: direct.source.to_string(),
                    other: file.source.to_string(),
                });
            }
            if direct.source > file.source {
                continue;
            }
        }
        let path = PathBuf::from(file.value.as_str().unwrap_or_default());
        let secret = read_secret(&path).map_err(|why| unreadable(&path, &why))?;
        if let Some(field) = Field::find(key) {
            set(settings, field, &Value::from(secret.trim()), Source::File(path))?;
        }
    }
    Ok(())
}

fn read_secret(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_SECRET_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn keys_like(key: &str) -> String {
    let section = key.split('.').next().unwrap_or(key);
    let same: Vec<_> = FIELDS
        .iter()
        .filter(|field| field.section_and_name().0 == section)
        .map(|field| field.key)
        .collect();
    if same.is_empty() {
        sections().join(", ")
    } else {
        same.join(", ")
    }
}

fn variables_like(name: &str) -> String {
    let section = name.split('_').nth(1).unwrap_or_default().to_ascii_lowercase();
    let same: Vec<_> = FIELDS
        .iter()
        .filter(|field| field.section_and_name().0 == section)
        .map(|field| field.env)
        .collect();
    same.join(", ")
}

fn sections() -> Vec<String> {
    let mut sections: Vec<String> = FIELDS
        .iter()
        .map(|field| format!("[{}]", field.section_and_name().0))
        .collect();
    sections.dedup();
    sections
}
