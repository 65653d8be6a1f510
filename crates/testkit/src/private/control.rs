//! What else can happen to private services: frozen, restarted in order, or given orders.

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

    /// Freezes Postgres with all its children: connections are accepted, and nothing answers.
    pub async fn pause_postgres(&self) {
        self.dev("pause-postgres", &[]).await;
    }

    /// Lets a frozen Postgres go on.
    pub async fn resume_postgres(&self) {
        self.dev("resume-postgres", &[]).await;
    }

    /// Shuts Postgres down in order, which ends all sessions, and starts it again.
    pub async fn restart_postgres(&self) {
        self.dev("restart-postgres", &[]).await;
    }

    /// Shuts the broker down in order and starts it again.
    pub async fn restart_broker(&self) {
        self.dev("restart-broker", &[]).await;
    }
}
