//! First task, in Rust: publish one task for now and one for later, and know that both are safe.
//!
//! `AMQP_URL=… cargo run --example first_task`

#![allow(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::{error::Error, sync::Arc, time::Duration};

use tidegate::{
    broker::{BrokerSettings, publisher::Publisher},
    core::{
        envelope::{Envelope, Limits},
        headers::Origin,
    },
    publish::{Task, TaskPublisher},
    topology::Topology,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("AMQP_URL")
        .map_err(|_| "AMQP_URL is not set; it looks like amqp://user:password@localhost:5672/%2f")?;
    let topology = Arc::new(Topology::load("topology".as_ref())?);
    let publisher = TaskPublisher::new(Publisher::start(&BrokerSettings::new(url.into()))?, topology);

    // `Ok` means: on a durable queue. The routing key is the task type.
    for (name, delay) in [("now", Duration::ZERO), ("later", Duration::from_secs(5))] {
        let task = task(name)?;
        let id = task.task_id.clone();
        publisher.send(task, delay).await?;
        println!("{id} is safe, to run in {delay:?}");
    }
    Ok(())
}

fn task(name: &str) -> Result<Task, Box<dyn Error>> {
    // Ids, amounts and times are strings, so that no language changes them.
    let body = serde_json::json!({
        "taskId": format!("rust-{}-{name}", uuid::Uuid::now_v7()),
        "taskType": "order.close.timeout",
        "payload": { "orderId": "1001", "amount": "89.90" },
        "producer": "first-task-rust",
    })
    .to_string();
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), chrono::Utc::now())?;
    Ok(Task::new(body, &envelope, Origin::Amqp))
}
