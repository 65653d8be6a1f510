//! Why the example could not be run to its end.
//!
//! Imports nothing of the example.

/// All variants are shown and end the program; the first two are the reader's to mend.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// Something that has to be there is not, with what to do about it.
    #[error("{0}")]
    Missing(String),
    /// A program of ours failed; its output is in the text.
    #[error("{0}")]
    Child(String),
    #[error("postgres: {0}")]
    Database(#[from] sqlx::Error),
    #[error("rabbitmq: {0}")]
    Broker(#[from] lapin::Error),
    #[error("rabbitmq management: {0}")]
    Management(#[from] reqwest::Error),
    #[error("could not publish: {0}")]
    Send(#[from] tidegate::publish::SendError),
    #[error("worker: {0}")]
    Worker(#[from] tidegate::worker::BuildError),
    #[error("{0}")]
    Topology(#[from] tidegate::topology::TopologyErrors),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("stopped by a signal")]
    Interrupted,
}
