//! What `tidegate publish` says of each task it sent, and of all that were not taken.
//!
//! May import: `publish`, `broker::unrouted`, `services`.

use serde::Serialize;

use super::{
    failure::{Detail, Exit, Failure},
    output::Output,
    services,
};
use crate::{broker::unrouted::UnroutedWatch, publish::SendError};

/// What became of one task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Published {
    pub(super) task_id: String,
    pub(super) task_type: String,
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) due: String,
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Published {
    /// The result, corrected by what the broker kept as unrouted although it confirmed it.
    pub(super) fn judged(
        &mut self,
        result: Result<(), SendError>,
        watch: Option<&UnroutedWatch>,
    ) -> Result<(), SendError> {
        let unrouted = watch.is_some_and(|watch| watch.saw(&self.task_id));
        let result = match result {
            Ok(()) if unrouted => Err(SendError::Unroutable {
                exchange: self.exchange.clone(),
                key: self.routing_key.clone(),
            }),
            other => other,
        };
        if let Err(error) = &result {
            self.status = match error {
                SendError::Unroutable { .. } | SendError::NoExchange(_) => "unroutable",
                SendError::Forbidden { .. } => "forbidden",
                SendError::Refused(_) | SendError::Invalid(_) => "refused",
                SendError::Nacked => "nacked",
                SendError::Unknown(_) => "unknown",
            };
            self.error = Some(error.to_string());
        }
        result
    }
}

pub(super) fn print(task: &Published, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.json_line(task);
    }
    output.data(&format!(
        "{}\t{}\t{}\t{}\n",
        task.task_id, task.exchange, task.routing_key, task.due
    ))
}

pub(super) fn not_sent(failed: &[(Published, SendError)]) -> Failure {
    let detail = |(task, error): &(Published, SendError)| Detail {
        text: format!("{}: {error}", task.task_id),
        data: serde_json::json!({"taskId": task.task_id, "status": task.status, "error": error.to_string()}),
    };
    // Tasks whose outcome is unknown decide: they are the ones to act on.
    let worst = failed
        .iter()
        .map(|(_, error)| services::of_send(error))
        .max_by_key(|(exit, _)| *exit as u8);
    let (exit, next) = worst.unwrap_or((Exit::Failed, "try again"));
    let what = match failed {
        [(_, error)] => error.to_string(),
        many => format!("{} tasks were not confirmed", many.len()),
    };
    let place = match failed {
        [(task, _)] => format!(
            "task {} to exchange {:?} with key {:?}",
            task.task_id, task.exchange, task.routing_key
        ),
        _ => "the tasks below".to_owned(),
    };
    let details = if failed.len() > 1 {
        failed.iter().map(detail).collect()
    } else {
        Vec::new()
    };
    Failure::new(exit, what, place, next).with_details(details)
}
