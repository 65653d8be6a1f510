//! What worker processes did, in a file that outlives them: a line when a handler starts and one when its effect is done.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
};

use chrono::{DateTime, Utc};

/// Appends lines; each is one write, so that those of several processes don't mix, and it is on disk before it counts.
#[derive(Debug)]
pub(crate) struct Pen(File);

impl Pen {
    pub(crate) fn open(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    pub(crate) fn note(&self, event: &str, task_id: &str, attempt: u32) -> std::io::Result<()> {
        let line = format!("{event} {task_id} {attempt} {}\n", Utc::now().timestamp_micros());
        (&self.0).write_all(line.as_bytes())?;
        self.0.sync_data()
    }
}

/// All that is known of one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// Attempt numbers and times of the starts, in order.
    pub(crate) starts: Vec<(u32, DateTime<Utc>)>,
    /// How often its effect was had: once, and more for each duplicate.
    pub(crate) effects: usize,
}

/// The file, by task id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(pub(crate) BTreeMap<String, Entry>);

impl Journal {
    /// Reads it; a last line that is being written is left out.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut journal = Self::default();
        for line in whole.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [event, id, attempt, at] = fields[..] else {
                panic!("journal: {line:?}")
            };
            let entry = journal.0.entry(id.to_owned()).or_default();
            match event {
                "start" => {
                    let at = DateTime::from_timestamp_micros(at.parse().unwrap()).unwrap();
                    entry.starts.push((attempt.parse().unwrap(), at));
                }
                "done" => entry.effects += 1,
                _ => panic!("journal: {line:?}"),
            }
        }
        journal
    }

    pub(crate) fn effects(&self, id: &str) -> usize {
        self.0.get(id).map_or(0, |entry| entry.effects)
    }

    pub(crate) fn starts(&self, id: &str) -> usize {
        self.0.get(id).map_or(0, |entry| entry.starts.len())
    }
}
