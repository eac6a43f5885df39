//! Plans with policies: the components that ship, by the documents that load them.

use std::path::PathBuf;

use bindery_kit::json;
use serde_json::{Value, json};

use crate::support::{Ended, Home, ended};

/// A free volume in a zone.
fn volume(name: &str, size: &str, zone: &str) -> Value {
    json::volume(
        name,
        json!({
            "metadata": {"labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"capacity": {"storage": size}},
        }),
    )
}

/// A claim for one gibibyte in a zone.
fn claim(name: &str, change: Value) -> Value {
    let zone_a = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}});
    json::claim(name, json::merged(zone_a, change))
}

fn policy(name: &str, module: &str, settings: &Value) -> Value {
    json::policy("MatchPolicy", name, &json!({"module": module, "settings": settings}))
}

/// The folder of the policies that ship.
fn shipped() -> String {
    let folder = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    PathBuf::from(folder).display().to_string()
}

fn home() -> Home {
    let home = Home::new();
    home.file("volumes/big-a.yaml", volume("big-a", "100Gi", "a").to_string());
    home.file("volumes/small-b.yaml", volume("small-b", "1Gi", "b").to_string());
    home.file("volumes/right-a.yaml", volume("right-a", "2Gi", "a").to_string());
    home.file(
        "policies/zone.yaml",
        policy("own-zone", "builtin:same-zone", &json!({"zone": "Label"})).to_string(),
    );
    let twice = policy("at-most-twice", "builtin:at-most-n-times", &json!({"times": 2}));
    home.file("policies/size.yaml", twice.to_string());
    home
}

/// The outcome and the volume of each claim of a plan.
fn outcomes(home: &Home, claims: &str, arguments: &[&str]) -> Vec<(String, String)> {
    let plan = ["plan", "-f", "volumes", "-f", claims, "-o", "json", "--policies", &shipped()];
    let ended = home.bindery(&[&plan[..], arguments].concat());
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{ended:?}");
    let plan: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let text = |claim: &Value, field: &str| claim[field].as_str().unwrap_or_default().to_owned();
    let claims = plan["claims"].as_array().expect("claims").iter();
    claims.map(|claim| (text(claim, "outcome"), text(claim, "volume"))).collect()
}

#[test]
fn policies_narrow_the_volumes_of_a_claim() {
    let home = home();
    let claims = [claim("first", json!({})), claim("second", json!({}))];
    home.file("claims.yaml", claims.map(|claim| claim.to_string()).join("\n---\n"));
    let bound = |volume: &str| ("bound".to_owned(), volume.to_owned());
    assert_eq!(outcomes(&home, "claims.yaml", &[]), [bound("small-b"), bound("right-a")]);
    let zone = ["--policy", "policies/zone.yaml"];
    assert_eq!(outcomes(&home, "claims.yaml", &zone), [bound("right-a"), bound("big-a")]);
    let both = ["--policy", "policies"];
    let pending = ("pending".to_owned(), String::new());
    assert_eq!(outcomes(&home, "claims.yaml", &both), [bound("right-a"), pending]);
    let table =
        ["plan", "-f", "volumes", "-f", "claims.yaml", "--policy", "policies", "--policies", &shipped()];
    let ended = home.bindery(&table);
    for line in [
        "  small-b  policy own-zone rejects it: the claim is for zone a; the volume requires zone none, its \
         label says b\n",
        "  big-a    policy at-most-twice rejects it: ",
        "  right-a  spec.claimRef: belongs to default/first\n",
    ] {
        assert!(ended.stdout.contains(line), "{}\nlacks {line}", ended.stdout);
    }
}

#[test]
fn plan_and_explain_say_who_binds_a_claim_that_is_steered() {
    let home = home();
    let needed = json!([{"key": "first.default.steer.bindery.dev/claim", "operator": "Exists"}]);
    let steered = claim("first", json!({"spec": {"selector": {"matchExpressions": needed}}}));
    let claims = [steered, claim("second", json!({}))];
    home.file("claims.yaml", claims.map(|claim| claim.to_string()).join("\n---\n"));
    let shipped = shipped();
    let zone = ["--policy", "policies/zone.yaml", "--policies", &shipped];
    let arguments = [&["-f", "volumes", "-f", "claims.yaml"], &zone[..]].concat();
    let table = home.bindery(&[&["plan"], &arguments[..]].concat()).stdout;
    let expected = "CLAIM           REQUEST  CLASS  OUTCOME            VOLUME   CAPACITY  WITHOUT POLICIES\n\
        default/first   1Gi      -      would be reserved  right-a  2Gi       bound to small-b\n\
        default/second  1Gi      -      would be bound     big-a    100Gi     bound to right-a\n\
        \n\
        Upstream's binder binds what Bindery reserves for steered claims. In mode steer, claims that are ";
    assert!(table.starts_with(expected), "{table}");
    let explained = home.bindery(&[&["explain", "pvc", "first"], &arguments[..]].concat()).stdout;
    let decision = "right-a would be reserved, and bound by upstream's binder\n";
    assert!(explained.contains(decision), "{explained}");
}

#[test]
fn plan_and_explain_show_what_policies_change_and_what_each_says() {
    let home = home();
    home.file(
        "claims.yaml",
        [claim("first", json!({})), claim("second", json!({}))].map(|c| c.to_string()).join("\n---\n"),
    );
    let arguments = ["-f", "volumes", "-f", "claims.yaml", "--policy", "policies", "--policies", &shipped()];
    let table = home.bindery(&[&["plan"], &arguments[..]].concat()).stdout;
    let head = "CLAIM           REQUEST  CLASS  OUTCOME         VOLUME   CAPACITY  WITHOUT POLICIES\n\
        default/first   1Gi      -      would be bound  right-a  2Gi       bound to small-b\n\
        default/second  1Gi      -      pending         -        -         bound to right-a\n";
    assert!(table.starts_with(head), "{table}");
    let explained = home.bindery(&[&["explain", "pvc", "second"], &arguments[..]].concat());
    let expected = "\
PersistentVolumeClaim default/second
  asks for          1Gi, ReadWriteOnce, without class
  phase             Pending
  decision          would be bound to right-a
  without policies  bound to small-b

Candidates, nearest first:
  small-b  policy own-zone rejects it: the claim is for zone a; the volume requires zone none, its \
label says b
  right-a  fits
  big-a    policy at-most-twice rejects it: ";
    assert!(explained.stdout.starts_with(expected), "{}", explained.stdout);
    let explained = home.bindery(&[&["explain", "pvc", "second", "-o", "json"], &arguments[..]].concat());
    let explained: Value = serde_json::from_str(&explained.stdout).expect("JSON");
    let without = json!({"outcome": "bound", "volume": "small-b"});
    assert_eq!(explained["withoutPolicies"], without, "{explained}");
    let said = &explained["candidates"][2]["policies"];
    let told =
        |at: usize| (said[at]["policy"].as_str(), said[at]["allows"].as_bool(), said[at]["reason"].as_str());
    assert_eq!(told(0), (Some("at-most-twice"), Some(false), Some("too-large")), "{said}");
    assert_eq!(told(1), (Some("own-zone"), Some(true), None), "{said}");
}

#[test]
fn a_fitting_candidate_has_the_scores_of_policies() {
    let home = Home::new();
    let fast = json!({"metadata": {"labels": {"bindery.dev/tier": "fast"}}});
    let objects = [volume("plain", "1Gi", "a"), json::volume("z-fast", fast), claim("c", json!({}))];
    home.file("objects.yaml", objects.map(|object| object.to_string()).join("\n---\n"));
    let mut prefer = policy("tiers", "builtin:prefer", &json!({"scores": {"fast": 40}}));
    prefer["spec"]["weight"] = json!(3);
    home.file("prefer.yaml", prefer.to_string());
    let files = ["-f", "objects.yaml", "--policy", "prefer.yaml", "--policies", &shipped()];
    let explained = home.bindery(&[&["explain", "pvc/c"], &files[..]].concat()).stdout;
    assert!(
        explained
            .contains("  decision          would be bound to z-fast\n  without policies  bound to plain\n"),
        "{explained}"
    );
    let candidates = "  plain   fits; policy tiers scores it 0, weight 3\n  \
        z-fast  fits; policy tiers scores it 40, weight 3\n";
    assert!(explained.contains(candidates), "{explained}");
    prefer["spec"]["maxCandidates"] = json!(1);
    home.file("prefer.yaml", prefer.to_string());
    let unscored = ": there are more volumes than policy tiers scores (spec.maxCandidates: 1); only the \
                    smallest were scored\n";
    let explained = home.bindery(&[&["explain", "pvc/c"], &files[..]].concat()).stdout;
    assert!(explained.contains(&format!("would be bound to plain{unscored}")), "{explained}");
    let plan = home.bindery(&[&["plan"], &files[..]].concat()).stdout;
    assert!(plan.contains(&format!("\ndefault/c{unscored}")), "{plan}");
}

#[test]
fn a_wrong_policy_document_is_refused_with_file_field_and_remedy() {
    let home = home();
    home.file("claim.yaml", claim("c", json!({})).to_string());
    let with = |change: Value| {
        json::merged(policy("p", "builtin:at-most-n-times", &json!({"times": 2})), change).to_string()
    };
    for (document, starts) in [
        (
            with(json!({"spec": {"settings": {"times": "x"}}})),
            "bad.yaml, line 1: policy \"p\": spec.settings: settings.times: found \"x\"; an \
             integer from 1 to 1000 is allowed",
        ),
        (
            with(json!({"spec": {"modul": 1}})),
            "bad.yaml, line 1: spec.modul: unknown field `modul`, expected one of",
        ),
        (
            with(json!({"spec": {"weight": 101}})),
            "bad.yaml, line 1: spec.weight is 101; from 1 to 100 is allowed",
        ),
        (
            with(json!({"spec": {"match": {"claimSelector": {"matchLabels": {"foo bar": "x"}}}}})),
            "bad.yaml, line 1: spec.match.claimSelector: \"foo bar\" cannot be the key of a label",
        ),
        (
            with(json!({"spec": {"match": {"namespaceSelector": {"matchLabels": {"a.b/c": "x y"}}}}})),
            "bad.yaml, line 1: spec.match.namespaceSelector: \"x y\" of key \"a.b/c\" ",
        ),
        (String::new(), "--policy bad.yaml: it has no policy document; add one, or leave it out"),
        (
            with(json!({"kind": "ReclaimPolicy"})),
            "bad.yaml, line 1: spec.module is a matcher; name a reclaimer, or make the kind \"MatchPolicy\"",
        ),
        (
            with(json!({"kind": "Policy"})),
            "bad.yaml, line 1: it has apiVersion \"policy.bindery.dev/v1alpha1\" and kind \"Policy\"",
        ),
        (
            with(json!({"spec": {"module": "builtin:same-zon"}})),
            "bad.yaml, line 1: policy \"p\": there is no builtin:same-zon in ",
        ),
        (
            with(json!({"spec": {"module": "oci://ghcr.io/team/policy:1"}})),
            "bad.yaml, line 1: policy \"p\": oci://ghcr.io/team/policy:1: only cluster objects name modules \
             in registries; `bindery policy pull --output` fetches the file: name that",
        ),
        (
            with(json!({"spec": {"module": "claim.yaml"}})),
            "bad.yaml, line 1: policy \"p\": claim.yaml: the component is not WebAssembly",
        ),
    ] {
        home.file("bad.yaml", document);
        let plan = ["plan", "-f", "claim.yaml", "--policy", "bad.yaml", "--policies", &shipped()];
        let ended = home.bindery(&plan);
        assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("error: {starts}")), "{}\nand not\n{starts}", ended.stderr);
    }
}

#[test]
fn the_variable_names_several_paths_and_a_flag_one() {
    let home = home();
    home.file("a:b/zone.yaml", policy("zone", "builtin:same-zone", &json!({"zone": "Label"})).to_string());
    home.file("claims.yaml", claim("c", json!({})).to_string());
    let plan = |variable: Option<&str>, arguments: &[&str]| {
        let plan = ["plan", "-f", "volumes", "-f", "claims.yaml", "-o", "json", "--policies", &shipped()];
        let mut command = home.command(&[&plan[..], arguments].concat());
        command.envs(variable.map(|paths| ("BINDERY_POLICY", paths)));
        ended(command, "")
    };
    let chosen = |ended: Ended| {
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{ended:?}");
        let plan: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        plan["claims"][0]["volume"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(chosen(plan(None, &[])), "small-b");
    assert_eq!(chosen(plan(None, &["--policy", "a:b/zone.yaml"])), "right-a");
    assert_eq!(chosen(plan(Some("policies/zone.yaml:policies/size.yaml"), &[])), "right-a");
    // The command line overrides the variable.
    assert_eq!(chosen(plan(Some("missing"), &["--policy", "policies/size.yaml"])), "small-b");
    for paths in ["", "policies/zone.yaml:", ":policies/zone.yaml"] {
        let ended = plan(Some(paths), &[]);
        let starts = format!("error: BINDERY_POLICY is {paths:?} and has an empty path; ");
        assert!(ended.status == 2 && ended.stderr.starts_with(&starts), "{ended:?}");
    }
}

#[test]
fn a_namespace_whose_labels_are_not_given_is_named() {
    let home = home();
    home.file("claim.yaml", claim("db", json!({})).to_string());
    let mut selecting = policy("tenants", "builtin:same-zone", &json!({"zone": "Label"}));
    selecting["spec"]["match"] = json!({"namespaceSelector": {"matchLabels": {"team": "storage"}}});
    home.file("tenants.yaml", selecting.to_string());
    let plan = ["plan", "-f", "claim.yaml", "--policy", "tenants.yaml", "--policies", &shipped()];
    let ended = home.done(&plan);
    let note = "note: policies read labels of namespaces, and these are not given, so they have no labels \
                here: default\n";
    assert_eq!(ended.stderr, note);
}

#[test]
fn explain_deletes_a_claim_that_its_reclaimers_have_seen() {
    let home = Home::new();
    let mut keep = policy("keep", "builtin:keep-labelled", &json!({}));
    keep["kind"] = "ReclaimPolicy".into();
    home.file("keep.yaml", keep.to_string());
    let label = json!({"metadata": {"uid": "u-c", "labels": {"bindery.dev/keep": "true"}}});
    let claim = json::claim("c", json::merged(label, json!({"spec": {"volumeName": "v"}})));
    let claim_ref = json!({"namespace": "default", "name": "c", "uid": "u-c"});
    let spec = json!({"claimRef": claim_ref, "persistentVolumeReclaimPolicy": "Delete"});
    let volume =
        json::volume("v", json!({"metadata": {"uid": "u-v"}, "spec": spec, "status": {"phase": "Bound"}}));
    home.file("pair.yaml", [claim, volume].map(|object| object.to_string()).join("\n---\n"));
    let explain = ["explain", "pv", "v", "-f", "pair.yaml", "-o", "json"];
    let policies = ["--policy", "keep.yaml", "--policies", &shipped()];
    let ended = home.bindery(&[&explain[..], &policies].concat());
    let explained: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let kept =
        "policy keep sets the reclaim policy to \"Retain\": its claim had the label bindery.dev/keep: true";
    assert_eq!(explained["afterItsClaim"], kept, "{ended:?}");
}

#[test]
fn a_class_that_waits_for_its_first_consumer_is_said_to_know_no_policy() {
    let home = home();
    let mode = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    let class = json::class("late", "kubernetes.io/no-provisioner", mode);
    let late =
        |object: Value| json::merged(object, json!({"spec": {"storageClassName": "late"}})).to_string();
    home.file("volumes/late.yaml", late(volume("late", "1Gi", "b")));
    home.file("claims.yaml", [class.to_string(), late(claim("c", json!({})))].join("\n---\n"));
    let plan = ["plan", "-f", "volumes", "-f", "claims.yaml", "--policies", &shipped()];
    let said = "the scheduler chooses the volume and knows no policy";
    for (policies, is_said) in [(&[][..], false), (&["--policy", "policies/zone.yaml"], true)] {
        let ended = home.bindery(&[&plan[..], policies].concat());
        assert_eq!(ended.stdout.contains(said), is_said, "{ended:?}");
    }
}
