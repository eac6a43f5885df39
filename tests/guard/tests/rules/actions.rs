//! Decisions in text: actions separated by semicolons, in the words of the engine's tables, then how the
//! decision goes on.
//!
//! An action that is tolerated to fail ends with `?`, one that follows regardless with `!`. A target is the
//! object of that name in the request or in what was read; `NAME@UID@VERSION` is another one.

use bindery_core::{
    Action, Answer, CapacityChange, ClaimTarget, Decision, Edit, Event, EventKind, FinalizerEdit, Follows,
    Lookup, Message, Operation, Outcome, Quantity, ReclaimPolicy, Regarding, Step, Subject, Text,
    VolumePhase, VolumeTarget,
};
use bindery_kit::words::{self, first};

use crate::case::TestCase;
use crate::table::key;

/// The decision of these parts.
pub(crate) fn decision<'a>(case: &TestCase, parts: impl Iterator<Item = &'a str>) -> Decision {
    let mut decision = Decision::done();
    for part in parts {
        match first(part) {
            ("continue", at) => decision.outcome = Outcome::Continue(words::point(at)),
            ("wait", time) => decision.wait_ms = time.parse().expect("milliseconds"),
            _ => decision.steps.push(step(case, part)),
        }
    }
    decision
}

fn step(case: &TestCase, part: &str) -> Step {
    let (part, follows) = match (part.strip_suffix('?'), part.strip_suffix('!')) {
        (Some(part), _) => (part, Follows::Tolerated),
        (_, Some(part)) => (part, Follows::Regardless),
        _ => (part, Follows::Success),
    };
    let words: Vec<_> = part.split_whitespace().collect();
    Step { action: action(case, &words), follows }
}

fn action(case: &TestCase, words: &[&str]) -> Action {
    let (volume, claim) = (|name| volume_target(case, name), |name| claim_target(case, name));
    let says = |word: &str| words.contains(&word);
    match *words {
        ["reserve", v, "for", c, ..] => {
            Action::ReserveVolume { volume: volume(v), claim: claim(c), mark: says("mark") }
        }
        ["volume", v, phase, ref message @ ..] => {
            let phase = words::case(phase);
            Action::SetVolumePhase { volume: volume(v), phase, message: self::message(phase, message) }
        }
        ["bind", c, "to", v, ..] => {
            let (set_volume_name, mark) = (says("name"), says("mark"));
            Action::BindClaim { claim: claim(c), volume: volume(v), set_volume_name, mark }
        }
        ["claim", c, phase, ..] => {
            let modes: Vec<_> = words.iter().filter_map(|word| word.strip_prefix('+')).collect();
            Action::SetClaimStatus {
                claim: claim(c),
                phase: words::case(phase),
                access_modes: match modes[..] {
                    [] if says("-modes") => Edit::Remove,
                    [] => Edit::Keep,
                    _ => Edit::Set(words::access_modes(&modes.join(","))),
                },
                capacity: capacity(words),
                attributes_class: edit(words, "attributes"),
            }
        }
        ["class", c, class] => Action::SetClaimClass { claim: claim(c), class: class.into() },
        ["annotate", "claim", c, ..] => Action::AnnotateClaim {
            claim: claim(c),
            provisioner: value(words, "provisioner").map(Text::from),
            migrated_to: edit(words, "migrated-to"),
        },
        ["annotate", "volume", v, ..] => Action::AnnotateVolume {
            volume: volume(v),
            migrated_to: edit(words, "migrated-to"),
            in_tree_finalizer: finalizer(words, "in-tree"),
            external_finalizer: finalizer(words, "external"),
        },
        ["unselect-node", c] => Action::RemoveSelectedNode { claim: claim(c) },
        ["set-policy", v, policy] => {
            Action::SetReclaimPolicy { volume: volume(v), policy: ReclaimPolicy::of_name(policy) }
        }
        ["unbind", v, clear] => Action::UnbindVolume { volume: volume(v), clear: words::case(clear) },
        ["create", name, "for", c, class, plugin] => {
            let (name, class, plugin) = (name.into(), class.into(), plugin.into());
            Action::CreateVolume { claim: claim(c), name, class, plugin }
        }
        ["delete", v] => Action::DeleteVolume { volume: volume(v) },
        ["start", kind, uid, ref plugin @ ..] => {
            let plugin = plugin.concat().as_str().into();
            Action::StartOperation(Operation { kind: words::case(kind), plugin, uid: uid.into() })
        }
        ["call", plugin, operation] => {
            Action::CallPlugin { plugin: plugin.into(), operation: words::case(operation) }
        }
        ["enqueue", c] => Action::EnqueueClaim(key(c)),
        ["tell", "volume", v] => event(Regarding::Volume(volume(v))),
        ["tell", "claim", c] => event(Regarding::Claim(claim(c))),
        _ => panic!("no action: {words:?}"),
    }
}

fn event(regarding: Regarding) -> Action {
    Action::Emit(Event { regarding, kind: EventKind::VolumeRecycled })
}

fn message(phase: VolumePhase, words: &[&str]) -> Message {
    match *words {
        [] if phase == VolumePhase::Failed => Message::UnknownReclaimPolicy,
        [] => Message::Empty,
        ["DeleteFailed", error] => Message::DeleteFailed(error.into()),
        [name, ..] => words::case(name),
    }
}

fn value<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn edit(words: &[&str], name: &str) -> Edit<Text> {
    let is_removed = words.iter().any(|word| word.strip_prefix('-') == Some(name));
    let otherwise = if is_removed { Edit::Remove } else { Edit::Keep };
    value(words, name).map_or(otherwise, |text| Edit::Set(text.into()))
}

fn finalizer(words: &[&str], name: &str) -> FinalizerEdit {
    let has = |sign: char| words.iter().any(|word| word.strip_prefix(sign) == Some(name));
    match (has('+'), has('-')) {
        (true, _) => FinalizerEdit::Add,
        (_, true) => FinalizerEdit::Remove,
        _ => FinalizerEdit::Keep,
    }
}

fn capacity(words: &[&str]) -> CapacityChange {
    let quantity = |text| Quantity::parse(text).expect("a quantity");
    match (value(words, "capacity"), value(words, "storage")) {
        (Some(whole), _) => CapacityChange::Whole(quantity(whole)),
        (_, Some(storage)) => CapacityChange::Storage(quantity(storage)),
        _ if words.contains(&"-capacity") => CapacityChange::Remove,
        _ => CapacityChange::Keep,
    }
}

fn volume_target(case: &TestCase, name: &str) -> VolumeTarget {
    if let [name, uid, version] = name.split('@').collect::<Vec<_>>()[..] {
        return VolumeTarget { name: name.into(), uid: uid.into(), version: version.into() };
    }
    let own = match &case.request.subject {
        Subject::SyncVolume(volume) | Subject::ReviewVolume { new: volume, .. } => Some(volume.target()),
        Subject::SyncVolumeOperation(progress) => Some(progress.object.target()),
        _ => None,
    };
    let read = case.exchanges.iter().filter_map(|exchange| match &exchange.answer {
        Answer::Volume(Lookup::Found(volume)) => Some(volume.target()),
        _ => None,
    });
    let found = own.into_iter().chain(read).find(|target| *target.name == *name);
    found.unwrap_or_else(|| panic!("no volume {name} was read"))
}

fn claim_target(case: &TestCase, name: &str) -> ClaimTarget {
    if let [name, uid, version] = name.split('@').collect::<Vec<_>>()[..] {
        return ClaimTarget { key: key(name), uid: uid.into(), version: version.into() };
    }
    let own = match &case.request.subject {
        Subject::SyncClaim(claim) | Subject::ReviewClaim { new: claim, .. } => Some(claim.target()),
        Subject::SyncClaimOperation(progress) => Some(progress.object.target()),
        _ => None,
    };
    let read = case.exchanges.iter().filter_map(|exchange| match &exchange.answer {
        Answer::Claim(Lookup::Found(claim)) => Some(claim.target()),
        _ => None,
    });
    let found = own.into_iter().chain(read).find(|target| *target.key.name == *name);
    found.unwrap_or_else(|| panic!("no claim {name} was read"))
}
