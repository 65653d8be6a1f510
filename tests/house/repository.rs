//! The files of the repository, as the checks see them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Directories that hold nothing of ours.
const FOREIGN: &[&str] = &["target", "vendor", ".git", ".dev", "node_modules", "__pycache__"];

/// A text file.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The directory that holds `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of the file at `path`.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Paths of all our files below `under`, from the root, sorted.
pub(crate) fn paths(under: &str) -> Vec<String> {
    let mut found = Vec::new();
    walk(&root().join(under), &mut found);
    let mut paths: Vec<String> = found
        .iter()
        .map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "nothing below {under}");
    paths
}

/// All our files below `under` whose names end in one of `endings`.
pub(crate) fn files(under: &str, endings: &[&str]) -> Vec<File> {
    paths(under)
        .into_iter()
        .filter(|path| endings.iter().any(|ending| path.ends_with(ending)))
        .map(|path| File {
            text: read(&path),
            path,
        })
        .collect()
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let name = entry.file_name();
        if kind.is_dir() && !FOREIGN.contains(&name.to_str().unwrap()) {
            walk(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// Fails with all of `complaints`, one per line, under `rule`.
pub(crate) fn assert_none(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{rule}\n  {}", complaints.join("\n  "));
}
