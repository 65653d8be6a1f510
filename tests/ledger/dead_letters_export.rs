//! A day as NDJSON: complete, exact, and as it was at one moment.

use std::io::Read;

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, NaiveDate, Utc};
use serde_json::Value;
use tidegate::deadletter::export::{ExportError, export};

use crate::{
    letters::{Letter, archive},
    support::Database,
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn day() -> NaiveDate {
    "2026-03-01".parse().unwrap()
}

#[tokio::test]
async fn a_day_is_exported_whole_with_its_exact_bytes() {
    let db = Database::create().await;
    let mut letters: Vec<Letter> = (0..130)
        .map(|n| Letter::at(at("2026-03-01T10:00:00Z") + chrono::TimeDelta::seconds(n)))
        .collect();
    letters[0].body = b"\xff\x00\xfe".to_vec();
    letters[1].body = "line\nbreak \u{2028} \0 订单".as_bytes().to_vec();
    letters[2].body = vec![b'x'; 64 * 1024];
    letters[3].properties =
        r#"{"properties":{"priority":0},"headers":{"n":{"t":"l","v":9007199254740993}}}"#.to_owned();
    archive(&db, &letters).await;
    archive(
        &db,
        &[
            Letter::at(at("2026-03-02T00:00:00Z")),
            Letter::at(at("2026-02-28T23:59:59Z")),
        ],
    )
    .await;

    let mut plain = Vec::new();
    assert_eq!(export(&db.store, day(), false, &mut plain).await.unwrap(), 130);
    let text = String::from_utf8(plain).unwrap();
    assert!(
        text.contains(r#""v":9007199254740993"#),
        "numbers of headers stay as they are"
    );
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 130);
    for (line, letter) in lines.iter().zip(&letters) {
        assert_eq!(line["id"], letter.dead_letter_id().to_string());
        let body = match (&line["body"], &line["bodyBase64"]) {
            (Value::String(text), Value::Null) => text.clone().into_bytes(),
            (Value::Null, Value::String(packed)) => STANDARD.decode(packed).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(body, letter.body);
    }

    let mut packed = Vec::new();
    export(&db.store, day(), true, &mut packed).await.unwrap();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(packed.as_slice())
        .read_to_string(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, text);
}

#[tokio::test]
async fn a_day_of_which_nothing_is_kept_is_an_error() {
    let db = Database::create().await;
    archive(&db, &[Letter::at(at("2026-03-02T00:00:00Z"))]).await;
    let ended = export(&db.store, day(), false, Vec::new()).await;
    assert!(matches!(ended, Err(ExportError::NoSuchDay(_))), "{ended:?}");
}

/// A session that ends in the middle is an error, not a shorter export.
#[tokio::test]
async fn an_export_that_is_cut_off_says_so() {
    let db = Database::create().await;
    let letters: Vec<Letter> = (0..120).map(|_| Letter::at(at("2026-03-01T10:00:00Z"))).collect();
    archive(&db, &letters).await;
    let mut begun = db.store.dead_letters().export(day()).await.unwrap().unwrap();
    assert_eq!(begun.next().await.unwrap().len(), 50);
    // What is archived and dealt with meanwhile is not in it, or is as it was.
    db.execute("UPDATE tidegate.dead_letters SET state = 'DISCARDED', discarded_in = 0")
        .await;
    archive(&db, &[Letter::at(at("2026-03-01T10:00:00Z"))]).await;
    let second = begun.next().await.unwrap();
    assert!(second.iter().all(|letter| letter.listed.state.as_str() == "OPEN"));
    db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidegate' AND datname = current_database()").await;
    assert!(begun.next().await.is_err());
}
