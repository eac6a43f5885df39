//! The rules S1 to S4 one by one, as a table, and on random worlds against an oracle.

use std::sync::Arc;

use bindery_core::guard::check_steering;
use bindery_core::steer::{Choice, Reservation, SteerWrite};
use bindery_core::{Claim, ClaimTarget, Lookup, Volume, VolumeTarget};
use bindery_kit::check_all;
use proptest::collection::vec;
use proptest::prelude::any;

use crate::case::{World, word};
use crate::oracle::may;
use crate::table::{self, key};

/// S1 to S4.
const TABLE: &str = include_str!("steer.txt");

/// What the rows of the table expect.
pub(crate) fn expected() -> impl Iterator<Item = &'static str> {
    table::lines(TABLE).into_iter().map(|(_, _, [_, _, expected])| expected)
}

/// The write of that name, in the versions that the world has.
fn write(world: &World, words: &str) -> SteerWrite {
    let words: Vec<&str> = words.split_whitespace().collect();
    let volume = |name: &str| -> VolumeTarget {
        match world.volumes.get(name) {
            Some(Lookup::Found(volume)) => volume.target(),
            _ => crate::case::volume(name).target(),
        }
    };
    let claim = |name: &str| -> ClaimTarget {
        match world.claims.get(&key(name)) {
            Some(Lookup::Found(claim)) => claim.target(),
            _ => crate::case::claim(name).target(),
        }
    };
    let choice = |name: &str, withdrawn| {
        let VolumeTarget { name, uid, .. } = volume(name);
        Choice { volume: name, uid, withdrawn }
    };
    match words[..] {
        ["choose", c, v] => SteerWrite::Choose { claim: claim(c), choice: choice(v, false) },
        ["withdraw", c, v] => SteerWrite::Choose { claim: claim(c), choice: choice(v, true) },
        ["fence", v, c] => SteerWrite::Fence { volume: volume(v), claim: claim(c) },
        ["reserve", v, c] => {
            let ClaimTarget { key, uid, .. } = claim(c);
            SteerWrite::Reserve {
                volume: volume(v),
                reservation: Reservation { claim: key, uid, released: false },
            }
        }
        ["touch", c] => SteerWrite::Touch { claim: claim(c) },
        ["release", v] => SteerWrite::Release { volume: volume(v) },
        ["label", v, c] => {
            let ClaimTarget { key, uid, .. } = claim(c);
            SteerWrite::Label {
                volume: volume(v),
                reservation: Reservation { claim: key, uid, released: false },
            }
        }
        ["unlabel", v, c] => SteerWrite::Unlabel { volume: volume(v), claim: key(c) },
        ["forget", v] => SteerWrite::Forget { volume: volume(v) },
        _ => panic!("no write: {words:?}"),
    }
}

#[test]
fn each_rule_of_mode_steer_allows_and_refuses_as_it_says() {
    let mut wrong = Vec::new();
    for (given, decided, [name, facts, expected]) in table::lines(TABLE) {
        // The usual claim comes first; facts replace it.
        let world = table::case(&format!("sync claim c; {given}; {facts}"), "").world;
        let found = word(&check_steering(&write(&world, decided), &world));
        if found != expected {
            wrong.push(format!("{decided}, {name}: {found}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One of the texts, by the next byte.
fn pick(bytes: &mut impl Iterator<Item = u8>, texts: &[&str]) -> String {
    let byte = usize::from(bytes.next().unwrap_or_default());
    texts[byte % texts.len()].to_owned()
}

fn random_claim(bytes: &mut impl Iterator<Item = u8>) -> String {
    let words = [
        pick(bytes, &["steered", "steered", "steered", ""]),
        pick(
            bytes,
            &["choice=v/u-v", "choice=v/u-v", "choice=v/u-v", "choice=v/u-v/withdrawn", "choice=w/u-w", ""],
        ),
        pick(
            bytes,
            &["", "", "", "", "uid=x", "volume_name=v", "volume_name=w", "deleting", "bind_completed"],
        ),
        pick(bytes, &["", "", "", "", "", "version=c2", "request=6", "status.phase=Bound", "class=gold"]),
    ];
    words.join(" ")
}

fn random_volume(bytes: &mut impl Iterator<Item = u8>) -> String {
    let words = [
        pick(bytes, &["", "", "", "", "claim_ref=c", "claim_ref=c", "claim_ref=c/u-c", "claim_ref=d"]),
        pick(bytes, &["", "reserved_for=c/u-c", "reserved_for=c/u-c/released", "reserved_for=c/x"]),
        pick(bytes, &["", "", "", "", "", "fence=u-c/c1", "fence=u-c/c0", "uid=x", "version=v2"]),
        pick(bytes, &["", "", "", "", "deleting", "phase=Bound", "capacity=1", "class=gold"]),
        pick(
            bytes,
            &["", "", "labels=c.ns.steer.bindery.dev/claim:u-c", "labels=c.ns.steer.bindery.dev/claim:"],
        ),
    ];
    words.join(" ")
}

/// A write on a world, in which live reads mostly show what the caches have.
fn trial(bytes: &[u8]) -> Result<(bool, &'static str), String> {
    let bytes = &mut bytes.iter().copied();
    let (claim, volume) = (random_claim(bytes), random_volume(bytes));
    let live_claim = if bytes.next().unwrap_or(0) < 192 { claim.clone() } else { random_claim(bytes) };
    let live_volume = if bytes.next().unwrap_or(0) < 192 { volume.clone() } else { random_volume(bytes) };
    let other = pick(bytes, &["", "", "; volume w claim_ref=c", "; volume w claim_ref=c/u-c; own v"]);
    let class = pick(bytes, &["", "", "class=local"]);
    let own = pick(bytes, &["; own v", "", "; own v; rejected v"]);
    let given = format!(
        "sync claim c; class local binding_mode=WaitForFirstConsumer; claim c {class} {claim}; \
         volume v {class} {volume}; proof claim c {class} {live_claim}; \
         proof volume v {class} {live_volume}; proof volume w{other}{own}"
    );
    let world = table::case(&given, "").world;
    let writes = [
        "choose c v",
        "choose c w",
        "withdraw c v",
        "fence v c",
        "reserve v c",
        "touch c",
        "release v",
        "forget v",
        "label v c",
        "unlabel v c",
    ];
    let name = writes[usize::from(bytes.next().unwrap_or_default()) % writes.len()];
    let write = write(&world, name);
    let allowed = may(&write, &world);
    let answer = check_steering(&write, &world);
    if answer.is_ok() == allowed {
        return Ok((allowed, name));
    }
    Err(format!("{name}: the guard says {}, the oracle {allowed}: {given}", word(&answer)))
}

#[test]
fn the_guard_allows_what_the_oracle_allows_in_mode_steer() {
    let outcomes = check_all(&vec(any::<u8>(), 16..32), ("BINDERY_CASES", 40_000), |bytes| trial(bytes));
    for name in ["choose", "withdraw", "fence", "reserve", "touch", "release", "forget", "label", "unlabel"] {
        let of_name = |outcome: &&(bool, &str)| outcome.1.starts_with(name);
        let allowed = outcomes.iter().filter(of_name).filter(|(allowed, _)| *allowed).count();
        assert!(allowed > 20, "{name} is allowed {allowed} times");
    }
}

/// The objects of a look-up that found something.
pub(crate) fn found<T>(lookup: Option<&Lookup<Arc<T>>>) -> Option<&T> {
    match lookup {
        Some(Lookup::Found(object)) => Some(object),
        _ => None,
    }
}

/// The volume of that name, and the claim of that name, as the overlay has them.
pub(crate) fn cached<'a>(
    world: &'a World,
    volume: &str,
    claim: &str,
) -> (Option<&'a Volume>, Option<&'a Claim>) {
    (found(world.volumes.get(volume)), found(world.claims.get(&key(claim))))
}
