//! The report service: a handler that needs something which is not always there.

use chrono::NaiveDate;
use serde::Deserialize;
use tidegate::worker::{
    TaskError,
    extract::{Attempt, Payload, State},
};

use super::Shop;

/// Payload of `report.generate.daily`.
#[derive(Debug, Deserialize)]
pub(crate) struct Daily {
    day: NaiveDate,
}

/// Counts the day's orders. The "warehouse" of this example answers from the third attempt on.
pub(crate) async fn build(
    State(shop): State<Shop>,
    Attempt(attempt): Attempt,
    Payload(Daily { day }): Payload<Daily>,
) -> Result<(), TaskError> {
    if attempt < 3 {
        shop.narrator.say(
            "reports",
            format_args!("attempt {}: the warehouse is busy, try again later", attempt),
        );
        return Err(TaskError::retry(
            "warehouse_busy",
            "the warehouse takes no queries now",
        ));
    }
    sqlx::query(
        "INSERT INTO shop.reports (day, orders) SELECT $1, count(*) FROM shop.orders
         ON CONFLICT (day) DO UPDATE SET orders = EXCLUDED.orders",
    )
    .bind(day)
    .execute(&shop.pool)
    .await?;
    shop.narrator.say(
        "reports",
        format_args!("attempt {}: the report of {day} is built", attempt),
    );
    Ok(())
}
