//! Contracts as they were at a revision of a git repository, by the `git` program: without a shell, each call with a limit on its
//! time and its output. It reads objects only, and writes nothing.
//!
//! May import: `core`, `files`.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use tidegate_core::{contract::Contract, printable};

use super::{
    check::Item,
    files::{MAX_FILES, Set},
};

/// Longest time of one call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Most bytes of a listing, and of all contracts together.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Longest revision and directory in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// Why contracts can't be read from git.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The revision or directory is none that git is asked for.
    #[error(
        "{0:?} is no revision that can be asked for: 1 to {MAX_NAME_BYTES} bytes, not beginning with '-', without controls"
    )]
    Name(String),
    /// `git` isn't there, or can't be started.
    #[error("git can't be started: {0}")]
    NoGit(io::Error),
    /// This is no repository, or none that git trusts.
    #[error("git finds no repository here: {0}")]
    NoRepository(String),
    /// There is no such commit.
    #[error("there is no revision {0}")]
    NoRevision(String),
    /// The commit has no such directory.
    #[error("revision {0} has no directory {1}")]
    NoDirectory(String, String),
    /// More than is read.
    #[error("git has more to say than {MAX_BYTES} bytes or {MAX_FILES} files")]
    TooMuch,
    /// No end in time.
    #[error("git did not answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// Anything else.
    #[error("git failed: {0}")]
    Failed(String),
}

/// Reads `REVISION` or `REVISION:DIR`; without `DIR`, what was at `dir` then. Directories are relative to where this process runs.
///
/// # Errors
/// See [`GitError`]. A file that can be read and is no contract is told of in the set.
pub fn read_git(spec: &str, dir: &Path) -> Result<Set, GitError> {
    let (revision, named) = match spec.split_once(':') {
        Some((revision, dir)) => (revision, dir.to_owned()),
        None => (spec, dir.to_string_lossy().into_owned()),
    };
    for name in [revision, &named] {
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains(printable::is_unsafe);
        if !fits || name.starts_with('-') {
            return Err(GitError::Name(name.to_owned()));
        }
    }
    let here = call(&["rev-parse", "--git-dir"], None)?;
    if !here.is_ok {
        return Err(GitError::NoRepository(here.complaint));
    }
    let commit = call(
        &[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("{revision}^{{commit}}"),
        ],
        None,
    )?;
    let commit = commit
        .line()
        .ok_or_else(|| GitError::NoRevision(revision.to_owned()))?;
    let missing = || GitError::NoDirectory(revision.to_owned(), named.clone());
    let below = named.trim_end_matches('/');
    let below = if below == "." { "" } else { below };
    let tree = call(
        &["rev-parse", "--verify", "--quiet", &format!("{commit}:./{below}")],
        None,
    )?;
    let listed = call(
        &[
            "ls-tree",
            "-r",
            "-z",
            "-l",
            "--full-tree",
            &tree.line().ok_or_else(missing)?,
        ],
        None,
    )?;
    if !listed.is_ok {
        return Err(missing());
    }
    let entries: Vec<Entry> = listed.bytes.split(|byte| *byte == 0).filter_map(entry).collect();
    let total: u64 = entries.iter().map(|entry| entry.size.unwrap_or(0)).sum();
    if entries.len() > MAX_FILES || total > MAX_BYTES / 2 {
        return Err(GitError::TooMuch);
    }
    let mut set = Set {
        dir: PathBuf::from(&named),
        ..Set::default()
    };
    let is_read = |entry: &&Entry| entry.size.is_some_and(|size| size <= Contract::MAX_BYTES as u64);
    let ids: String = entries
        .iter()
        .filter(is_read)
        .fold(String::new(), |mut ids, entry| {
            // Writing to a string can't fail.
            let _ = writeln!(ids, "{}", entry.id);
            ids
        });
    let contents = call(&["cat-file", "--batch"], Some(ids))?;
    let mut rest = &*contents.bytes;
    for entry in &entries {
        let path = format!(
            "git:{revision}:{}",
            if below.is_empty() {
                entry.path.clone()
            } else {
                format!("{below}/{}", entry.path)
            }
        );
        match entry.size {
            None => set.broken.push(Item::of_file(
                &path,
                1,
                "path",
                "a contract is a file, not a link".to_owned(),
            )),
            // It is refused for its size, whatever stands in it.
            Some(_) if !is_read(&entry) => set.take(path, &entry.path, &vec![b' '; Contract::MAX_BYTES + 1]),
            Some(size) => {
                let short = || GitError::Failed("the contents end too early".to_owned());
                let head = rest.iter().position(|byte| *byte == b'\n').ok_or_else(short)? + 1;
                let end = head + usize::try_from(size).map_err(|_| GitError::TooMuch)?;
                set.take(path, &entry.path, rest.get(head..end).ok_or_else(short)?);
                rest = rest.get(end + 1..).unwrap_or_default();
            }
        }
    }
    Ok(set)
}

/// A file that a directory of contracts would be read for.
struct Entry {
    id: String,
    path: String,
    /// `None` for what is no plain file.
    size: Option<u64>,
}

/// `mode type id size\tpath`; as from a directory, what is hidden, deeper or no JSON is left out.
fn entry(line: &[u8]) -> Option<Entry> {
    let line = String::from_utf8_lossy(line);
    let (head, path) = line.split_once('\t')?;
    let is_hidden = path.split('/').any(|step| step.starts_with('.'));
    if is_hidden || path.split('/').count() > 2 || !path.ends_with(".json") {
        return None;
    }
    let mut words = head.split_whitespace();
    let (mode, _, id, size) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Entry {
        id: id.to_owned(),
        path: path.to_owned(),
        size: mode.starts_with("100").then(|| size.parse().ok()).flatten(),
    })
}

struct Answer {
    is_ok: bool,
    bytes: Vec<u8>,
    complaint: String,
}

impl Answer {
    /// Its one line, if the call succeeded.
    fn line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        (self.is_ok && !text.trim().is_empty()).then(|| text.trim().to_owned())
    }
}

fn call(arguments: &[&str], input: Option<String>) -> Result<Answer, GitError> {
    let mut child = Command::new("git")
        .args(arguments)
        // No object is fetched, nothing is asked for, and no lock is taken.
        .envs([
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("LC_ALL", "C"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(GitError::NoGit)?;
    let answer = answer(&mut child, input.unwrap_or_default());
    // With an answer it is at its end, and its status counts.
    if answer.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|why| GitError::Failed(why.to_string()))?;
    answer.map(|(bytes, complaint)| Answer {
        is_ok: status.success(),
        bytes,
        complaint,
    })
}

/// What `child` says on both streams, until it has closed them.
fn answer(child: &mut Child, input: String) -> Result<(Vec<u8>, String), GitError> {
    let stdin = child.stdin.take();
    // Beside the reading: git stops reading while nobody takes what it writes.
    thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let stdout = collect(child.stdout.take(), MAX_BYTES);
    let stderr = collect(child.stderr.take(), 4096);
    let bytes = stdout.recv_timeout(TIMEOUT).map_err(|_| GitError::TimedOut)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(GitError::TooMuch);
    }
    let complaint = stderr.recv_timeout(TIMEOUT).map_err(|_| GitError::TimedOut)?;
    let complaint = String::from_utf8_lossy(&complaint);
    // Both streams are closed, so it is at its end; its status is waited for.
    Ok((
        bytes,
        printable::line(complaint.lines().next().unwrap_or("no reason given")),
    ))
}

fn collect(stream: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            let _ = stream.take(most + 1).read_to_end(&mut bytes);
        }
        sender.send(bytes)
    });
    receiver
}
