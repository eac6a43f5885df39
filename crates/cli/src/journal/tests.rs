//! How much a journal of a typical load takes.

use std::sync::Arc;
use std::time::Duration;

use bindery_controller::{Binder, Configuration, DifferenceRecord, Parts, Settings, Shadow, ShadowPart};
use bindery_core::{BindingMode, Claim, ClaimKey, Key, Text, Uid, Volume, VolumeAnnotations, VolumePhase};
use bindery_engine::DefaultEngine;
use bindery_journal::{Entry, Files, Redacted, Replayed, What, replay};
use bindery_kit::{Burning, InMemoryApi, Larger, gib, policy};
use bindery_policy::{Chain, Difference, DifferenceKind, PolicyEvidence, ShadowAnswer, ShadowMetrics};
use bindery_store::{Delivery, Kind, Store};
use tempfile::TempDir;

use super::recording::JournalArguments;
use super::show::shown;
use crate::tests::arguments_of;

/// A number that looks random, as UIDs do, and is the same in each run.
fn scattered(seed: u64) -> u64 {
    // splitmix64
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn uid(kind: u64, number: u64) -> Text {
    let [a, b] = [0, 1].map(|half| scattered(number * 4 + kind * 2 + half));
    let (b, c, d) = (a >> 16 & 0xffff, a & 0xffff, b);
    format!("{:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", a >> 32, d >> 48, d & 0xffff_ffff_ffff).into()
}

/// A volume of a CSI driver, as a provisioner makes it.
fn volume(number: u64) -> Volume {
    let labels = [
        ("topology.kubernetes.io/zone", format!("eu-central-1{}", ["a", "b", "c"][number as usize % 3])),
        ("topology.kubernetes.io/region", "eu-central-1".to_owned()),
        ("app.kubernetes.io/managed-by", "storage-team".to_owned()),
    ];
    Volume {
        uid: Uid(uid(0, number)),
        labels: labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        annotations: VolumeAnnotations {
            provisioned_by: Some("ebs.csi.example.com".into()),
            ..VolumeAnnotations::default()
        },
        finalizers: vec![
            "kubernetes.io/pv-protection".into(),
            "external-attacher/ebs-csi-example-com".into(),
        ],
        capacity: Some(gib(1 + number % 7)),
        class: "fast".into(),
        source: "csi".into(),
        phase: VolumePhase::Pending,
        ..bindery_kit::volume(&format!("pvc-{}", uid(1, number)))
    }
}

fn claim(number: u64) -> Claim {
    let namespace = format!("team-{}", scattered(number) % 40);
    let key = ClaimKey::new(namespace, format!("data-database-{number}"));
    Claim { uid: Uid(uid(2, number)), class: Some("fast".into()), request: gib(1), ..bindery_kit::claim(key) }
}

/// A chain of a matcher that uses fuel.
fn prefers_larger() -> Chain {
    Chain::new(vec![policy("larger", Burning { units: 700_000, policy: Larger { zone: None } })])
}

/// What a journal of decisions takes.
struct Taken {
    decisions: u64,
    /// Volumes that policies have judged, over all decisions.
    judged: u64,
    /// Bytes of the journal for each decision.
    bytes: u64,
}

/// Binds as many claims, one after the other, while `free` more volumes are there.
async fn folder_of(claims: u64, free: u64, chain: Chain, arguments: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let journal: JournalArguments = arguments_of(&[&["--journal", path], arguments].concat());
    let recording = journal.start("bindery-5d8f9c7b6-x2x4z", "own").unwrap().unwrap();
    let api = InMemoryApi::new();
    (0..claims + free).for_each(|number| api.add_volume(&volume(number)));
    let binder = Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: api.clone(),
        engine: Arc::new(DefaultEngine),
        configuration: Configuration { policies: Arc::new(chain), ..Configuration::default() },
        settings: Settings::default(),
        journal: Some(recording.sink()),
    });
    for kind in Kind::ALL {
        api.deliver_list(binder.intake(), kind, "1");
    }
    let class = bindery_kit::class("fast", "ebs.csi.example.com", Some(BindingMode::Immediate));
    binder.intake().deliver(Delivery::applied(class));
    api.watch(binder.intake(), Duration::ZERO);
    for number in 0..claims + free {
        assert_eq!(binder.sync(&Key::Volume(volume(number).name)).await.result, Ok(()));
    }
    for number in 0..claims {
        let claim = claim(number);
        let key = Key::Claim(claim.key.clone());
        api.add_claim(&claim);
        binder.intake().deliver(Delivery::applied(claim.clone()));
        assert_eq!(binder.sync(&key).await.result, Ok(()));
        let bound = api.objects().claims[&claim.key].volume_name.clone().expect("it is bound");
        // The watch wakes both.
        assert_eq!(binder.sync(&Key::Volume(bound)).await.result, Ok(()));
        assert_eq!(binder.sync(&key).await.result, Ok(()));
    }
    recording.finish().unwrap();
    folder
}

async fn journal_of(claims: u64, free: u64, chain: Chain) -> Taken {
    let folder = folder_of(claims, free, chain, &[]).await;
    let (mut decisions, mut judged) = (0, 0);
    for entry in Files::open(folder.path()).unwrap() {
        let What::Decision(record) = entry.unwrap().what else { continue };
        decisions += 1;
        let matchers = record.policies.iter().flat_map(|policies| &policies.matchers);
        judged += matchers.map(|matcher| matcher.volumes.len() as u64).sum::<u64>();
    }
    let files = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    Taken { decisions, judged, bytes: files.sum::<u64>() / decisions }
}

#[tokio::test]
async fn a_decision_takes_at_most_300_bytes_without_matchers() {
    let Taken { decisions, bytes, .. } = journal_of(1_000, 1_000, Chain::default()).await;
    assert!(decisions >= 5_000 && bytes <= 300, "{decisions} decisions of {bytes} bytes each");
}

#[tokio::test]
async fn a_decision_takes_at_most_1_kib_with_a_matcher_of_100_candidates() {
    let chain = prefers_larger();
    let claims = 200;
    let Taken { decisions, judged, bytes } = journal_of(claims, 100, chain).await;
    // One decision of each claim judges.
    assert!(judged >= 100 * claims, "{judged} volumes judged");
    let of_judging = bytes * decisions / claims;
    assert!(of_judging <= 1_024, "{of_judging} bytes for each of {claims} claims, {bytes} for a decision");
}

#[test]
fn a_difference_of_a_shadow_is_recorded_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let journal: JournalArguments = arguments_of(&["--journal", folder.path().to_str().unwrap()]);
    let recording = journal.start("a", "own").unwrap().unwrap();
    let part = ShadowPart::Match(policy("larger", Larger { zone: None }));
    let (name, replaces) = ("larger".into(), "larger".into());
    let shadow = Shadow { name, replaces, part, sample_percent: 100, metrics: ShadowMetrics::default() };
    let (active, instead) =
        (ShadowAnswer::new("binds volume a", "it is first"), ShadowAnswer::new("waits", ""));
    let kind = DifferenceKind::BindsNone;
    for object in ["pvc shop/data", "pv a"] {
        let (active, shadow_says) = (active.clone(), instead.clone());
        let difference = Difference { time: 7, object: object.into(), kind, active, shadow: shadow_says };
        let (shadow, difference) = (&shadow, &difference);
        let record = DifferenceRecord { shadow, engine: "native", chain: "sha256:0", difference };
        recording.sink().differed(record);
    }
    recording.finish().unwrap();
    let texts = Files::open(folder.path()).unwrap().map(|entry| shown(&entry.unwrap()));
    let texts: Vec<String> = texts.map(|text| text.split_once("  ").unwrap().1.to_owned()).collect();
    let differs = "shadow MatchPolicy larger differs, binds-none\n    \
                   decided: binds volume a: it is first\n    shadow: waits\n";
    let expected = ["persistentvolumeclaim shop/data", "persistentvolume a"];
    assert_eq!(texts, expected.map(|object| format!("{object}: {differs}")));
}

#[tokio::test]
async fn redacted_decisions_of_a_binder_replay_with_the_digests() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&key, [7; 32]).unwrap();
    let redact = ["--journal-redact-namespaces=true", "--journal-redact-label=topology.kubernetes.io/zone"];
    let key_file = format!("--journal-redact-key-file={}", key.path().display());
    let chain = Chain::new(vec![policy("larger", Larger { zone: None })]);
    let folder = folder_of(10, 10, chain, &[&redact[..], &[&key_file]].concat()).await;
    let (mut plain, mut marks) = (Vec::new(), Vec::new());
    for entry in Files::open(folder.path()).unwrap() {
        let entry = entry.unwrap();
        plain.extend(entry.encode().unwrap());
        let What::Decision(record) = entry.what else { continue };
        assert!(matches!(replay(&record, &DefaultEngine), (Replayed::Same, None)), "{record:?}");
        marks.push(record.redacted);
    }
    let text = String::from_utf8_lossy(&plain);
    assert_eq!(["team-", "eu-central-1a"].map(|word| text.matches(word).count()), [0; 2]);
    assert!(text.contains("eu-central-1") && text.contains("/data-database-0"));
    for mark in [Redacted::default(), Redacted { engine: true, policies: true }] {
        assert!(marks.contains(&mark), "{marks:?}");
    }
}

/// What is not found so is found by the chain of digests.
#[tokio::test]
async fn a_flipped_bit_of_a_decision_or_verdict_is_found_by_replay() {
    let (folder, chain) = (folder_of(2, 2, prefers_larger(), &[]).await, prefers_larger());
    let (mut decisions, mut verdicts, mut fuel) = (0, 0, 0);
    for entry in Files::open(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let What::Decision(written) = &entry.what else { continue };
        let bytes = entry.encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // What cannot be decoded is found by every reader.
            let Ok((Entry { what: What::Decision(read), .. }, [])) = Entry::decode(&flipped) else {
                continue;
            };
            if read.evidence.decision != written.evidence.decision {
                assert!(!matches!(replay(&read, &DefaultEngine), (Replayed::Same, _)), "bit {bit}: {read:?}");
                decisions += 1;
            }
            let [then, now] = [&read.policies, &written.policies].map(Option::as_ref);
            if let (Some(then), Some(now)) = (then, now)
                && then
                    .matchers
                    .iter()
                    .zip(&now.matchers)
                    .any(|(then, now)| (&then.narrowing, &then.verdicts) != (&now.narrowing, &now.verdicts))
            {
                let asked = then.ask_again(&chain);
                assert!(!asked.differences.is_empty() || asked.not_asked > 0, "bit {bit}: {then:?}");
                verdicts += 1;
            }
            if let (Some(then), Some(now)) = (then, now)
                && has_other_fuel(then, now)
            {
                assert!(!then.ask_again(&chain).fuel_differences.is_empty(), "bit {bit}: {then:?}");
                fuel += 1;
            }
        }
    }
    assert!(decisions > 1_000 && verdicts > 10, "{decisions} decisions and {verdicts} verdicts were changed");
    assert!(fuel > 10, "the fuel of {fuel} calls was changed");
}

/// Whether nothing but the fuel of a call is another.
fn has_other_fuel(then: &PolicyEvidence, now: &PolicyEvidence) -> bool {
    let mut without = then.clone();
    for (call, now) in without.calls.iter_mut().zip(&now.calls) {
        call.fuel = now.fuel;
    }
    then != now && without == *now
}
