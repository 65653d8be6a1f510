//! Files that are made of contracts and kept beside them: written, or compared with what is there.
//!
//! Each file is written beside its place and then renamed. If the process dies between two files, those before are new, the
//! others are as they were, and none is half; a comparison says which.
//!
//! May import: `core`, `files` (its errors).

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::Path,
};

use tidegate_core::{
    contract::ContractId,
    json_text::{Difference, Document, Limits, MAX_DEPTH},
};

use super::files::DirError;

/// Most places that one file is told of.
const MAX_DIFFERENCES: usize = 20;

/// Files by their path below a directory, with `/`, and their texts.
pub type Files = BTreeMap<String, String>;

/// A file that isn't as the contracts make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The file, below the directory.
    pub file: String,
    /// In what way.
    pub why: Why,
}

/// In what way a file isn't as the contracts make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It isn't there.
    Missing,
    /// No contract makes it.
    Extra,
    /// It is JSON of another value; the first text of each place is the file's.
    Values(Vec<Difference>),
    /// Its text is another from this line on.
    Line(usize),
}

impl Why {
    /// Its name in output, snake_case.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Values(_) | Self::Line(_) => "differs",
        }
    }
}

/// Writes `files` below `dir`, which is made if it isn't there. Gives for each whether it was written; one that is as it should
/// be is left alone.
///
/// # Errors
/// The first file that can't be written or read.
pub fn write(dir: &Path, files: &Files) -> Result<Vec<(String, bool)>, DirError> {
    let mut done = Vec::new();
    for (name, text) in files {
        let path = dir.join(name);
        let failed = |why| DirError::Unwritable(path.clone(), why);
        let is_same = read(&path, text)?.is_some_and(|found| found == text.as_bytes());
        if !is_same {
            let parent = path.parent().unwrap_or(dir);
            fs::create_dir_all(parent).map_err(failed)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let beside = parent.join(format!(".{name}.new"));
            fs::write(&beside, text)
                .and_then(|()| fs::rename(&beside, &path))
                .map_err(failed)?;
        }
        done.push((name.clone(), !is_same));
    }
    Ok(done)
}

/// Which of `files` aren't below `dir` as they should be.
///
/// # Errors
/// The first file that is there and can't be read.
pub fn compare(dir: &Path, files: &Files) -> Result<Vec<Outdated>, DirError> {
    let mut found = Vec::new();
    for (name, text) in files {
        let why = match read(&dir.join(name), text)? {
            None => Why::Missing,
            Some(bytes) if bytes == text.as_bytes() => continue,
            Some(bytes) => between(&bytes, text),
        };
        let file = name.clone();
        found.push(Outdated { file, why });
    }
    Ok(found)
}

/// Files below `dir` that are called like contracts and aren't among `files`.
///
/// # Errors
/// The directory can't be read. One that isn't there has none.
pub fn extra(dir: &Path, files: &Files) -> Result<Vec<Outdated>, DirError> {
    let found = match super::files::paths(dir) {
        Err(DirError::Unreadable(_, why)) if why.kind() == io::ErrorKind::NotFound => Vec::new(),
        found => found?,
    };
    let below = found.iter().filter_map(|path| path.strip_prefix(dir).ok());
    let names = below.map(|path| path.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/"));
    let is_extra = |name: &String| ContractId::of_path(name).is_ok() && !files.contains_key(name);
    Ok(names
        .filter(is_extra)
        .map(|file| Outdated {
            file,
            why: Why::Extra,
        })
        .collect())
}

/// What is in `path`, if anything is: at most a little more than what should be there, and enough to say what differs.
fn read(path: &Path, expected: &str) -> Result<Option<Vec<u8>>, DirError> {
    let limit = (2 * expected.len() as u64).max(1024 * 1024);
    let mut bytes = Vec::new();
    match fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(DirError::Unreadable(path.to_owned(), why)),
    }
}

fn between(found: &[u8], expected: &str) -> Why {
    let limits = Limits {
        max_bytes: usize::MAX,
        max_depth: MAX_DEPTH,
    };
    let both = (
        Document::parse(found, &limits),
        Document::parse(expected.as_bytes(), &limits),
    );
    if let (Ok(found), Ok(expected)) = both {
        let values = found.differences(&expected, MAX_DIFFERENCES);
        if !values.is_empty() {
            return Why::Values(values);
        }
    }
    let same = found
        .iter()
        .zip(expected.as_bytes())
        .take_while(|(one, two)| one == two);
    Why::Line(1 + same.filter(|(byte, _)| **byte == b'\n').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn what_is_written_is_as_it_should_be_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new");
        let made = files(&[("a.md", "one\n"), ("order.close/1.json", "{}\n")]);
        let missing = compare(&dir, &made).unwrap();
        assert!(missing.len() == 2 && missing.iter().all(|file| file.why == Why::Missing));
        let written = |dir: &Path| {
            write(dir, &made)
                .unwrap()
                .into_iter()
                .map(|(_, is_new)| is_new)
                .collect::<Vec<_>>()
        };
        assert_eq!(written(&dir), [true, true]);
        assert_eq!(compare(&dir, &made).unwrap(), []);
        fs::write(dir.join("a.md"), "two\n").unwrap();
        assert_eq!(written(&dir), [true, false]);
        assert_eq!(fs::read_to_string(dir.join("a.md")).unwrap(), "one\n");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_differs_says_where() {
        let between = |found: &str, expected| between(found.as_bytes(), expected);
        assert_eq!(between("a\nb\nc", "a\nb\nd"), Why::Line(3));
        assert_eq!(between("", "a\n"), Why::Line(1));
        assert_eq!(between("{}", "{}\n"), Why::Line(1));
        let Why::Values(values) = between(r#"{"a": 1}"#, "{\"a\":2}\n") else {
            panic!("both are JSON")
        };
        assert_eq!((&*values[0].pointer, values[0].one.as_deref()), ("/a", Some("1")));
    }

    #[test]
    fn only_what_is_called_like_a_contract_is_extra() {
        let dir = tempfile::tempdir().unwrap();
        let there = files(&[
            ("README.md", ""),
            ("order.close/1.json", ""),
            ("order.close/2.json", ""),
            ("order.close/notes.json", ""),
        ]);
        write(dir.path(), &there).unwrap();
        let found = extra(dir.path(), &files(&[("order.close/1.json", "")])).unwrap();
        let names: Vec<&str> = found.iter().map(|file| &*file.file).collect();
        assert_eq!(names, ["order.close/2.json"]);
        assert_eq!(extra(&dir.path().join("none"), &there).unwrap(), []);
    }
}
