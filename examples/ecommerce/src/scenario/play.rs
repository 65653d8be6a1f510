//! Sends everything, pays the one order, and inserts the cron row.

use std::time::Duration;

use super::{CRON_ROW, PAID_IN_TIME, Way, messages, producer::Producer};
use crate::{journal, problem::Problem, shop::Shop, verdict::Sent};

/// How long after its creation the order is paid; its close task waits longer.
const PAYS_AFTER: Duration = Duration::from_millis(1_500);

/// Plays the scenario; what it returns is what has to be accounted for.
pub(crate) async fn play(shop: &Shop, producer: &Producer) -> Result<Vec<Sent>, Problem> {
    sqlx::query(CRON_ROW).execute(&shop.pool).await?;
    shop.narrator.say(
        "shop",
        "[5] a cron row is inserted by plain SQL: recall silent members, every 2 s (in life: every night)",
    );
    let mut sent = Vec::new();
    for message in messages() {
        let way = match message.way {
            Way::Library => "",
            Way::Plain | Way::Ingress => "plain AMQP: ",
        };
        shop.narrator
            .say("shop", format_args!("[{}] {way}{}", message.step, message.story));
        let planned = producer.send(&message).await?;
        sent.push(Sent {
            step: message.step,
            task_type: task_type(&message.body),
            key: journal::key(&message.body),
            body: Some(message.body),
            planned,
            expect: message.expect,
        });
    }
    tokio::time::sleep(PAYS_AFTER).await;
    sqlx::query("UPDATE shop.orders SET status = 'PAID' WHERE id = $1")
        .bind(PAID_IN_TIME)
        .execute(&shop.pool)
        .await?;
    shop.narrator
        .say("shop", format_args!("[3] order {PAID_IN_TIME} is paid"));
    Ok(sent)
}

fn task_type(body: &[u8]) -> String {
    let peeked = tidegate_core::envelope::peek(body).task_type;
    peeked.map_or_else(|| "(poison)".to_owned(), |task_type| task_type.to_string())
}
