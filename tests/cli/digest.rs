//! A digest from the binary: settings to webhook, with the secret in nothing that is logged.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use serde_json::Value;
use sqlx::PgPool;
use tidegate_testkit::{Database, eventually};

use crate::{run::Tidegate, serve::Server};

const SECRET: &str = "s3cret-t0ken";

/// A webhook that takes one post, after it has turned one away: its URL, and what it was sent.
fn hook() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://{}/{SECRET}?access_token={SECRET}",
        listener.local_addr().unwrap()
    );
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {
                let line = head.lines().last().unwrap_or_default().to_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let status = if at == 0 { "503 Not Now" } else { "200 OK" };
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            .unwrap();
            // Whoever listens may have what it wanted.
            let _ = tell.send((head, serde_json::from_slice(&body).unwrap()));
        }
    });
    (url, told)
}

#[tokio::test]
async fn serve_posts_a_digest_and_tells_nobody_where() {
    let database = Database::create().await;
    let (url, told) = hook();
    let tidegate = Tidegate::new()
        .env("DATABASE_URL", database.url())
        .env("TIDEGATE_DIGEST_FORMAT", "slack")
        .env("TIDEGATE_DIGEST_INTERVAL", "1s")
        .file("webhook", &format!("{url}\n"))
        .env("RUST_LOG", "trace,sqlx=info");
    let file = tidegate.path().join("webhook").display().to_string();
    let tidegate = tidegate.env("TIDEGATE_DIGEST_WEBHOOK_FILE", &file);
    assert_eq!(tidegate.run(&["migrate"]).code, 0);
    let printed = tidegate.run(&["config", "print"]);
    assert!(
        printed.code == 0 && !printed.stdout.contains(SECRET),
        "{printed:?}"
    );
    let sql = PgPool::connect(database.url()).await.unwrap();
    for statement in [
        "SELECT tidegate.dead_letters_make_day((now() AT TIME ZONE 'UTC')::date)",
        "INSERT INTO tidegate.dead_letters (day, id, archived_at, died_at, task_type, queue, reason, error_kind, error, attempts, fingerprint) \
         VALUES ((now() AT TIME ZONE 'UTC')::date, gen_random_uuid(), now(), now(), 'order.close', 'order.close.queue', 'rejected', 'declined', \
           'card of Ann Smith declined', 1, decode(md5('a'), 'hex'))",
        "INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) SELECT day, id, 'a payload', '{}' FROM tidegate.dead_letters",
    ] {
        sqlx::query(statement).execute(&sql).await.unwrap();
    }
    let server = Server::start(&tidegate, &["--roles", "monitor"]);
    let mut posts = Vec::new();
    eventually(Duration::from_secs(60), "two posts", async || {
        posts.extend(told.try_iter());
        posts.len() >= 2
    })
    .await;
    let sent = async || {
        let state: Option<String> =
            sqlx::query_scalar("SELECT max(state) FROM tidegate.digests WHERE state = 'SENT'")
                .fetch_one(&sql)
                .await
                .unwrap();
        state.is_some()
    };
    eventually(
        Duration::from_secs(10),
        "the digest to be written down as sent",
        sent,
    )
    .await;
    server.signal("TERM");
    let (code, log) = server.ended().await;
    assert_eq!(code, 0, "{log}");
    assert!(
        log.contains("sent a digest") && log.contains("answered 503"),
        "{log}"
    );
    assert!(
        !log.contains(SECRET),
        "{}",
        log.lines().find(|line| line.contains(SECRET)).unwrap_or_default()
    );
    for (head, body) in &posts {
        assert!(
            head.starts_with(&format!("POST /{SECRET}?access_token={SECRET} ")),
            "{head}"
        );
        let text = body["text"].as_str().unwrap();
        assert!(
            text.contains("1 new dead letter,") && text.contains("order.close: 1 new, 1 open"),
            "{text}"
        );
        assert!(!text.contains("Ann") && !text.contains("payload"), "{text}");
    }
    sql.close().await;
    database.close().await;
}
