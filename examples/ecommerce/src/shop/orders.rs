//! The order service: closes what was not paid in time.

use std::sync::Arc;

use serde::Deserialize;
use tidegate::worker::{
    TaskError,
    extract::{Payload, State},
};
use tidegate_core::envelope::Envelope;

use super::Shop;

/// Payload of `order.close.timeout`; fields it does not name are ignored.
#[derive(Debug, Deserialize)]
pub(crate) struct CloseOrder {
    #[serde(rename = "orderId", alias = "order_id")]
    order: String,
}

/// Closes the order unless it was paid. Running twice does no harm: the second run finds it closed.
pub(crate) async fn close(
    State(shop): State<Shop>,
    task: Arc<Envelope>,
    Payload(CloseOrder { order }): Payload<CloseOrder>,
) -> Result<(), TaskError> {
    let say = |what: &str| {
        shop.narrator
            .say("orders", format_args!("order {order} {what} ({})", task.task_id))
    };
    // One statement decides, so a payment at this very moment either comes first or finds the order closed.
    let closed = sqlx::query("UPDATE shop.orders SET status = 'CLOSED' WHERE id = $1 AND status = 'UNPAID'")
        .bind(&order)
        .execute(&shop.pool)
        .await?; // Any error of the database becomes a retry.
    if closed.rows_affected() == 1 {
        say("is still unpaid: closed");
        return Ok(());
    }
    let status: Option<String> = sqlx::query_scalar("SELECT status FROM shop.orders WHERE id = $1")
        .bind(&order)
        .fetch_optional(&shop.pool)
        .await?;
    match status.as_deref() {
        Some("PAID") => say("was paid in time: nothing to do"),
        Some(_) => say("is closed already: nothing to do"),
        None => {
            return Err(TaskError::reject(
                "unknown_order",
                format_args!("there is no order {order}"),
            ));
        }
    }
    Ok(())
}
