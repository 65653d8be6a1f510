//! What else can happen to a private broker: frozen, or given orders.

use super::PrivateServices;

impl PrivateServices {
    /// Freezes the broker (`SIGSTOP`): its connections stay open and nothing answers.
    pub async fn pause_broker(&self) {
        self.dev("pause-broker", &[]).await;
    }

    /// Lets a frozen broker go on (`SIGCONT`).
    pub async fn resume_broker(&self) {
        self.dev("resume-broker", &[]).await;
    }

    /// Runs `rabbitmqctl` on the broker.
    pub async fn rabbitmqctl(&self, arguments: &[&str]) {
        self.dev("rabbitmqctl", arguments).await;
    }
}
