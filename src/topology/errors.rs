//! What is wrong with topology files: where, what, and what to write instead. Imports nothing of ours.

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
