//! Performs a plan: first what is added, then exchanges to replace, then what is pruned.
//!
//! In this order nothing that is published falls between an old binding and its new one. May import: `broker`,
//! `topology`, `services`.

use serde_json::{Value, json};
use tidegate_core::ladder::Destination;

use super::{
    super::{
        failure::{Detail, Failure},
        output::Output,
        services,
    },
    apply::{amqp, declare_failed, good_bye, progress},
    plan::{Planned, read},
};
use crate::{
    broker::{
        declare,
        management::Management,
        prune::{self, PruneError},
        replace::{self, Replaced},
    },
    config::Config,
    topology::{
        Exchange,
        live::LiveBinding,
        plan::{Change, Extra, Remedy, plan, shown},
    },
};

/// What may be done beside adding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) prune: bool,
    pub(super) replace_exchanges: bool,
}

/// What was done, and what is still open.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Objects that are as described now.
    pub(super) objects: usize,
    pub(super) added: usize,
    pub(super) changed: usize,
    pub(super) replaced: usize,
    pub(super) pruned: usize,
    /// Extras that are there and were not asked for.
    pub(super) extra: usize,
    /// What is in the way, was left out, or was kept.
    pub(super) open: Vec<Detail>,
}

impl Done {
    /// For programs.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "objects": self.objects,
            "added": self.added,
            "changed": self.changed,
            "replaced": self.replaced,
            "pruned": self.pruned,
            "extra": self.extra,
        })
    }

    /// For people.
    pub(super) fn sentence(&self) -> String {
        let mut parts = vec![format!("{} added", self.added)];
        for (count, what) in [
            (self.changed, "changed"),
            (self.replaced, "replaced"),
            (self.pruned, "pruned"),
            (self.extra, "extra left"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        parts.join(", ")
    }
}

/// Performs `planned`.
pub(super) async fn perform(
    mut planned: Planned,
    management: &Management,
    wish: Wish,
    config: &Config,
    output: Output,
) -> Result<(Planned, Done), Failure> {
    let mut done = Done::default();
    if wish.replace_exchanges {
        replace_exchanges(&mut planned, management, config, output, &mut done).await?;
    }
    let (objects, left_out) = planned.plan.adds();
    if !objects.is_empty() {
        let connection = amqp(config).await?;
        let result = declare::apply(&connection, &objects, progress(output)).await;
        good_bye(&connection, config).await;
        result.map_err(|error| declare_failed(&error, config))?;
    }
    for policy in &objects.policies {
        let set = management.set_policy(policy).await;
        set.map_err(|error| services::of_management(&error, config))?;
    }
    let edits = planned
        .plan
        .changes
        .iter()
        .filter(|change| matches!(change, Change::Edit(_)));
    done.changed = edits.count();
    done.added = objects.len() + objects.policies.len() - done.changed;

    let open: Vec<&Change> = planned
        .plan
        .changes
        .iter()
        .filter(|change| matches!(change, Change::Conflict(_) | Change::Migrating(_)))
        .collect();
    done.objects = planned.plan.wanted.saturating_sub(open.len() + left_out.len());
    done.open
        .extend(open.into_iter().flat_map(|change| details(change, &planned)));
    done.open.extend(left_out.into_iter().map(|name| Detail {
        text: shown(&format!("{name} left out: one of its ends is in conflict")),
        data: json!({"object": name.name, "kind": name.kind.as_str(), "leftOut": true}),
    }));
    let extras: Vec<&Extra> = planned.plan.extras().collect();
    if wish.prune && !extras.is_empty() {
        prune_all(&extras, management, config, &mut done).await?;
    } else {
        done.extra = extras.len();
    }
    Ok((planned, done))
}

async fn prune_all(
    extras: &[&Extra],
    management: &Management,
    config: &Config,
    done: &mut Done,
) -> Result<(), Failure> {
    let connection = amqp(config).await?;
    let result = prune::prune(&connection, management, extras).await;
    good_bye(&connection, config).await;
    let pruned = result.map_err(|error| match error {
        PruneError::Amqp(error) => declare_failed(&error, config),
        PruneError::Management(error) => services::of_management(&error, config),
    })?;
    done.pruned = pruned.deleted.len();
    done.extra = pruned.kept.len();
    done.open.extend(pruned.kept.into_iter().map(|kept| Detail {
        text: shown(&format!("{} kept: {}", kept.object, kept.why)),
        data: json!({"object": kept.object.name, "kind": kept.object.kind.as_str(), "kept": kept.why}),
    }));
    Ok(())
}

/// Replaces what can be, and plans anew on what is there then.
async fn replace_exchanges(
    planned: &mut Planned,
    management: &Management,
    config: &Config,
    output: Output,
    done: &mut Done,
) -> Result<(), Failure> {
    let is_replaceable = |name: &str| {
        let remedy = Remedy::ReplaceExchange {
            exchange: name.to_owned(),
        };
        planned
            .plan
            .conflicts()
            .any(|conflict| conflict.remedies.contains(&remedy))
    };
    let exchanges: Vec<&Exchange> = planned
        .wanted
        .exchanges
        .iter()
        .filter(|e| is_replaceable(&e.name))
        .collect();
    if exchanges.is_empty() {
        return Ok(());
    }
    let connection = amqp(config).await?;
    for exchange in exchanges {
        let name = exchange.name.as_str();
        let touches =
            |b: &&LiveBinding| b.source == name || b.destination == Destination::Exchange(name.to_owned());
        let bindings: Vec<LiveBinding> = planned.live.bindings.iter().filter(touches).cloned().collect();
        let result = replace::exchange(&connection, exchange, &bindings).await;
        match result.map_err(|error| declare_failed(&error, config))? {
            Replaced::Done(refused) => {
                done.replaced += 1;
                for (binding, why) in refused {
                    output.message(&format!(
                        "warning: {} was not bound to exchange {name} again; restart its owner, which binds it: {}",
                        shown(binding.destination_name()),
                        shown(&why)
                    ));
                }
            }
            Replaced::Refused(why) => done.open.push(Detail {
                text: format!("exchange {name} was not replaced: {}", shown(&why)),
                data: json!({"object": name, "kind": "exchange", "kept": why}),
            }),
        }
    }
    good_bye(&connection, config).await;
    planned.live = read(management, config).await?;
    planned.plan = plan(&planned.wanted, &planned.live, &planned.scope);
    Ok(())
}

/// One for each property that differs, so that a program finds it by name.
fn details(change: &Change, planned: &Planned) -> Vec<Detail> {
    let advice = change.advice();
    let Change::Conflict(conflict) = change else {
        let text = format!("{}: a migration is under way: {advice}", change.object());
        return vec![Detail {
            text,
            data: change.to_json(),
        }];
    };
    let json = change.to_json();
    let differences = json["differences"].as_array().into_iter().flatten();
    let sentence = shown(&format!(
        "{}; fix: {advice}",
        conflict.sentence(planned.live.version)
    ));
    let data = |difference: &Value| {
        let mut data = difference.clone();
        data["object"] = conflict.object.name.as_str().into();
        data["kind"] = conflict.object.kind.as_str().into();
        data["message"] = sentence.as_str().into();
        data
    };
    // For people one line has them all.
    let mut lines = vec![sentence.clone()].into_iter();
    differences
        .map(|difference| Detail {
            text: lines.next().unwrap_or_default(),
            data: data(difference),
        })
        .collect()
}
