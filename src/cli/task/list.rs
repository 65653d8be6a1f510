//! `tidegate task list`: pages of tasks.
//!
//! May import: `core`, `store`, `services`.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tidegate_core::lifecycle::TaskState;

use super::view::{HEAD, View};
use crate::{
    cli::{
        failure::Failure,
        output::{Output, table},
        services,
    },
    config::Config,
    store::{
        Store,
        tasks::list::{Cursor, Filter, MAX_PAGE},
    },
};

/// Which tasks, and how many.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// Only in this state: pending, published, running, retrying, success, failed or canceled; may be given many times
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Vec<TaskState>,
    /// Only of this type
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// Only those planned for before this instant, RFC 3339
    #[arg(long, value_name = "RFC3339")]
    due_before: Option<DateTime<Utc>>,
    /// Only those planned for this instant or later, RFC 3339
    #[arg(long, value_name = "RFC3339")]
    due_after: Option<DateTime<Utc>>,
    /// Only those with which something went wrong last
    #[arg(long)]
    error: bool,
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 50, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAGE)))]
    limit: u32,
    /// Go on where a page ended: the place that it named
    #[arg(long, value_name = "PLACE", value_parser = Cursor::parse)]
    after: Option<Cursor>,
}

#[derive(Debug, Serialize)]
struct Shown {
    tasks: Vec<View>,
    next: Option<String>,
}

fn state(text: &str) -> Result<TaskState, String> {
    TaskState::parse(&text.to_ascii_uppercase()).ok_or_else(|| {
        let words: Vec<String> = TaskState::ALL
            .iter()
            .map(|state| state.as_str().to_lowercase())
            .collect();
        format!("it is one of {}", words.join(", "))
    })
}

impl List {
    pub(super) async fn run(self, store: &Store, config: &Config, output: Output) -> Result<(), Failure> {
        let filter = Filter {
            states: self.state,
            task_type: self.r#type,
            due_before: self.due_before,
            due_after: self.due_after,
            with_error: self.error,
        };
        let page = store
            .tasks()
            .list(&filter, self.after.as_ref(), self.limit)
            .await
            .map_err(|error| services::of_store(&error, config))?;
        let next = page.next.map(|cursor| cursor.to_string());
        let tasks = page.tasks.into_iter().map(View::new);
        if output.json {
            return output.json_line(&Shown {
                tasks: tasks.collect(),
                next,
            });
        }
        output.data(&table(&HEAD, tasks.map(View::cells).collect()))?;
        if let Some(next) = next {
            output.message(&format!("note: there are more; go on with --after {next}"));
        }
        Ok(())
    }
}
