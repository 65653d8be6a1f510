//! A management API that goes away: the migration waits for it and keeps its own lock.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tidegate_testkit::services;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

use crate::platform::{FILES, PATIENCE, Platform, QUEUE};

/// The management API behind a gate that can be closed.
struct Gate {
    url: String,
    open: Arc<AtomicBool>,
}

impl Gate {
    async fn before(url: &str) -> Self {
        let (userinfo, host) = url.split_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate = Self {
            url: format!("{userinfo}@{}", listener.local_addr().unwrap()),
            open: Arc::new(AtomicBool::new(true)),
        };
        let (open, host) = (gate.open.clone(), host.trim_end_matches('/').to_owned());
        tokio::spawn(async move {
            while let Ok((mut inside, _)) = listener.accept().await {
                let host = host.clone();
                if open.load(Ordering::SeqCst) {
                    tokio::spawn(async move {
                        let mut outside = TcpStream::connect(host).await?;
                        copy_bidirectional(&mut inside, &mut outside).await
                    });
                }
            }
        });
        gate
    }

    fn set(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_management_api_that_is_away_is_waited_for_and_locks_nobody_out() {
    let (platform, _) = Platform::from_files(FILES, &[QUEUE]).await;
    let gate = Gate::before(&services().management).await;

    gate.set(false);
    let mut program = platform.migrate_by(&gate.url, &[QUEUE]);
    let status = program.wait(PATIENCE).await;
    assert_eq!(status.code(), Some(7), "{}", program.output());

    gate.set(true);
    let mut program = platform.migrate_by(&gate.url, &[QUEUE]);
    program.printed(PATIENCE, "pulled the lever").await;
    gate.set(false);
    program.printed(PATIENCE, "trying again").await;
    gate.set(true);
    let status = program.wait(PATIENCE).await;
    assert!(status.success(), "{}", program.output());
    platform.is_as_wanted().await;
    platform.vhost.close().await;
}
