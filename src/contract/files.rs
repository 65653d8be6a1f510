//! The files `<taskType>/<version>.json` of a directory, and a service's `tidegate.contract.toml`. A file that is wrong is
//! told of with its line, and keeps nobody from reading the others.
//!
//! May import: `core`, `check` (what is wrong).

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use tidegate_core::{
    contract::{Catalogue, Contract, ContractId, Declaration},
    json_text::{Document, Limits, Pointer},
};

use super::check::Item;

/// Most files in one directory of contracts.
pub(super) const MAX_FILES: usize = 10_000;

/// Largest declaration in bytes.
const MAX_DECLARATION_BYTES: u64 = 64 * 1024;

/// Why a directory can't be read at all.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// It, or a file in it, can't be read.
    #[error("can't read {0}: {1}")]
    Unreadable(PathBuf, io::Error),
    /// A file can't be written.
    #[error("can't write {0}: {1}")]
    Unwritable(PathBuf, io::Error),
    /// It holds more files than contracts have ever been written.
    #[error("over {MAX_FILES} files in {0}")]
    TooMany(PathBuf),
}

/// The contracts of one directory.
#[derive(Debug, Default)]
pub struct Set {
    /// As they mean.
    pub catalogue: Catalogue,
    /// As they are stored.
    pub files: BTreeMap<ContractId, Stored>,
    /// Files that are no contracts.
    pub broken: Vec<Item>,
    /// The directory.
    pub dir: PathBuf,
}

/// A file.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its path, for people and code hosts: with `/`, relative as the directory was.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A service's declaration.
#[derive(Debug)]
pub struct Service {
    /// The file.
    pub file: String,
    /// What it says; what is wrong with its form.
    pub declaration: Result<Declaration, Item>,
}

impl Set {
    /// Takes the file `path`, which is at `below` in the directory of all: a contract, or what is wrong with it.
    pub(super) fn take(&mut self, path: String, below: &str, bytes: &[u8]) {
        let id = match ContractId::of_path(below) {
            Ok(id) => id,
            Err(why) => return self.broken.push(Item::of_file(&path, 1, "path", why.to_string())),
        };
        match Contract::read(bytes) {
            Ok(contract) => {
                let text = contract.as_str().to_owned();
                self.catalogue.insert(id.clone(), contract);
                self.files.insert(id, Stored { path, text });
            }
            Err(why) => {
                let line = line_of(bytes, &why.pointer);
                let mut item = Item::of_file(&path, line, why.problem.as_str(), why.problem.to_string());
                item.pointer = why.pointer;
                self.broken.push(item);
            }
        }
    }
}

impl Stored {
    /// The line, from 1, that `pointer` leads to; of the nearest place above it that is there.
    pub fn line_of(&self, pointer: &str) -> usize {
        line_of(self.text.as_bytes(), pointer)
    }
}

fn line_of(text: &[u8], pointer: &str) -> usize {
    let document = Document::parse(text, &Limits::standard());
    match (document, Pointer::parse(pointer)) {
        (Ok(document), Ok(pointer)) => document.line_of(&pointer),
        _ => 1,
    }
}

/// Reads every `<taskType>/<version>.json` below `dir`. Hidden files are left out, and so is what isn't JSON.
///
/// # Errors
/// The directory or a file that can't be read. A file that can be read and is no contract is told of in the set.
pub fn read_dir(dir: &Path) -> Result<Set, DirError> {
    let mut set = Set {
        dir: dir.to_owned(),
        ..Set::default()
    };
    for file in paths(dir)? {
        read(&mut set, dir, &file)?;
    }
    Ok(set)
}

/// Every file `*.json` in `dir` and in its directories, by name. Hidden ones are left out.
pub(super) fn paths(dir: &Path) -> Result<Vec<PathBuf>, DirError> {
    let (mut found, mut count) = (Vec::new(), 0);
    for path in entries(dir, &mut count)? {
        if path.is_dir() {
            found.extend(
                entries(&path, &mut count)?
                    .into_iter()
                    .filter(|file| is_json(file)),
            );
        } else if is_json(&path) {
            found.push(path);
        }
    }
    Ok(found)
}

/// What is in `dir`, by name.
fn entries(dir: &Path, count: &mut usize) -> Result<Vec<PathBuf>, DirError> {
    let failed = |why| DirError::Unreadable(dir.to_owned(), why);
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        *count += 1;
        if *count > MAX_FILES {
            return Err(DirError::TooMany(dir.to_owned()));
        }
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn read(set: &mut Set, dir: &Path, file: &Path) -> Result<(), DirError> {
    let below = file.strip_prefix(dir).map(slashed).unwrap_or_default();
    // What isn't called like a contract isn't opened.
    let limit = ContractId::of_path(&below).map_or(0, |_| Contract::MAX_BYTES as u64 + 1);
    let bytes = match limit {
        0 => Vec::new(),
        limit => read_some(file, limit).map_err(|why| DirError::Unreadable(file.to_owned(), why))?,
    };
    set.take(slashed(file), &below, &bytes);
    Ok(())
}
/// Reads the declaration in `file`.
///
/// # Errors
/// The file can't be read. One that can be read and is no declaration is told of in the result.
pub fn read_service(file: &Path) -> Result<Service, DirError> {
    let failed = |why| DirError::Unreadable(file.to_owned(), why);
    let bytes = read_some(file, MAX_DECLARATION_BYTES + 1).map_err(failed)?;
    let path = slashed(file);
    let wrong = |line, why: String| Item::of_file(&path, line, "declaration", why);
    let declaration = if bytes.len() as u64 > MAX_DECLARATION_BYTES {
        Err(wrong(
            1,
            format!("a declaration has at most {MAX_DECLARATION_BYTES} bytes"),
        ))
    } else {
        match std::str::from_utf8(&bytes) {
            Err(_) => Err(wrong(1, "a declaration is UTF-8".to_owned())),
            Ok(text) => toml::from_str::<Declaration>(text).map_err(|why| {
                let before = why
                    .span()
                    .and_then(|span| text.get(..span.start))
                    .unwrap_or_default();
                wrong(
                    1 + before.matches('\n').count(),
                    why.message().replace('\n', ", "),
                )
            }),
        }
    };
    Ok(Service {
        file: path,
        declaration,
    })
}

fn read_some(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn slashed(path: &Path) -> String {
    path.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
}
