//! Removes what killed test runs left behind.
//!
//! Names carry the time at which they were made (UUID v7). Only what is older than an hour goes: no test runs so long, and
//! tests of other runs share the services.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::{Connection, PgConnection};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{Services, database, management::Management};

const LEFT_BEHIND: Duration = Duration::from_secs(3600);

/// Sweeps vhosts, once in each test program.
pub(crate) async fn vhosts(services: &Services) {
    static SWEPT: OnceCell<()> = OnceCell::const_new();
    let sweep = async {
        let all = Management::new(&services.management, "")
            .get("/api/vhosts?columns=name")
            .await;
        let all = all.and_then(|v| v.as_array().cloned()).unwrap_or_default();
        for name in all.iter().filter_map(|v| v["name"].as_str()) {
            if is_left_behind(name.strip_prefix("t-"), SystemTime::now()) {
                Management::new(&services.management, name).delete_vhost().await;
            }
        }
    };
    SWEPT.get_or_init(|| sweep).await;
}

/// Sweeps databases, once in each test program.
pub(crate) async fn databases(services: &Services) {
    static SWEPT: OnceCell<()> = OnceCell::const_new();
    let sweep = async {
        let mut connection = PgConnection::connect(&services.database)
            .await
            .expect("DATABASE_URL answers");
        let all: Vec<String> = sqlx::query_scalar("SELECT datname FROM pg_database")
            .fetch_all(&mut connection)
            .await
            .expect("the catalogue can be read");
        let _ = connection.close().await;
        for name in all {
            if is_left_behind(name.strip_prefix("t_"), SystemTime::now()) {
                database::drop_database(&services.database, &name).await;
            }
        }
    };
    SWEPT.get_or_init(|| sweep).await;
}

/// Whether `id` is a UUID v7 of more than an hour before `now`; nothing else was made by a test.
fn is_left_behind(id: Option<&str>, now: SystemTime) -> bool {
    let made = id
        .and_then(|id| Uuid::try_parse(id).ok())
        .and_then(|id| id.get_timestamp());
    made.is_some_and(|made| {
        let (seconds, _) = made.to_unix();
        now.duration_since(UNIX_EPOCH + Duration::from_secs(seconds))
            .is_ok_and(|age| age > LEFT_BEHIND)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_names_of_tests_are_left_behind() {
        let id = Uuid::now_v7();
        let later = |minutes: u64| SystemTime::now() + Duration::from_secs(60 * minutes);
        assert!(is_left_behind(Some(&id.to_string()), later(61)));
        assert!(is_left_behind(Some(&id.simple().to_string()), later(61)));
        assert!(!is_left_behind(Some(&id.to_string()), later(59)));
        assert!(!is_left_behind(Some(&Uuid::new_v4().to_string()), later(61)));
        assert!(!is_left_behind(Some("orders"), later(61)));
        assert!(!is_left_behind(None, later(61)));
    }
}
