//! From a scene to the next step.
//!
//! Forward, while the queue is not as wanted: temporaries, sources moved to `in`, lever pulled, queue drained and
//! replaced. Then back, as also after giving up: lever set, sources moved to the queue again, shelter emptied,
//! temporaries removed. Every step leaves a scene from which the same function finds the step after it.

use super::{Action, MAX_QUEUE_BYTES, Scene, Temporary};

/// Where to: to the queue as wanted, or back to how it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To the queue as wanted.
    Migrate,
    /// Back: nothing leaves the queue, so everything is put as it was.
    Retreat,
}

/// What a running migration has seen since it started, and the broker can't tell at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The queue was seen to be empty, just now, with the lever pulled.
    pub drained: bool,
    /// The shelter was seen to be empty, just now, with the lever set.
    pub returned: bool,
}

impl Known {
    /// What is known once `action` is done; what was seen to be empty stays so only while nothing can get there.
    #[must_use]
    pub fn after(self, action: &Action) -> Self {
        Self {
            drained: *action == Action::Drain,
            returned: match action {
                Action::Return => true,
                Action::PullLever | Action::Remove(Temporary::Shelter) => false,
                _ => self.returned,
            },
        }
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// This, and then to look again.
    Do(Action),
    /// Nothing: the queue is as wanted (or, after a retreat, as it was), and nothing temporary is left.
    Done,
    /// It can't be done.
    Refuse(Refusal),
}

/// Why a queue can't be migrated. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No topology file has it.
    #[error("queue {0:?} is in no topology file, so nothing says what it should be")]
    NotWanted(String),
    /// There is nothing to migrate.
    #[error("queue {0:?} does not exist on the broker")]
    NotThere(String),
    /// It belongs to one connection.
    #[error("queue {0:?} is exclusive: it belongs to one connection and goes with it")]
    Exclusive(String),
    /// It is a stream, whose messages are not taken out by reading.
    #[error("queue {0:?} is a stream: its messages can't be moved by consuming them")]
    Stream(String),
    /// A delay queue: moving its messages would start their delays anew.
    #[error("queue {0:?} holds messages for a time, which moving them would start anew")]
    Delay(String),
    /// A queue that no migration made has the name of the shelter.
    #[error("a queue {0:?} exists that no migration made: it needs another name")]
    Foreign(String),
    /// The temporary names would be too long.
    #[error(
        "the name {0:?} has more than {MAX_QUEUE_BYTES} bytes: the temporary names would be longer than AMQP allows"
    )]
    TooLong(String),
}

/// The next step of the migration of `scene`'s queue.
pub fn next(scene: &Scene<'_>, intent: Intent, known: Known) -> Next {
    if let Some(refusal) = refusal(scene) {
        return Next::Refuse(refusal);
    }
    if scene.queue.is_none() {
        return Next::Do(Action::Declare);
    }
    let action = if scene.is_as_wanted() || intent == Intent::Retreat {
        back(scene, intent, known)
    } else {
        Some(forward(scene, known))
    };
    action.map_or(Next::Done, Next::Do)
}

fn refusal(scene: &Scene<'_>) -> Option<Refusal> {
    let name = || scene.name.to_owned();
    let Some(wanted) = scene.wanted else {
        return Some(Refusal::NotWanted(name()));
    };
    if scene.name.len() > MAX_QUEUE_BYTES {
        return Some(Refusal::TooLong(name()));
    }
    if wanted.arguments.contains_key("x-message-ttl") {
        return Some(Refusal::Delay(name()));
    }
    if let Some(shelter) = scene.shelter {
        let theirs = shelter.arguments.get("x-dead-letter-exchange");
        if theirs.and_then(|name| name.as_str()) != Some(&Temporary::Back.of(scene.name)) {
            return Some(Refusal::Foreign(shelter.name.clone()));
        }
    }
    match scene.queue {
        // Deleted and not declared again yet: only a migration that was killed there leaves the shelter.
        None if scene.shelter.is_none() => Some(Refusal::NotThere(name())),
        Some(queue) if queue.exclusive => Some(Refusal::Exclusive(name())),
        Some(queue) if queue.kind == "stream" => Some(Refusal::Stream(name())),
        _ => None,
    }
}

fn forward(scene: &Scene<'_>, known: Known) -> Action {
    // A retreat that was killed: what waits goes home before the next attempt.
    let waiting = scene.shelter.is_some_and(|shelter| shelter.messages > Some(0));
    if scene.lever && waiting && !known.returned {
        return give_back(scene);
    }
    let make = [
        (scene.shelter.is_some(), Action::Make(Temporary::Shelter)),
        (scene.has_back, Action::Make(Temporary::Back)),
        (scene.has_next, Action::Make(Temporary::Next)),
        (scene.caught, Action::Catch),
        (scene.has_in, Action::Make(Temporary::In)),
    ];
    if let Some((_, action)) = make.into_iter().find(|(there, _)| !there) {
        return action;
    }
    if let Some(link) = scene.direct.first() {
        // Without the lever, and with no source moved yet: the migration has only begun. With sources moved: somebody
        // bound the queue anew while it was being drained, and every message reaches both queues until that is cut.
        return match scene.direct.iter().find(|link| !scene.routed.contains(link)) {
            _ if !scene.lever && scene.routed.is_empty() => Action::SetLever,
            Some(missing) => Action::Route(missing.clone()),
            None => Action::Cut(link.clone()),
        };
    }
    if scene.lever {
        return Action::PullLever;
    }
    if known.drained {
        Action::Delete
    } else {
        Action::Drain
    }
}

fn back(scene: &Scene<'_>, intent: Intent, known: Known) -> Option<Action> {
    if !scene.has_leftovers() {
        return None;
    }
    let wanted: &[_] = match intent {
        Intent::Migrate => &scene.wanted_links,
        Intent::Retreat => &[],
    };
    if scene.has_in {
        if !scene.lever {
            return Some(Action::SetLever);
        }
        let mut missing = scene.routed.iter().chain(wanted);
        if let Some(link) = missing.find(|link| !scene.direct.contains(link)) {
            return Some(Action::Join(link.clone()));
        }
        if let Some(link) = scene.routed.first() {
            return Some(Action::Leave(link.clone()));
        }
    }
    if scene.shelter.is_some() {
        return Some(if known.returned {
            Action::Remove(Temporary::Shelter)
        } else {
            give_back(scene)
        });
    }
    let there = [
        (scene.has_in, Temporary::In),
        (scene.has_next, Temporary::Next),
        (scene.has_back, Temporary::Back),
    ];
    there
        .into_iter()
        .find_map(|(there, temporary)| there.then_some(Action::Remove(temporary)))
}

fn give_back(scene: &Scene<'_>) -> Action {
    if !scene.has_back {
        Action::Make(Temporary::Back)
    } else if !scene.way_back {
        Action::OpenReturn
    } else {
        Action::Return
    }
}
