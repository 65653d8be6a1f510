//! How many messages queues hold, unacknowledged and dead-lettered ones included: what AMQP doesn't tell.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::broker::management::{Management, ManagementError, encode};

/// Most queues in one answer.
const PAGE: usize = 500;

#[derive(Deserialize)]
struct Page {
    items: Vec<Row>,
    #[serde(default = "one")]
    page_count: usize,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    messages: Option<u64>,
}

fn one() -> usize {
    1
}

/// Messages of all queues whose name begins with `prefix`, and of exactly that one if `exact`.
///
/// Asked for as a list without statistics, because only that answers from the same tables on all versions: as old as
/// the broker's tick and no older. A queue whose count isn't known yet is left out, and so is one that doesn't exist.
pub(super) async fn messages(
    management: &Management,
    prefix: &str,
    exact: bool,
) -> Result<BTreeMap<String, u64>, ManagementError> {
    let mut pattern = String::from("^");
    for c in prefix.chars() {
        if c.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    if exact {
        pattern.push('$');
    }
    let mut found = BTreeMap::new();
    let mut page = 1;
    loop {
        let path = format!(
            "queues/{}?disable_stats=true&enable_queue_totals=true&page={page}&page_size={PAGE}&use_regex=true&name={}",
            management.v(),
            encode(&pattern)
        );
        let answer: Page = management.get(&path).await?;
        let matching = answer.items.into_iter().filter(|row| {
            if exact {
                row.name == prefix
            } else {
                row.name.starts_with(prefix)
            }
        });
        found.extend(matching.filter_map(|row| Some((row.name, row.messages?))));
        if page >= answer.page_count {
            return Ok(found);
        }
        page += 1;
    }
}

/// Messages of one queue.
pub(super) async fn of(management: &Management, queue: &str) -> Result<Option<u64>, ManagementError> {
    Ok(messages(management, queue, true).await?.remove(queue))
}
