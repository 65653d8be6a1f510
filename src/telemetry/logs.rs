//! Log lines on stderr, as text or JSON, and what must never be among them.
//!
//! May import: nothing of ours. Libraries below us log whole frames and connection URLs at their most talkative
//! levels, and lapin logs each returned message with its payload as a warning; no filter can switch those on.

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter, filter::FilterExt, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

/// What holds unless the filter says otherwise for the same target.
const QUIET: &str = "lapin=warn,sqlx=warn,sqlx_core::pool=error,hyper=warn";

/// Where lapin logs every lost or refused connection in three lines of its own. Ours say the same, with the role and what is
/// done about it. They show if the filter names lapin.
const REPEATED: &str = "lapin::channel=off,lapin::channels=off,lapin::io_loop=off";

/// Shape of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people; in colour where `colour` says so.
    Text {
        /// Whether to use ANSI colours.
        colour: bool,
    },
    /// One JSON object per line.
    Json,
}

/// Why logging can't start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter can't be read.
    #[error("log.filter (RUST_LOG) {0:?}: {1}; write it like \"info,tidegate=debug\"")]
    Filter(String, String),
    /// Something has set up logging already.
    #[error("logging is set up already")]
    Twice,
}

/// Starts logging to stderr. `directives` are those of `RUST_LOG`.
pub fn init(format: Format, directives: &str) -> Result<(), LogError> {
    let filter = user_filter(directives)?.and(filter::filter_fn(may_be_logged));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match format {
        Format::Text { colour } => lines.with_ansi(colour).with_filter(filter).boxed(),
        Format::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer)
        .try_init()
        .map_err(|_| LogError::Twice)
}

fn user_filter(directives: &str) -> Result<EnvFilter, LogError> {
    // Later directives win over earlier ones of the same target.
    let repeated = if directives.contains("lapin") {
        ""
    } else {
        REPEATED
    };
    EnvFilter::try_new(format!("{QUIET},{repeated},{directives}"))
        .map_err(|why| LogError::Filter(directives.to_owned(), why.to_string()))
}

/// Nothing of a library that could hold a payload or a credential.
fn may_be_logged(of: &Metadata<'_>) -> bool {
    let library = |name: &str| {
        of.target()
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '_']))
    };
    if of.target().starts_with("lapin::returned_messages") {
        return false;
    }
    // `Level` orders by verbosity: TRACE is the greatest. At TRACE these log frames, bodies and URLs.
    let talkative = library("lapin") || library("amq_protocol") || library("sqlx") || library("hyper");
    !talkative || *of.level() < Level::TRACE
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Which events are wanted is remembered per process: two subscribers at once would disturb each other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn logged(directives: &str) -> String {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().with_writer(move || writer.clone()).with_filter(
            user_filter(directives)
                .unwrap()
                .and(filter::filter_fn(may_be_logged)),
        );
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(target: "lapin::returned_messages", "returned payload");
            tracing::trace!(target: "lapin::channels", "frame with password");
            tracing::trace!(target: "amq_protocol_tcp", "URL with password");
            tracing::trace!(target: "sqlx_core::pool", "statement");
            tracing::info!(target: "lapin::consumer", "lapin info");
            tracing::warn!(target: "lapin::consumer", "lapin warning");
            tracing::error!(target: "lapin::io_loop", "lapin's account of a lost connection");
            tracing::info!(target: "sqlx::query", "sql info");
            tracing::trace!(target: "tidegate::relay", "own trace");
            tracing::info!(target: "tidegate::relay", "own info");
        });
        let text = lines.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn frames_urls_and_returned_messages_are_never_logged() {
        for directives in [
            "trace",
            "lapin=trace,amq_protocol_tcp=trace,sqlx_core=trace",
            "lapin::returned_messages=trace,info",
        ] {
            let text = logged(directives);
            for never in ["returned payload", "password", "statement"] {
                assert!(!text.contains(never), "{directives}: {text}");
            }
        }
        assert!(logged("trace").contains("own trace"));
    }

    #[test]
    fn libraries_are_quiet_until_they_are_asked_for() {
        let text = logged("info");
        assert!(
            text.contains("own info") && text.contains("lapin warning"),
            "{text}"
        );
        assert!(
            !text.contains("lapin info") && !text.contains("sql info") && !text.contains("own trace"),
            "{text}"
        );
        assert!(!text.contains("lapin's account"), "{text}");
        let asked_for = logged("info,lapin=info");
        assert!(
            asked_for.contains("lapin info") && asked_for.contains("lapin's account"),
            "{asked_for}"
        );
        assert!(user_filter("info,[[").is_err());
    }
}
