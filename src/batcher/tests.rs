//! Batches by their sizes, on a paused clock.

use std::sync::{Arc, Mutex};

use super::*;

/// Answers with the item's length; keeps what each statement was about.
#[derive(Clone, Default)]
struct Lengths {
    asked: Arc<Mutex<Vec<Vec<String>>>>,
    /// Items that spoil a statement.
    poison: Vec<&'static str>,
    unheard: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Statement for Lengths {
    type Item = String;
    type Answer = usize;
    const KIND: &'static str = "length";
    const PART: &'static str = "lengths";
    const OUTLIVES_CALLER: bool = false;

    fn task_id(item: &String) -> &str {
        item
    }

    async fn perform(&self, items: &[String]) -> Result<Vec<Option<usize>>, LedgerError> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.asked.lock().unwrap().push(items.to_vec());
        match items.iter().find(|item| self.poison.contains(&item.as_str())) {
            Some(item) => Err(LedgerError::Refused(format!("{item} is poison"))),
            None => Ok(items.iter().map(|item| Some(item.len())).collect()),
        }
    }

    fn unheard(&self, item: String, _: usize) {
        self.unheard.lock().unwrap().push(item);
    }

    fn refused(&self, _: &String, _: &str) -> Option<usize> {
        Some(0)
    }
}

fn running(lengths: &Lengths) -> (Batcher<Lengths>, Health) {
    let health = Health::default();
    let (batcher, asking) = batcher(lengths.clone(), 1_000, health.clone());
    tokio::spawn(asking.run());
    (batcher, health)
}

async fn answer(batcher: &Batcher<Lengths>, item: &str) -> usize {
    batcher.submit(item.to_owned()).await.unwrap().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_arrives_while_a_statement_runs_goes_together() {
    let lengths = Lengths::default();
    let (batcher, _) = running(&lengths);
    assert_eq!(answer(&batcher, "alone").await, 5);
    let many: Vec<String> = (0..500).map(|n| format!("{n:04}")).collect();
    let all = futures::future::join_all(many.iter().map(|item| answer(&batcher, item))).await;
    assert!(all.iter().all(|length| *length == 4));
    let asked = lengths.asked.lock().unwrap();
    // An empty one asks whether anybody is there.
    let sizes: Vec<usize> = asked.iter().map(Vec::len).filter(|size| *size > 0).collect();
    assert_eq!(sizes[0], 1, "a lone one waits for nobody");
    assert!(
        sizes.len() <= 5 && sizes.iter().all(|size| *size <= MOST),
        "{sizes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_statement_has_a_task_twice() {
    let lengths = Lengths::default();
    let (batcher, _) = running(&lengths);
    let both = futures::future::join(answer(&batcher, "same"), answer(&batcher, "same"));
    assert_eq!(both.await, (4, 4));
    assert!(lengths.asked.lock().unwrap().iter().all(|items| items.len() <= 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_refused_again_and_again_spoils_no_other() {
    let lengths = Lengths {
        poison: vec!["bad"],
        ..Lengths::default()
    };
    let (batcher, health) = running(&lengths);
    let items = ["a", "bad", "ccc"];
    let answers = futures::future::join_all(items.iter().map(|item| answer(&batcher, item))).await;
    assert_eq!(answers, [1, 0, 3]);
    assert_eq!(answer(&batcher, "next").await, 4);
    assert!(health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_waits_for_is_handed_back() {
    let lengths = Lengths::default();
    let (batcher, _) = running(&lengths);
    answer(&batcher, "first").await;
    let caller = batcher.submit("gone".to_owned()).await.unwrap();
    // The statement is on its way.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(caller);
    answer(&batcher, "last").await;
    assert_eq!(*lengths.unheard.lock().unwrap(), ["gone"]);
    drop(batcher.submit("never asked".to_owned()).await.unwrap());
    answer(&batcher, "after").await;
    let asked = lengths.asked.lock().unwrap().concat();
    assert!(!asked.contains(&"never asked".to_owned()), "{asked:?}");
}
