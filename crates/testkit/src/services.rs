//! Where the services are.

/// URLs of the services that tests run against.
#[derive(Clone, Default)]
pub struct Services {
    /// AMQP, with credentials; its vhost is not used by tests.
    pub amqp: String,
    /// Postgres, with a role that may create databases.
    pub database: String,
    /// RabbitMQ's management API, with credentials.
    pub management: String,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Services(..)")
    }
}

/// The services of this test run.
///
/// # Panics
/// If one is missing: a test that needs it must not pass without it.
pub fn services() -> Services {
    Services {
        amqp: variable("AMQP_URL"),
        database: variable("DATABASE_URL"),
        management: variable("MANAGEMENT_URL").trim_end_matches('/').to_owned(),
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests by `./dev test`, or set AMQP_URL, DATABASE_URL and MANAGEMENT_URL")
    })
}
