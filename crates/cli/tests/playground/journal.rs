//! The journal of a playground, replayed.

use std::fs;

use bindery_kit::json;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::running::Playground;
use crate::support::Home;

#[test]
fn the_journal_of_a_playground_is_replayed_the_same() {
    let playground = Playground::start(&["--journal", "journal", "--example", "static-binding"]);
    playground.wait_for("pvc/reports", "Bound");
    let home = playground.stop(Signal::INT);
    let replayed = home.bindery(&["replay", "journal"]);
    assert_eq!(replayed.status, 0, "{replayed:?}");
    let (told, digest) = replayed.stdout.trim_end().rsplit_once("\ndigest of the last: ").unwrap();
    assert!(told.ends_with(" 0 different, 0 not replayable, 0 not decided"), "{replayed:?}");
    let whole = bindery_journal::Reader::open(fs::File::open(home.path().join("journal")).unwrap());
    let mut whole = whole.unwrap();
    whole.by_ref().for_each(|record| drop(record.unwrap()));
    assert_eq!(digest, whole.digest());
    assert!(!replayed.stdout.starts_with("0 records"), "{replayed:?}");
    // A journal after a crash: complete records are replayed.
    let journal = fs::read(home.path().join("journal")).unwrap();
    fs::write(home.path().join("journal"), &journal[..journal.len() - 1]).unwrap();
    let cut = home.bindery(&["replay", "journal"]);
    assert_eq!(cut.status, 2, "{cut:?}");
    assert!(cut.stdout.contains(" 0 different, ") && !cut.stdout.starts_with("0 records"), "{cut:?}");
    assert!(cut.stderr.starts_with("error: journal: "), "{cut:?}");
    for (content, why) in [
        ("nothing", "this is not a decision journal of format 1"),
        ("", "the journal is empty: no decision has been recorded yet"),
    ] {
        fs::write(home.path().join("journal"), content).unwrap();
        let refused = home.bindery(&["replay", "journal"]);
        assert_eq!((refused.status, refused.stderr), (2, format!("error: journal: {why}\n")));
    }
}

/// A document that loads a policy that ships.
fn prefer(fast: u32) -> String {
    let settings = json!({"scores": {"fast": fast}});
    json!({
        "apiVersion": "policy.bindery.dev/v1alpha1", "kind": "MatchPolicy", "metadata": {"name": "tiers"},
        "spec": {"module": "builtin:prefer", "settings": settings},
    })
    .to_string()
}

#[test]
fn a_journal_is_replayed_without_its_policies_and_by_asking_them_again() {
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let documents = Home::new();
    documents.file("tiers.yaml", prefer(40));
    let document = documents.path().join("tiers.yaml").display().to_string();
    let playground =
        Playground::start(&["--journal", "journal", "--policy", &document, "--policies", &shipped]);
    let fast = json!({"metadata": {"labels": {"bindery.dev/tier": "fast"}}});
    let objects = [json::volume("plain", json!({})), json::volume("z", fast), json::claim("c", json!({}))];
    for (at, object) in objects.iter().enumerate() {
        playground.kubectl(&["apply", "-f", &playground.file(&format!("{at}.json"), object)]);
    }
    playground.wait_for("pvc/c", "Bound");
    assert_eq!(playground.field("pvc/c", "{.spec.volumeName}"), "z");
    let home = playground.stop(Signal::INT);

    let without = home.bindery(&["replay", "journal"]);
    assert_eq!(without.status, 0, "{without:?}");
    let rests = without.stdout.lines().next().unwrap();
    assert!(rests.contains(" records rest on the policies sha256:"), "{rests}");
    let replay = |fast: u32, output: &str| {
        home.file("now.yaml", prefer(fast));
        let arguments = ["replay", "journal", "--policy", "now.yaml", "--policies", &shipped, "-o", output];
        home.bindery(&arguments)
    };
    let same = replay(40, "table");
    assert_eq!(same.status, 0, "{same:?}");
    assert!(same.stdout.contains(" 0 different, 0 not asked for again, 0 not recorded\n"), "{same:?}");
    assert!(!same.stdout.contains("answers of policies: 0 the same"), "{same:?}");

    let changed = replay(41, "table");
    assert_eq!(changed.status, 1, "{changed:?}");
    let note = r#"policy tiers: the settings are {"scores":{"fast":41}}, and the recorded ones are "#;
    assert_eq!(changed.stdout.matches(note).count(), 1, "{changed:?}");
    let told = ": policy tiers, volume z\n  then allowed, score 40\n  now  allowed, score 41\n";
    assert!(changed.stdout.contains(told), "{changed:?}");

    let report: Value = serde_json::from_str(&replay(41, "json").stdout).unwrap();
    let asked = &report["askedAgain"];
    assert_eq!(asked["different"].as_u64(), Some(asked["differences"].as_array().unwrap().len() as u64));
    let difference = &asked["differences"][0];
    assert_eq!(difference["now"], "allowed, score 41", "{report}");
    assert_eq!((&report["different"], &report["notDecided"]), (&json!(0), &json!(0)), "{report}");
    let digest = report["policies"].as_object().unwrap().keys().next().unwrap();
    assert!(rests.ends_with(digest) && asked["loaded"] != json!(digest), "{report}");
}
