//! What is wrong, or doubtful, in topology files: where, what, and what to write instead. Imports nothing of ours.

use std::{fmt, path::PathBuf};

/// One thing wrong in one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileError {
    /// The file, or the directory if no single file is to blame.
    pub file: PathBuf,
    /// Line, from 1; 0 where no line applies.
    pub line: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        write!(f, " {}", self.message)
    }
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Something in a file that may be meant, and may be a mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileWarning {
    /// Where it stands.
    pub place: Place,
    /// What is doubtful and what to write instead, or to say that it is meant. Names the other place too.
    pub message: String,
    /// The place that it disagrees with, where there is one.
    pub other: Option<Place>,
}

impl fmt::Display for FileWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Everything wrong with the topology files, in the order of files and lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyErrors(pub Vec<FileError>);

impl fmt::Display for TopologyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TopologyErrors {}
