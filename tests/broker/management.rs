//! The whole of a vhost, read by the management API, says what was declared.

use std::time::Duration;

use secrecy::SecretString;
use tidegate::{
    broker::management::{Management, ManagementError},
    topology::live::Version,
};
use tidegate_testkit::{Vhost, services};

use super::declare::{apply, connect, shipped};

pub(crate) fn management(vhost: &Vhost) -> Management {
    let url = SecretString::from(services().management);
    Management::new(&url, vhost.name(), Duration::from_secs(30)).unwrap()
}

#[tokio::test]
async fn what_was_declared_is_read_back() {
    let vhost = Vhost::create().await;
    let objects = shipped().objects();
    apply(&connect(vhost.amqp_url()).await, &objects).await.unwrap();

    let live = management(&vhost).read_live().await.unwrap();
    assert!(live.version >= Version::new(3, 10, 0), "{}", live.version);
    assert_eq!(live.unread, [], "the tests' user may read everything");
    assert_eq!(live.exchanges.len(), objects.exchanges.len());
    assert_eq!(live.bindings.len(), objects.bindings.len());
    for queue in &objects.queues {
        let found = live
            .queue(&queue.name)
            .unwrap_or_else(|| panic!("{} is missing", queue.name));
        assert_eq!(found.kind, "quorum");
        assert!(found.durable && !found.exclusive && !found.auto_delete);
        assert_eq!(found.arguments.len(), queue.arguments.len(), "{found:?}");
        for (name, value) in &queue.arguments {
            assert_eq!(found.arguments[*name], value.to_json(), "{}: {name}", queue.name);
        }
    }
    vhost.close().await;
}

#[tokio::test]
async fn a_wrong_password_and_a_dead_address_are_told_apart_without_the_password() {
    let vhost = Vhost::create().await;
    let url = services().management;
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split_once('@').map_or(rest, |(_, host)| host);
    let wrong = SecretString::from(format!("{scheme}://tidegate:s3cret@{host}"));
    let denied = Management::new(&wrong, vhost.name(), Duration::from_secs(30)).unwrap();
    let error = denied.read_live().await.unwrap_err();
    assert!(
        matches!(error, ManagementError::Denied { status: 401, .. }),
        "{error}"
    );
    assert!(!error.to_string().contains("s3cret"), "{error}");

    let nowhere = SecretString::from("http://tidegate:s3cret@127.0.0.1:1");
    let dead = Management::new(&nowhere, vhost.name(), Duration::from_secs(30)).unwrap();
    let error = dead.read_live().await.unwrap_err();
    assert!(matches!(error, ManagementError::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
    vhost.close().await;
}
