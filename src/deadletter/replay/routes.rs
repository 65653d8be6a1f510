//! Whether a replay would arrive anywhere, asked before it goes out.
//!
//! May import: `broker`, `topology`. What no binding takes is confirmed all the same, and comes back as another dead letter:
//! so a queue that is gone is noticed here, and the dead letter stays as it is. An answer is good for some seconds.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tidegate_core::{ladder::Target, names::Names};
use tokio::time::Instant;

use crate::{
    broker::{
        connection::{Link, LinkError},
        exists::queue_exists,
    },
    topology::Topology,
};

/// How long an answer is good.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// Most answers that are kept.
const MAX_ANSWERS: usize = 1_000;

/// Whether what goes to `queue` is brought there: a business queue is bound to the ladder's end, the ingress has an exchange of
/// its own. Without files nobody can tell.
fn leads_to(topology: &Topology, queue: &str) -> bool {
    topology.queues.is_empty()
        || topology.queue(queue).is_some()
        || queue == Names::queue_of(&topology.names.ingress())
}

/// What is known of the way to queues.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    link: Link,
    answers: Arc<Mutex<HashMap<String, (Instant, bool)>>>,
}

impl Routes {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            answers: Arc::default(),
        }
    }

    /// Why a message to `target` would arrive nowhere; `None` if it would, as far as anybody can tell.
    ///
    /// # Errors
    /// The broker didn't say.
    pub(super) async fn dead_end(
        &self,
        target: &Target,
        topology: &Topology,
    ) -> Result<Option<String>, LinkError> {
        match target {
            Target::Queue(queue) if !self.exists(queue).await? => Ok(Some(format!(
                "queue {queue:?} does not exist: apply the topology, or use --to routing-key"
            ))),
            Target::Queue(queue) => Ok((!leads_to(topology, queue)).then(|| {
                format!(
                    "queue {queue:?} is in no topology file, so nothing leads there from our exchanges: declare it in one, or \
                     use --to routing-key"
                )
            })),
            Target::Key(key) | Target::HighKey(key) => {
                let mut taken_by = None;
                for queue in topology.routes(key) {
                    if self.exists(&queue.name).await? {
                        return Ok(None);
                    }
                    taken_by = Some(&queue.name);
                }
                Ok(match taken_by {
                    Some(queue) => Some(format!(
                        "of the queues that take key {key:?} none exists, {queue:?} among them: apply the topology"
                    )),
                    // Without files nobody can tell.
                    None if topology.queues.is_empty() => None,
                    None => Some(format!(
                        "no queue of the topology files takes key {key:?}: bind one"
                    )),
                })
            }
        }
    }

    async fn exists(&self, queue: &str) -> Result<bool, LinkError> {
        let known = self.answers().get(queue).copied();
        if let Some((at, exists)) = known
            && at.elapsed() < GOOD_FOR
        {
            return Ok(exists);
        }
        let exists = queue_exists(&self.link, queue).await?;
        let mut answers = self.answers();
        if answers.len() >= MAX_ANSWERS {
            answers.clear();
        }
        answers.insert(queue.to_owned(), (Instant::now(), exists));
        Ok(exists)
    }

    /// No code panics while it holds the lock.
    fn answers(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, bool)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
