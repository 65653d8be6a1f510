//! The member service: books points, recalls silent members.

use std::sync::Arc;

use serde::Deserialize;
use tidegate::worker::{
    TaskError,
    extract::{Payload, State},
};
use tidegate_core::envelope::Envelope;

use super::Shop;

/// Payload of `member.points.add`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddPoints {
    user_id: String,
    points_type: String,
    points: i32,
}

/// Books the points once, however often the task arrives: the unique constraint of the table sees to it, and its
/// violation is success.
pub(crate) async fn add_points(
    State(shop): State<Shop>,
    task: Arc<Envelope>,
    Payload(add): Payload<AddPoints>,
) -> Result<(), TaskError> {
    let closed: Option<bool> =
        sqlx::query_scalar("SELECT account_closed FROM shop.members WHERE user_id = $1")
            .bind(&add.user_id)
            .fetch_optional(&shop.pool)
            .await?;
    if closed != Some(false) {
        // A business error: trying again would change nothing.
        shop.narrator.say(
            "members",
            format_args!("{} has no open account: rejected", add.user_id),
        );
        return Err(TaskError::reject(
            "account_closed",
            "the member's account is closed",
        ));
    }
    let booked = sqlx::query(
        "INSERT INTO shop.points (user_id, task_id, points_type, points) VALUES ($1, $2, $3, $4)",
    )
    .bind(&add.user_id)
    .bind(task.task_id.as_str())
    .bind(&add.points_type)
    .bind(add.points)
    .execute(&shop.pool)
    .await;
    match booked {
        Ok(_) => shop.narrator.say(
            "members",
            format_args!("{} gets {} points", add.user_id, add.points),
        ),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
            shop.narrator.say(
                "members",
                format_args!("{}'s points of this task are booked already: done", add.user_id),
            );
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Payload of `marketing.recall.push`, as it stands in the cron row.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Recall {
    silent_days: i32,
}

/// Recalls every member not seen for so many days, each once.
pub(crate) async fn recall(
    State(shop): State<Shop>,
    Payload(recall): Payload<Recall>,
) -> Result<(), TaskError> {
    let recalled = sqlx::query(
        "INSERT INTO shop.recalls (user_id)
         SELECT user_id FROM shop.members WHERE last_seen < now() - make_interval(days => $1)
         ON CONFLICT DO NOTHING",
    )
    .bind(recall.silent_days)
    .execute(&shop.pool)
    .await?;
    let count = recalled.rows_affected();
    shop.narrator.say(
        "members",
        format_args!(
            "cron: recalls {count} members silent for {} days",
            recall.silent_days
        ),
    );
    Ok(())
}
