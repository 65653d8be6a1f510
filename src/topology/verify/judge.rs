//! What was sent against what came out, and the hop that is broken where it did not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Batch, Hop, Probe,
    hop::{Fault, in_force, policy_kind},
};
use crate::topology::{live::Live, objects, plan::force::Policies};

/// How publishing one probe ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Copies that a queue confirmed; each must come out.
    pub confirmed: u32,
    /// Why one was not taken, in words.
    pub refused: Option<String>,
}

/// A probe that came out of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number in the batch.
    pub probe: usize,
    /// The queue it came out of.
    pub queue: String,
    /// The key it came with.
    pub key: String,
    /// The queues it died in on its way. In no order: 3.10 doesn't keep one.
    pub deaths: Vec<Death>,
}

/// A stay in a queue that ended in its dead-letter exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The queue.
    pub queue: String,
    /// `rejected`, `expired`, `maxlen` or `delivery_limit`.
    pub reason: String,
}

/// A hop that does not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// From where to where.
    pub hop: String,
    /// What is wrong with it.
    pub why: String,
    /// What to do.
    pub next: String,
    /// What did not come out because of it.
    pub probes: Vec<String>,
}

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Routes that were tried.
    pub tried: usize,
    /// Those that delivered.
    pub delivered: usize,
    /// What is broken, each hop once for each reason.
    pub broken: Vec<Broken>,
    /// What was not verified, and why.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds a finding to the others of the same hop and reason.
    pub fn add(&mut self, hop: &str, why: &str, next: &str, probe: String) {
        let same = |b: &&mut Broken| b.hop == hop && b.why == why;
        if let Some(broken) = self.broken.iter_mut().find(same) {
            broken.probes.push(probe);
            return;
        }
        self.broken.push(Broken {
            hop: hop.to_owned(),
            why: why.to_owned(),
            next: next.to_owned(),
            probes: vec![probe],
        });
    }

    /// Adds what can be seen without sending anything: delay queues that hold messages for another time than they should, and
    /// queues that are deleted with what is in them.
    pub fn add_times(&mut self, objects: &objects::Objects, live: &Live) {
        let policies = Policies::new(live);
        for wanted in &objects.queues {
            let Some(queue) = live.queue(&wanted.name) else {
                continue;
            };
            if queue.arguments.contains_key("x-expires") {
                let why = "it is deleted with what is in it when nobody consumes it (x-expires)";
                self.add_kept(&wanted.name, why, &migrate(&wanted.name));
            }
            let ttl = match wanted.arguments.get("x-message-ttl") {
                Some(objects::Value::Int(ttl)) => Some(*ttl),
                _ => None,
            };
            let own = queue.arguments.get("x-message-ttl").and_then(Value::as_i64);
            if let Some(ttl) = ttl
                && own != Some(ttl)
            {
                let own = own.map_or_else(|| "for ever".to_owned(), |own| format!("for {own} ms"));
                let why = format!("it holds messages {own} instead of {ttl} ms");
                self.add_kept(&wanted.name, &why, &migrate(&wanted.name));
            }
            for policy in in_force(live, &policies, queue) {
                let (kind, name) = (policy_kind(policy), &policy.name);
                let next = format!("narrow its pattern {:?}, or remove it", policy.pattern);
                if policy.definition.contains_key("expires") {
                    let why = format!("{kind} {name:?} deletes it when nobody consumes it");
                    self.add_kept(&wanted.name, &why, &next);
                }
                let shorter = policy.definition.get("message-ttl").and_then(Value::as_i64);
                if let (Some(ttl), Some(shorter)) = (ttl, shorter)
                    && shorter < ttl
                {
                    let why = format!("{kind} {name:?} lets messages out too early");
                    self.add_kept(&wanted.name, &why, &next);
                }
            }
        }
    }

    fn add_kept(&mut self, queue: &str, why: &str, next: &str) {
        self.add(queue, why, next, format!("a message in {queue}"));
    }
}

fn migrate(queue: &str) -> String {
    format!("run `tidegate topology migrate {queue}`")
}

/// Whether `arrival` is what `probe` was sent for.
fn is_right(probe: &Probe, arrival: &Arrival) -> bool {
    let came = arrival.queue == probe.end && arrival.key == probe.end_key;
    let died = |reason: &str| arrival.deaths.iter().all(|d| d.reason == reason);
    let queues: BTreeSet<&str> = arrival.deaths.iter().map(|d| d.queue.as_str()).collect();
    came && match &probe.reject_in {
        // Rejected where it was to be, and not expired or dropped there.
        Some(queue) => died("rejected") && queues.contains(queue.as_str()),
        None => died("expired") && queues == probe.delays().into_iter().collect(),
    }
}

/// How many copies of each probe are still missing.
pub fn missing(batch: &Batch, sent: &[Sent], arrivals: &[Arrival]) -> Vec<u32> {
    let mut missing: Vec<u32> = sent.iter().map(|sent| sent.confirmed).collect();
    for arrival in arrivals {
        let (Some(probe), Some(missing)) = (batch.probes.get(arrival.probe), missing.get_mut(arrival.probe))
        else {
            continue;
        };
        if is_right(probe, arrival) {
            *missing = missing.saturating_sub(1);
        }
    }
    missing
}

/// Judges a batch: what is missing, and why.
pub fn judge(report: &mut Report, batch: &Batch, live: &Live, sent: &[Sent], arrivals: &[Arrival]) {
    let missing = missing(batch, sent, arrivals);
    let mut came: BTreeMap<usize, Vec<&Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        came.entry(arrival.probe).or_default().push(arrival);
    }
    for (number, probe) in batch.probes.iter().enumerate() {
        report.tried += 1;
        let sent = sent.get(number).cloned().unwrap_or_default();
        if sent.confirmed > 0 && missing[number] == 0 {
            report.delivered += 1;
            continue;
        }
        let mut came = came.remove(&number).unwrap_or_default();
        // There it was to be rejected, and was.
        came.retain(|arrival| probe.reject_in.as_ref() != Some(&arrival.queue));
        let (hop, fault) = blame(probe, live, &sent, &came);
        report.add(&hop.to_string(), &fault.why, &fault.next, probe.what.clone());
    }
}

/// The hop that is to blame and what is wrong with it.
fn blame<'p>(probe: &'p Probe, live: &Live, sent: &Sent, came: &[&Arrival]) -> (&'p Hop, Fault) {
    // An object that is missing or differs explains it best.
    if let Some(found) = probe.path.iter().find_map(|hop| Some((hop, hop.fault(live)?))) {
        return found;
    }
    let hop = reached(probe, came);
    let wrong = came.iter().find(|arrival| !is_right(probe, arrival));
    let why = match (wrong, &sent.refused) {
        (Some(arrival), _) => way(probe, arrival),
        (None, Some(refused)) => format!("it was not taken: {refused}"),
        (None, None) => "it did not come out".to_owned(),
    };
    let policies = policies(probe, live);
    let next = if policies.is_empty() {
        "look at what `tidegate topology plan` shows as extra: a binding that nobody asked for, a policy"
            .to_owned()
    } else {
        format!("look at what is in force there: {}", policies.join(", "))
    };
    (hop, Fault { why, next })
}

/// Where a probe went instead.
fn way(probe: &Probe, arrival: &Arrival) -> String {
    let mut why = format!("it came out of {} instead", arrival.queue);
    if arrival.queue == probe.end {
        "it came out another way".clone_into(&mut why);
    }
    if !arrival.deaths.is_empty() {
        let stays = arrival
            .deaths
            .iter()
            .map(|d| format!("{} ({})", d.queue, d.reason));
        why = format!("{why}, by {}", stays.collect::<Vec<_>>().join(", "));
    }
    why
}

/// The hop that went wrong: out of a queue as it should not, or the one after the last of which there is a trace.
fn reached<'p>(probe: &'p Probe, came: &[&Arrival]) -> &'p Hop {
    let dropped = |queue: &String| {
        let mut deaths = came.iter().flat_map(|a| &a.deaths);
        deaths.any(|d| d.queue == *queue && !matches!(d.reason.as_str(), "rejected" | "expired"))
    };
    let wrong = probe.path.iter().find(|hop| match hop {
        Hop::Rejected { queue, .. } | Hop::Expires { queue, .. } => dropped(queue),
        _ => false,
    });
    if let Some(wrong) = wrong {
        return wrong;
    }
    let died_in = |queue: &String| came.iter().any(|a| a.deaths.iter().any(|d| d.queue == *queue));
    let trace = probe.path.iter().rposition(|hop| match hop {
        Hop::Rejected { queue, .. } | Hop::Expires { queue, .. } => died_in(queue),
        _ => false,
    });
    let next = trace.map_or(0, |at| at + 1);
    let dies = probe.path[next.min(probe.path.len() - 1)..].iter().find(|hop| {
        matches!(
            hop,
            Hop::Expires { .. } | Hop::Rejected { .. } | Hop::Waits { .. }
        )
    });
    dies.unwrap_or_else(|| &probe.path[probe.path.len() - 1])
}

/// Policies in force on the queues of the way.
fn policies(probe: &Probe, live: &Live) -> Vec<String> {
    let queues = probe.path.iter().filter_map(|hop| match hop {
        Hop::Waits { queue } | Hop::Bound { queue, .. } | Hop::Expires { queue, .. } => live.queue(queue),
        _ => None,
    });
    let policies = Policies::new(live);
    let mut found: Vec<String> = queues
        .flat_map(|queue| in_force(live, &policies, queue))
        .map(|policy| format!("{} {:?}", policy_kind(policy), policy.name))
        .collect();
    found.sort();
    found.dedup();
    found
}
