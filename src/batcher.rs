//! Many callers, one statement: while one is on its way to the ledger, what arrives waits and goes together in the next.
//!
//! May import: `supervisor`, `telemetry`. It knows no ledger: what a statement is says whoever has one. There is no timer: a lone caller goes at once, and the more there are, the
//! larger the batches get. What could not be answered yet is asked again in a later batch, after a pause of its own.
//! What waits is in memory: it ends with the process, and the broker still has the deliveries it belongs to.

use std::{
    collections::{HashSet, VecDeque},
    panic::AssertUnwindSafe,
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use crate::{
    supervisor::backoff,
    telemetry::{health::Health, metrics},
};

/// The ledger failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It is away or not ready: the same call may succeed later.
    #[error("{0}")]
    Away(String),
    /// It refuses this call, and would again.
    #[error("{0}")]
    Refused(String),
}

/// Most tasks of one statement.
pub(crate) const MOST: usize = 200;

/// Longest wait for one statement.
const LIMIT: Duration = Duration::from_secs(15);

/// First and longest pause before something that was busy is asked again.
const BUSY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Refusals of one item before it is given up, if its kind ever is.
const REFUSALS: u32 = 5;

/// One kind of statement.
#[async_trait]
pub(crate) trait Statement: Send + Sync + 'static {
    /// What a caller brings.
    type Item: Clone + Send + Sync + 'static;
    /// What it gets.
    type Answer: Send + 'static;
    /// Its name in metrics.
    const KIND: &'static str;
    /// Its part in health.
    const PART: &'static str;
    /// Whether an item is of use when nobody waits for its answer any more.
    const OUTLIVES_CALLER: bool;

    /// The task of an item: no two items of one statement have the same.
    fn task_id(item: &Self::Item) -> &str;
    /// Performs the statement; `None` says to ask again.
    async fn perform(&self, items: &[Self::Item]) -> Result<Vec<Option<Self::Answer>>, LedgerError>;
    /// An answer came when its caller had gone.
    fn unheard(&self, _item: Self::Item, _answer: Self::Answer) {}
    /// The ledger refuses this item, and would again. `Some` is the answer; `None` keeps asking.
    fn refused(&self, _item: &Self::Item, _why: &str) -> Option<Self::Answer> {
        None
    }
}

struct Waiting<S: Statement> {
    item: S::Item,
    answer: oneshot::Sender<S::Answer>,
    pause: Duration,
    refusals: u32,
}

/// Where callers bring their items.
pub(crate) struct Batcher<S: Statement> {
    line: mpsc::Sender<Waiting<S>>,
}

impl<S: Statement> Clone for Batcher<S> {
    fn clone(&self) -> Self {
        Self {
            line: self.line.clone(),
        }
    }
}

impl<S: Statement> Batcher<S> {
    /// Puts `item` in line, waiting for room; the answer comes by what is returned. `None`: the loop has ended.
    pub(crate) async fn submit(&self, item: S::Item) -> Option<oneshot::Receiver<S::Answer>> {
        let (waiting, answer) = waiting(item);
        self.line.send(waiting).await.ok()?;
        Some(answer)
    }

    /// Puts `item` in line if there is room; nobody waits for the answer.
    pub(crate) fn try_submit(&self, item: S::Item) -> bool {
        self.line.try_send(waiting(item).0).is_ok()
    }
}

fn waiting<S: Statement>(item: S::Item) -> (Waiting<S>, oneshot::Receiver<S::Answer>) {
    let (answer, receiver) = oneshot::channel();
    let waiting = Waiting {
        item,
        answer,
        pause: BUSY.0,
        refusals: 0,
    };
    (waiting, receiver)
}

/// The loop behind a [`Batcher`].
pub(crate) struct BatchLoop<S: Statement> {
    statement: S,
    line: mpsc::Receiver<Waiting<S>>,
    ready: VecDeque<Waiting<S>>,
    later: Vec<(Instant, Waiting<S>)>,
    /// Most items that wait in `ready` and `later` together.
    room: usize,
    health: Health,
    standing: Standing,
}

/// How the ledger answered last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nobody has asked it yet.
    Unasked,
    /// It answers.
    Answers,
    /// It doesn't, and the log has it.
    Silent,
}

/// A batcher and its loop; `room` bounds what waits in line, and again what is being asked.
pub(crate) fn batcher<S: Statement>(statement: S, room: usize, health: Health) -> (Batcher<S>, BatchLoop<S>) {
    let (sender, line) = mpsc::channel(room);
    let asking = BatchLoop {
        statement,
        line,
        ready: VecDeque::new(),
        later: Vec::new(),
        room,
        health,
        standing: Standing::Unasked,
    };
    (Batcher { line: sender }, asking)
}

impl<S: Statement> BatchLoop<S> {
    /// Serves until every batcher is gone and everything is answered. What a panicking ledger was asked is lost to
    /// its callers, who see that nobody answers; the loop goes on.
    pub(crate) async fn run(mut self) {
        let mut waits = backoff();
        loop {
            match AssertUnwindSafe(self.serve()).catch_unwind().await {
                Ok(()) => return,
                Err(_) => {
                    tracing::error!(kind = S::KIND, "asking the ledger panicked; going on");
                    self.trouble("asking it panicked");
                    tokio::time::sleep(waits.next().unwrap_or_default()).await;
                }
            }
        }
    }

    async fn serve(&mut self) {
        let mut waits = backoff();
        loop {
            // Until the ledger has answered once, and after it was away, an empty batch asks whether it is there.
            let Some(batch) = self.next(self.standing == Standing::Answers).await else {
                return;
            };
            match self.ask(batch).await {
                Ok(()) => {
                    waits = backoff();
                    if self.standing != Standing::Answers {
                        self.standing = Standing::Answers;
                        self.health.up(S::PART);
                    }
                }
                Err(why) => {
                    self.trouble(&why);
                    tokio::time::sleep(waits.next().unwrap_or_default()).await;
                }
            }
        }
    }

    fn trouble(&mut self, why: &str) {
        if std::mem::replace(&mut self.standing, Standing::Silent) != Standing::Silent {
            tracing::warn!(kind = S::KIND, why, "the ledger doesn't answer; trying again");
        }
        self.health
            .down(S::PART, &format!("the ledger doesn't answer: {why}"));
    }

    /// The next batch, once there is something to ask; `None` at the end.
    async fn next(&mut self, patiently: bool) -> Option<Vec<Waiting<S>>> {
        loop {
            let now = Instant::now();
            for (_, waiting) in self.later.extract_if(.., |(at, _)| *at <= now) {
                self.ready.push_back(waiting);
            }
            while self.ready.len() + self.later.len() < self.room
                && let Ok(waiting) = self.line.try_recv()
            {
                self.ready.push_back(waiting);
            }
            if !S::OUTLIVES_CALLER {
                self.ready.retain(|waiting| !waiting.answer.is_closed());
                self.later.retain(|(_, waiting)| !waiting.answer.is_closed());
            }
            let batch = self.take();
            if !batch.is_empty() {
                return Some(batch);
            }
            let earliest = self.later.iter().map(|(at, _)| *at).min();
            let pause = async {
                match earliest {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let room = self.later.len() < self.room;
            tokio::select! {
                waiting = self.line.recv(), if room => match waiting {
                    Some(waiting) => self.ready.push_back(waiting),
                    None if self.later.is_empty() => return None,
                    // The line has ended: only what is being asked again is left.
                    None => tokio::time::sleep_until(earliest.unwrap_or(now)).await,
                },
                () = pause => {}
                () = std::future::ready(()), if !patiently => return Some(Vec::new()),
            }
        }
    }

    /// Up to [`MOST`] of what is ready, each task once; the rest keeps its place.
    fn take(&mut self) -> Vec<Waiting<S>> {
        let (mut batch, mut rest) = (Vec::new(), VecDeque::new());
        let mut ids = HashSet::new();
        while batch.len() < MOST
            && let Some(waiting) = self.ready.pop_front()
        {
            if ids.insert(S::task_id(&waiting.item).to_owned()) {
                batch.push(waiting);
            } else {
                rest.push_back(waiting);
            }
        }
        rest.append(&mut self.ready);
        self.ready = rest;
        batch
    }

    async fn ask(&mut self, batch: Vec<Waiting<S>>) -> Result<(), String> {
        let items: Vec<S::Item> = batch.iter().map(|waiting| waiting.item.clone()).collect();
        if !items.is_empty() {
            metrics::ledger_asked(S::KIND, items.len());
        }
        let answered = match timeout(LIMIT, self.statement.perform(&items)).await {
            Ok(Ok(answers)) if answers.len() == items.len() => Ok(answers),
            Ok(Ok(answers)) => Err(LedgerError::Away(format!(
                "{} answers to {} questions",
                answers.len(),
                items.len()
            ))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(LedgerError::Away(format!("no answer within {LIMIT:?}"))),
        };
        match answered {
            Ok(answers) => {
                for (waiting, answer) in batch.into_iter().zip(answers) {
                    self.answer(waiting, answer);
                }
                Ok(())
            }
            Err(LedgerError::Refused(why)) if items.len() > 1 => {
                tracing::warn!(
                    kind = S::KIND,
                    why,
                    "the ledger refuses a batch; trying its items one by one"
                );
                self.ask_each(batch).await
            }
            Err(LedgerError::Refused(why)) => {
                let dropped = batch.into_iter().all(|waiting| self.refused(waiting, &why));
                if dropped && !items.is_empty() {
                    Ok(())
                } else {
                    Err(why)
                }
            }
            Err(LedgerError::Away(why)) => {
                for waiting in batch.into_iter().rev() {
                    self.ready.push_front(waiting);
                }
                Err(why)
            }
        }
    }

    /// One item may spoil a statement for all: each on its own, until the ledger is away.
    async fn ask_each(&mut self, batch: Vec<Waiting<S>>) -> Result<(), String> {
        let (mut refused, mut away) = (None, None);
        for waiting in batch {
            if away.is_some() {
                self.ready.push_back(waiting);
                continue;
            }
            let asked = self.statement.perform(std::slice::from_ref(&waiting.item));
            match timeout(LIMIT, asked).await {
                Ok(Ok(mut answers)) => self.answer(waiting, answers.pop().flatten()),
                Ok(Err(LedgerError::Refused(why))) => {
                    if !self.refused(waiting, &why) {
                        refused = Some(why);
                    }
                }
                Ok(Err(LedgerError::Away(why))) => {
                    self.ready.push_back(waiting);
                    away = Some(why);
                }
                Err(_) => {
                    self.ready.push_back(waiting);
                    away = Some(format!("no answer within {LIMIT:?}"));
                }
            }
        }
        away.or(refused).map_or(Ok(()), Err)
    }

    /// Whether there is no more to ask about it.
    fn refused(&mut self, mut waiting: Waiting<S>, why: &str) -> bool {
        waiting.refusals += 1;
        let answer = match waiting.refusals >= REFUSALS {
            true => self.statement.refused(&waiting.item, why),
            false => None,
        };
        let dropped = answer.is_some();
        self.answer(waiting, answer);
        dropped
    }

    fn answer(&mut self, mut waiting: Waiting<S>, answer: Option<S::Answer>) {
        match answer {
            Some(answer) => {
                if let Err(answer) = waiting.answer.send(answer) {
                    self.statement.unheard(waiting.item, answer);
                }
            }
            None => {
                let at = Instant::now() + waiting.pause;
                waiting.pause = (waiting.pause * 2).min(BUSY.1);
                self.later.push((at, waiting));
            }
        }
    }
}

#[cfg(test)]
mod tests;
