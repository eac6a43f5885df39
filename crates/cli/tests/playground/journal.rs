//! The journal of a playground, replayed.

use std::fs;

use bindery_journal::What;
use bindery_kit::{OciRegistry, RegistrySettings, json};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::running::Playground;
use crate::support::{Home, engine};

#[test]
fn the_journal_of_a_playground_is_replayed_the_same() {
    let playground = Playground::start(&["--journal", "journal", "--example", "static-binding"]);
    playground.wait_for("pvc/reports", "Bound");
    let home = playground.stop(Signal::INT);
    let replayed = home.done(&["replay", "journal"]);
    let (told, digest) = replayed.stdout.trim_end().rsplit_once("\ndigest of the last: ").unwrap();
    assert!(told.ends_with(" 0 different, 0 not replayable, 0 not decided"), "{replayed:?}");
    let mut whole = bindery_journal::Files::open(&home.path().join("journal")).unwrap();
    whole.by_ref().for_each(|entry| drop(entry.unwrap()));
    assert_eq!(digest, whole.digest().to_string());
    assert!(!told.starts_with("0 records"), "{replayed:?}");
    // The same component uses the same fuel.
    let engine = engine();
    let component = home.done(&["replay", "journal", "--engine", engine.to_str().unwrap()]);
    assert!(component.stdout.starts_with("the fuel of ") && component.stdout.ends_with(&replayed.stdout));
    // A journal after a crash: complete blocks are replayed.
    let file = home.path().join("journal/replica-1-00000001.bjournal");
    let journal = fs::read(&file).unwrap();
    fs::write(&file, &journal[..journal.len() - 1]).unwrap();
    let cut = home.done(&["replay", "journal"]);
    assert!(
        cut.stdout.contains("the journal ends inside a block: ") && !cut.stdout.contains("\n0 records"),
        "{cut:?}"
    );
    // A journal that was changed.
    let mut changed = journal.clone();
    changed[journal.len() / 2] ^= 1;
    fs::write(&file, changed).unwrap();
    let path = "journal/replica-1-00000001.bjournal";
    for (arguments, status) in [(&["replay", "journal"][..], 2), (&["journal", "verify", "journal"], 1)] {
        let found = home.bindery(arguments);
        assert_eq!(found.status, status, "{found:?}");
        // Slow decisions fill several blocks.
        let why = |block| {
            format!("{path}: block {block} is not what was written: its digest does not continue the chain")
        };
        let told = format!("{}{}", found.stdout, found.stderr);
        assert!((1..9).any(|block| told.contains(&why(block))), "{found:?}");
    }
    for (content, why) in [
        ("nothing", "this is not a decision journal of format 1 or 2"),
        ("", "the journal is empty: no decision has been recorded yet"),
    ] {
        fs::write(home.path().join("single"), content).unwrap();
        let refused = home.bindery(&["replay", "single"]);
        assert_eq!((refused.status, refused.stderr), (2, format!("error: single: {why}\n")));
    }
}

#[test]
fn a_journal_is_shown_exported_and_verified() {
    let playground = Playground::start(&["--journal", "journal", "--example", "static-binding"]);
    playground.wait_for("pvc/reports", "Bound");
    let volume = playground.field("pvc/reports", "{.spec.volumeName}");
    let home = playground.stop(Signal::INT);
    let verified = home.done(&["journal", "verify", "journal"]);
    assert!(verified.stdout.contains("  end: its writer has ended it\n"), "{verified:?}");

    let shown = home.done(&["journal", "show", "--object", "claim/default/reports", "journal"]);
    let bound = format!("persistentvolumeclaim default/reports: reserve volume {volume}, ");
    assert!(
        shown.stdout.starts_with("replica playground, engine ") && shown.stdout.contains(&bound),
        "{shown:?}"
    );
    assert!(shown.stdout.contains(": write: bind claim from version "), "{shown:?}");
    let nothing = home.bindery(&["journal", "show", "--until", "2020-01-01T00:00:00Z", "journal"]);
    assert_eq!((nothing.status, &*nothing.stdout), (0, ""));

    let exported = home.done(&["journal", "export", "--object", "claim/default/reports", "journal"]);
    let lines = exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    let entries: Vec<Value> = lines.collect();
    let decided = entries.iter().find_map(|entry| entry.get("decision")).unwrap();
    assert!(decided["fuel"].as_u64().is_some() && decided["guard"] == "passed", "{decided}");
    let claim = &decided["evidence"]["request"]["subject"]["SyncClaim"];
    assert_eq!(claim["key"], json!({"namespace": "default", "name": "reports"}), "{decided}");
    let wrote =
        |entry: &Value| entry["write"]["write"] == "bind claim" && entry["write"]["result"]["Ok"].is_string();
    assert!(entries.iter().any(wrote), "{exported:?}");
    assert!(entries.iter().all(|entry| entry["replica"] == "playground" && entry["time"].is_string()));

    let explain = |more: &[&str]| {
        home.bindery(&[&["explain", "pvc", "reports", "--journal", "journal", "--at"], more].concat())
    };
    let explained = explain(&["2100-01-01T00:00:00Z"]);
    assert_eq!(explained.status, 0, "{explained:?}");
    let first = "persistentvolumeclaim default/reports at 2100-01-01T00:00:00Z\nreplica playground, engine ";
    assert!(explained.stdout.starts_with(first) && explained.stdout.contains(&bound), "{explained:?}");
    let candidate = |line: &str| line.starts_with(&format!("      {volume} ")) && line.ends_with(" free");
    assert!(explained.stdout.lines().any(candidate), "{explained:?}");
    assert!(explained.stdout.contains(": write: bind claim from version "), "{explained:?}");
    let report: Value =
        serde_json::from_str(&explain(&["2100-01-01T00:00:00Z", "-o", "json"]).stdout).unwrap();
    let decision = &report["decisions"][0];
    assert_eq!(decision["candidates"][0]["state"], "free", "{report}");
    assert!(decision["writes"].as_array().is_some_and(|writes| writes.len() >= 2), "{report}");
    let bound_at = explain(&[decision["time"].as_str().unwrap()]);
    assert!(bound_at.status == 0 && bound_at.stdout.contains(&bound), "{bound_at:?}");
    let early = explain(&["2020-01-01T00:00:00Z"]);
    assert_eq!((early.status, &*early.stdout), (2, ""));
    let why = "journal has no decision of persistentvolumeclaim default/reports up to 2020-01-01T00:00:00Z; \
               it begins at ";
    assert!(early.stderr.contains(why), "{early:?}");
}

#[test]
fn a_redacted_journal_has_no_name_of_a_namespace_and_replays() {
    let key = Home::new();
    key.file("key", [7; 32]);
    let key = key.path().join("key").display().to_string();
    let redact = ["--journal-redact-namespaces=true", "--journal-redact-key-file", &key];
    let playground = Playground::start(&[&["--journal", "journal"], &redact[..]].concat());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenantspace"}});
    let claim = json::claim("c", json!({"metadata": {"namespace": "tenantspace"}}));
    for (at, object) in [namespace, json::volume("v", json!({})), claim].iter().enumerate() {
        playground.kubectl(&["apply", "-f", &playground.file(&format!("{at}.json"), object)]);
    }
    let bound = "--for=jsonpath={.status.phase}=Bound";
    playground.kubectl(&["wait", "-n", "tenantspace", bound, "pvc/c", "--timeout=60s"]);
    let home = playground.stop(Signal::INT);
    let exported = home.bindery(&["journal", "export", "journal"]);
    assert!(exported.status == 0 && exported.stdout.contains("redacted-"), "{exported:?}");
    assert!(!exported.stdout.contains("tenantspace"), "{exported:?}");
    home.done(&["journal", "verify", "journal"]);
    let engine = engine();
    let replayed = home.done(&["replay", "journal", "--engine", engine.to_str().unwrap()]);
    assert!(replayed.stdout.contains(" 0 different, 0 not replayable, 0 not decided\n"), "{replayed:?}");
    let told = ["record: ", "records: "]
        .map(|said| format!(" {said}the engine was shown digests in place of what is redacted\n"));
    assert!(says(&replayed.stdout, told), "{replayed:?}");
}

#[test]
fn a_killed_playground_has_journaled_all_but_its_last_second() {
    let playground = Playground::start(&["--journal", "journal", "--example", "static-binding"]);
    playground.wait_for("pvc/reports", "Bound");
    let journal = playground.home().path().join("journal");
    let is_written = || {
        let entries = bindery_journal::Files::open(&journal).into_iter().flatten().flatten();
        let mut writes = entries.filter_map(|entry| match entry.what {
            What::Write(wrote) => Some(wrote),
            _ => None,
        });
        writes.any(|wrote| wrote.write == "set claim status" && wrote.object == "default/reports")
    };
    // It is written although the process does not end.
    while !is_written() {
        std::thread::yield_now();
    }
    let home = playground.kill();
    home.done(&["replay", "journal"]);
    let verified = home.bindery(&["journal", "verify", "journal"]);
    assert!(verified.stdout.contains("its writer writes it still, or was killed"), "{verified:?}");
}

/// What is not written is lost and told; claims are bound as always.
#[test]
fn a_disk_that_takes_nothing_does_not_stop_binding() {
    // Components have images in memory, which count as files.
    let arguments = ["--engine", "native", "--journal", "journal", "--example", "static-binding"];
    let playground = Playground::start_with_small_files(&arguments);
    playground.wait_for("pvc/reports", "Bound");
    let home = playground.stop_with_status(Signal::INT, 2);
    let verified = home.bindery(&["journal", "verify", "journal"]);
    assert!(verified.status == 0 || verified.stderr.contains("has no journal"), "{verified:?}");
}

/// A document that loads a policy that ships.
fn prefer(fast: u32) -> String {
    let spec = json!({"module": "builtin:prefer", "settings": {"scores": {"fast": fast}}});
    json::policy("MatchPolicy", "tiers", &spec).to_string()
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
    for (name, object) in [
        ("pv/plain", json::volume("plain", json!({}))),
        ("pv/z", json::volume("z", fast)),
        ("pvc/c", json::claim("c", json!({}))),
    ] {
        playground.kubectl(&["apply", "-f", &playground.file("object.json", &object)]);
        playground.wait_for(name, if name == "pvc/c" { "Bound" } else { "Available" });
    }
    assert_eq!(playground.field("pvc/c", "{.spec.volumeName}"), "z");
    let home = playground.stop(Signal::INT);

    let without = home.done(&["replay", "journal"]);
    let rests = without.stdout.lines().next().unwrap();
    let told = ["rests", "rest"].map(|said| format!(" {said} on the policies sha256:"));
    assert!(says(rests, told), "{rests}");
    let replay = |fast: u32, output: &str| {
        home.file("now.yaml", prefer(fast));
        let arguments = ["replay", "journal", "--policy", "now.yaml", "--policies", &shipped, "-o", output];
        home.bindery(&arguments)
    };
    let same = replay(40, "table");
    assert_eq!(same.status, 0, "{same:?}");
    assert!(same.stdout.contains(" 0 different, 0 not asked for again, 0 not recorded\n"), "{same:?}");
    assert!(!same.stdout.contains("answers of policies: 0 the same"), "{same:?}");
    let compared = same
        .stdout
        .lines()
        .find(|line| line.contains(" call") && line.ends_with(" of policies was compared"));
    assert!(compared.is_some_and(|line| !line.contains(" of 0 ")), "{same:?}");
    let shown = home.bindery(&["journal", "show", "--object", "claim/default/c", "journal"]);
    for call in [" to narrow\n", " to judge 2 rows\n"] {
        assert!(shown.stdout.contains(&format!(" units of fuel{call}")), "{shown:?}");
    }

    answers_are_the_same_in_policy_test(&home, &shipped);

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

    // What the changed answers make of the decisions: one volume is always before the other.
    let effects = json!({"rejected": 0, "otherwise": 0, "unknown": 0});
    assert_eq!(asked["effects"], effects, "{report}");
    replay_by_digests(&home, &shipped);
    replay_with_an_engine_of_a_registry(&home);
    replay_with_another_policy(&home, &shipped);
    cases_of_decisions(&home, &shipped);
}

/// `policy test` asks the policy what it was asked for the decisions.
fn answers_are_the_same_in_policy_test(home: &Home, shipped: &str) {
    let tested = |name: &str| {
        let module = format!("{shipped}/prefer.wasm");
        home.bindery(&["policy", "test", &module, "--from", "journal", "--named", name])
    };
    let again = tested("tiers");
    assert_eq!(again.status, 0, "{again:?}");
    assert!(again.stdout.contains(" answer"), "{again:?}");
    assert!(again.stdout.ends_with(" the same, 0 different, 0 not asked for\n"), "{again:?}");
    let none = tested("other");
    assert!(none.status == 2 && none.stderr.contains("has nothing of a policy \"other\""), "{none:?}");
}

/// Another policy stands in for the recorded one. What it would change is the answer, and no failure.
fn replay_with_another_policy(home: &Home, shipped: &str) {
    let module = |name: &str| format!("{shipped}/{name}.wasm");
    let replay = |module: &str, more: &[&str]| {
        let arguments = ["replay", "journal", "--engine", "native", "--with", module];
        home.bindery(&[&arguments[..], more].concat())
    };
    let same = replay(&module("prefer"), &["--named", "tiers"]);
    assert_eq!(same.status, 0, "{same:?}");
    assert!(same.stdout.contains("\n0 records: the volume that the claim was given would be "), "{same:?}");
    // It reads other columns, so nothing is known of what it would say.
    let other = replay(&module("same-zone"), &["--named", "tiers", "-o", "json"]);
    let report: Value = serde_json::from_str(&other.stdout).unwrap();
    let asked = &report["askedAgain"];
    assert!(other.status == 0 && asked["effects"]["unknown"].as_u64() > Some(0), "{other:?}");
    for (module, more, why) in [
        (module("prefer"), &[][..], "prefer.wasm: it is a policy; name by --named "),
        (module("prefer"), &["--named", "other"], "has nothing of a policy \"other\""),
        ("native".to_owned(), &["--named", "tiers"], "--with native is an engine; leave out --named"),
    ] {
        let refused = replay(&module, more);
        assert!(refused.status == 2 && refused.stderr.contains(why), "{refused:?}");
    }
}

/// Whether a text has a phrase in the singular or in the plural.
fn says(text: &str, singular_and_plural: [String; 2]) -> bool {
    singular_and_plural.iter().any(|phrase| text.contains(phrase))
}

/// What was decided becomes cases, which hold, and which the next module must hold.
fn cases_of_decisions(home: &Home, shipped: &str) {
    let module = format!("{shipped}/prefer.wasm");
    let from = ["--from", "journal", "--named", "tiers", "--write", "cases"];
    let write = || home.bindery(&[&["policy", "test", &module], &from[..]].concat());
    let written = write();
    let told = ["case is", "cases are"].map(|said| format!(" {said} written into 1 file of cases\n"));
    assert!(written.status == 0 && says(&written.stdout, told), "{written:?}");
    let text = fs::read_to_string(home.path().join("cases/tiers-1.yaml")).unwrap();
    assert!(text.contains("persistentvolumeclaim default/c is decided as at "), "{text}");
    assert!(text.contains("  chosen: z\n") && text.contains("    z:\n      score: 40\n"), "{text}");
    home.done(&["policy", "test", &module, "cases"]);
    let changed = home.path().join("changed");
    fs::create_dir(&changed).unwrap();
    fs::write(changed.join("c.yaml"), text.replace("score: 40", "score: 41")).unwrap();
    let failed = home.bindery(&["policy", "test", &module, "changed"]);
    assert!(failed.stdout.contains("found {\"score\":40}") && failed.status == 1, "{failed:?}");
    let again = write();
    assert!(
        again.status == 2 && again.stderr.contains("tiers-1.yaml cannot be written; remove "),
        "{again:?}"
    );
}

/// The engine in a registry is another one than the native one, and decides the same.
fn replay_with_an_engine_of_a_registry(home: &Home) {
    let registry = OciRegistry::start(RegistrySettings::default());
    let reference = format!("oci://{}/engine:1", registry.host());
    let component = engine();
    home.done(&["policy", "push", component.to_str().unwrap(), &reference]);
    let replayed = home.bindery(&["replay", "journal", "--with", &reference]);
    assert!(replayed.status == 0 && replayed.stdout.contains(" 0 different, "), "{replayed:?}");
    let repository = reference.strip_suffix(":1").unwrap();
    let found = home.bindery(&["replay", "journal", "--engine", "native", "--modules", repository]);
    assert!(found.status == 0 && found.stdout.contains("the fuel of "), "{found:?}");
    // The policy is not there.
    assert!(
        !found.stdout.contains("engine sha256:") && found.stdout.contains("policy tiers: module sha256:")
    );
    // As a replica keeps it.
    home.done(&["policy", "pull", &reference, "--to", "cache/registry"]);
    let kept = home.bindery(&["replay", "journal", "--engine", "native", "--engine-cache", "cache"]);
    assert_eq!((kept.status, kept.stdout), (found.status, found.stdout), "{}", kept.stderr);
    let tagged = home.bindery(&["replay", "journal", "--modules", &reference]);
    assert!(tagged.status == 2 && tagged.stderr.contains("without a tag or a digest"), "{tagged:?}");
    let missing = home.bindery(&["replay", "journal", "--with", &reference.replace(":1", ":2")]);
    assert!(missing.status == 2 && missing.stderr.contains("--with oci://"), "{missing:?}");
}

/// Replays with the modules that the journal names by their digests: nothing else says which there were.
fn replay_by_digests(home: &Home, shipped: &str) {
    let components = engine();
    let components = components.parent().unwrap().to_str().unwrap();
    std::fs::create_dir(home.path().join("empty")).unwrap();
    let replay_with = |folder: &str| {
        let folders = ["--modules", shipped, "--modules", folder];
        home.bindery(&[&["replay", "journal", "--engine", "native"], &folders[..]].concat())
    };
    let found = replay_with(components);
    assert_eq!(found.status, 0, "{found:?}");
    assert!(found.stdout.contains("the fuel of ") && !found.stdout.contains("--modules"), "{found:?}");
    let asked = " the same, 0 different, 0 not asked for again, 0 not recorded\nthe fuel of ";
    assert!(found.stdout.contains(asked) && !found.stdout.contains(": 0 the same"), "{found:?}");
    let without = home.done(&["replay", "journal", "--engine", "native", "--modules", "empty"]);
    for missing in ["engine", "policy tiers: module"] {
        let told = without.stdout.lines().find(|line| line.starts_with(&format!("{missing} sha256:")));
        let told = told.expect("it says what is missing");
        assert!(told.contains(" is neither in --modules nor in --engine-cache: "), "{told}");
    }
    assert!(without.stdout.contains("answers of policies: 0 the same, 0 different, "), "{without:?}");
}
