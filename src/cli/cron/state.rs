//! `tidegate cron run`, `pause`, `resume` and `remove`: one schedule, by name.
//!
//! May import: `scheduler::admin`, `services`.

use serde_json::json;

use super::{Failure, Output, of_admin, services, shown};
use crate::{cli::output::escaped, config::Config, scheduler::admin};

/// A schedule by its name.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Named {
    /// A schedule in the ledger
    name: String,
}

impl Named {
    /// Enqueues its task.
    pub(super) async fn run_now(self, config: &Config, output: Output) -> Result<(), Failure> {
        let store = services::reached_store(config).await?;
        let task_id = admin::run(&store, &self.name).await;
        let task_id = task_id.map_err(|error| of_admin(error, config))?;
        if output.json {
            output.json_line(&json!({ "name": self.name, "taskId": task_id }))
        } else {
            output.data(&format!("{task_id}\n"))
        }
    }

    /// Stops it.
    pub(super) async fn pause(self, config: &Config, output: Output) -> Result<(), Failure> {
        let store = services::reached_store(config).await?;
        let changed = admin::pause(&store, &self.name).await;
        let changed = changed.map_err(|error| of_admin(error, config))?;
        if output.json {
            return output.json_line(&json!({ "name": self.name, "enabled": false, "changed": changed }));
        }
        let was = if changed { "paused" } else { "was paused already:" };
        output.data(&format!("{was} {}\n", escaped(&self.name)))
    }

    /// Lets it fire again.
    pub(super) async fn resume(self, config: &Config, output: Output) -> Result<(), Failure> {
        let store = services::reached_store(config).await?;
        let resumed = admin::resume(&store, &self.name).await;
        let (next, changed) = resumed.map_err(|error| of_admin(error, config))?;
        if output.json {
            return output.json_line(
                &json!({ "name": self.name, "enabled": true, "changed": changed, "nextFireAt": shown(next) }),
            );
        }
        let was = if changed { "resumed" } else { "was not paused:" };
        output.data(&format!("{was} {}, next {}\n", escaped(&self.name), shown(next)))
    }

    /// Removes it.
    pub(super) async fn remove(self, config: &Config, output: Output) -> Result<(), Failure> {
        let store = services::reached_store(config).await?;
        let removed = admin::remove(&store, &self.name).await;
        removed.map_err(|error| of_admin(error, config))?;
        if output.json {
            output.json_line(&json!({ "name": self.name, "removed": true }))
        } else {
            output.data(&format!("removed {}\n", escaped(&self.name)))
        }
    }
}
