//! Place an order and the task that closes it, in one transaction: sqlx.
//!
//! `DATABASE_URL=… cargo run --example place_order ORDER`

#![allow(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::error::Error;

use sqlx::{Connection, PgConnection};

pub(crate) async fn place_order(connection: &mut PgConnection, order_id: &str) -> sqlx::Result<String> {
    // Rolls back when dropped before its commit, as by `?`.
    let mut tx = connection.begin().await?;
    let payload = serde_json::json!({ "orderId": order_id, "amount": "89.90" });
    let task_id: String = sqlx::query_scalar(
        "SELECT tidegate.enqueue('order.close.timeout', $1, due_at => now() + interval '1 second')",
    )
    .bind(payload.to_string())
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query("INSERT INTO orders (id, close_task_id) VALUES ($1, $2)")
        .bind(order_id)
        .bind(&task_id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(task_id)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
    let order_id = std::env::args().nth(1).ok_or("usage: place_order ORDER")?;
    let mut connection = PgConnection::connect(&url).await?;
    println!("{}", place_order(&mut connection, &order_id).await?);
    Ok(())
}
