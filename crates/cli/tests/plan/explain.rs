//! `bindery explain` on manifests.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::support::{Ended, Home, ended, example, list, root};
use super::{claim, class, from_cluster, volume};

/// Explains an object of some manifests.
fn explain(manifests: &Value, arguments: &[&str]) -> Ended {
    Home::new().bindery_with(&[&["explain", "-f", "-"], arguments].concat(), &manifests.to_string())
}

/// The explanation of an object for people.
fn text(manifests: &Value, arguments: &[&str]) -> String {
    let ended = explain(manifests, arguments);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{ended:?}");
    ended.stdout
}

/// The explanation of an object for programs.
fn json(manifests: &Value, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(manifests, &[arguments, &["-o", "json"]].concat())).unwrap()
}

#[test]
fn a_claim_is_explained_on_one_screen() {
    let folder = example("static-binding");
    let home = Home::new();
    let ended = home.bindery(&["explain", "pvc", "archive", "-f", folder.to_str().unwrap()]);
    let expected = "\
PersistentVolumeClaim default/archive
  asks for  200Gi, ReadWriteOnce, without class
  phase     Pending
  decision  pending: no persistent volumes available for this claim and no storage class is set

Candidates, nearest first:
  large   spec.capacity.storage: offers 100Gi, asked for 200Gi
  medium  spec.capacity.storage: offers 10Gi, asked for 200Gi
  small   spec.capacity.storage: offers 5Gi, asked for 200Gi

What would change it:
  Ask for at most 100Gi: volume large fits then.
  Add a volume without class with at least 200Gi, ReadWriteOnce.
";
    assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.as_str()), (0, expected, ""));
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(expected), "the README shows another explanation");
    assert!(home.content().is_empty(), "{:?}", home.content());
}

#[test]
fn a_claim_is_decided_alone_and_its_formats_agree() {
    let folder = example("static-binding");
    let arguments = ["explain", "pvc/reports", "-f", folder.to_str().unwrap(), "--nearest", "1"];
    let home = Home::new();
    let printed = |format: &str| home.bindery(&[&arguments[..], &["-o", format]].concat()).stdout;
    let explained: Value = serde_json::from_str(&printed("json")).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&printed("yaml")).unwrap(), explained);
    let told = ["kind", "namespace", "phase", "outcome", "volume"].map(|field| explained[field].as_str());
    let expected = ["PersistentVolumeClaim", "default", "Pending", "bound", "large"];
    assert_eq!(told, expected.map(Some));
    assert_eq!(explained["candidates"], json!([{"volume": "large", "fits": true}]));
    assert_eq!(explained["moreCandidates"], 2);
}

#[test]
fn the_nearest_volume_with_one_obstacle_is_what_would_change_a_decision() {
    let far = volume("far", json!({"storageClassName": "b", "capacity": {"storage": "1Mi"}}));
    let add = "Add a volume of class a with at least 1Gi, ReadWriteOnce";
    for (asks, offers, advice) in [
        (json!({}), json!({"capacity": {"storage": "8Mi"}}), "Ask for at most 8Mi: volume near fits then."),
        (json!({}), json!({"storageClassName": "b"}), "Ask for class \"b\": volume near fits then."),
        (
            json!({}),
            json!({"accessModes": ["ReadOnlyMany"]}),
            "Ask for ReadOnlyMany only: volume near fits then.",
        ),
        (json!({}), json!({"volumeMode": "Block"}), "Ask for volumeMode Block: volume near fits then."),
        (
            json!({"selector": {"matchLabels": {"tier": "gold"}}}),
            json!({}),
            "Label volume near so that tier=gold holds.",
        ),
        (
            json!({}),
            json!({"claimRef": {"namespace": "default", "name": "other"}}),
            "Volume near is reserved for claim default/other by name: it fits if that claim does not exist, \
             and you clear spec.claimRef of the volume.",
        ),
    ] {
        let (in_a, asks) = (json!({"storageClassName": "a"}), asks);
        let claim = bindery_kit::json::merged(claim("c", in_a.clone()), json!({"spec": asks}));
        let near = bindery_kit::json::merged(volume("near", in_a), json!({"spec": offers}));
        let manifests = list(&[class("a", "kubernetes.io/gone", "Immediate"), far.clone(), near, claim]);
        let explained = json(&manifests, &["pvc", "c"]);
        assert_eq!(explained["candidates"][0]["volume"], "near", "{explained}");
        assert_eq!(explained["advice"][0], advice, "{explained}");
        assert!(explained["advice"][1].as_str().unwrap().starts_with(add), "{explained}");
    }
}

#[test]
fn each_other_outcome_has_its_advice() {
    let of = |class: &str| claim("c", json!({"storageClassName": class}));
    let named = |name: &str| claim("c", json!({"storageClassName": "", "volumeName": name}));
    let mut lost = from_cluster(named("gone"), "u-c", json!({"phase": "Bound"}));
    lost["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let classes = [
        class("made", "disks.example.com", "Immediate"),
        class("late", "disks.example.com", "WaitForFirstConsumer"),
    ];
    for (claim, outcome, advice) in [
        (
            of("made"),
            "provisioning",
            "disks.example.com has to create a volume: see its log. Or add a volume",
        ),
        (of("late"), "waits-for-consumer", "Create a pod that uses the claim: its class waits"),
        (
            of(""),
            "bound",
            "Nothing has to change, unless a policy rejects the volume: Bindery binds it when it runs.",
        ),
        (named("gone"), "pending", "Create volume gone, or make the claim again without spec.volumeName."),
        (lost, "lost", "Create volume gone again if its data still exist"),
    ] {
        let free = volume("free", json!({}));
        let explained = json(&list(&[&classes[..], &[free, claim]].concat()), &["pvc", "c"]);
        assert_eq!(explained["outcome"], outcome, "{explained}");
        assert!(explained["advice"][0].as_str().unwrap().starts_with(advice), "{explained}");
    }
}

/// A bound pair of a cluster: a claim of name `c`, and a volume of name `v`.
fn pair(policy: &str) -> [Value; 2] {
    let spec = json!({
        "persistentVolumeReclaimPolicy": policy,
        "claimRef": {"namespace": "default", "name": "c", "uid": "u-c"},
    });
    let mut of = claim("c", json!({"volumeName": "v", "storageClassName": ""}));
    of["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let mut bound = volume("v", spec);
    bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "disks.example.com"});
    let since = "2026-03-01T08:00:00Z";
    let status = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}});
    [
        from_cluster(bound, "u-v", json!({"phase": "Bound", "lastPhaseTransitionTime": since})),
        from_cluster(of, "u-c", status),
    ]
}

#[test]
fn a_bound_pair_is_explained_from_both_sides() {
    for (policy, fate) in [
        ("Retain", "it is kept with its data until an administrator clears spec.claimRef or deletes it"),
        ("Delete", "\"disks.example.com\" is expected to delete it"),
        ("Recycle", "it would be scrubbed and offered again"),
    ] {
        let expected = format!(
            "\
PersistentVolume v
  offers                     5Gi, ReadWriteOnce, without class, reclaim policy {policy}
  phase                      Bound since 2026-03-01T08:00:00Z
  claim                      bound to default/c
  decision                   nothing has to be done
  when its claim is deleted  {fate}
"
        );
        assert_eq!(text(&list(&pair(policy)), &["pv", "v"]), expected);
    }
    let expected = "\
PersistentVolumeClaim default/c
  asks for  1Gi, ReadWriteOnce, without class, volume v
  phase     Bound
  decision  is bound to v since 2026-03-01T08:00:00Z
";
    assert_eq!(text(&list(&pair("Retain")), &["pvc", "c", "-n", "default"]), expected);
}

#[test]
fn a_volume_says_whose_it_is_and_what_it_would_become() {
    let reserved =
        |uid: Value| volume("v", json!({"claimRef": {"namespace": "default", "name": "c", "uid": uid}}));
    let bound = |uid: &str| from_cluster(reserved(json!(uid)), "u-v", json!({"phase": "Bound"}));
    let later =
        || from_cluster(claim("c", json!({"storageClassName": ""})), "u-c", json!({"phase": "Pending"}));
    let kept = "would become Released: it is kept with its data until an administrator clears";
    for (manifests, state, decision) in [
        (vec![volume("v", json!({}))], "none", "would become Available"),
        (
            vec![reserved(Value::Null)],
            "reserved for default/c, which does not exist yet",
            "would become Available",
        ),
        (
            vec![reserved(Value::Null), later()],
            "reserved for default/c, which is not bound yet",
            "would become Available",
        ),
        (vec![bound("u-gone")], "default/c, which is gone", kept),
        (
            vec![bound("u-gone"), later()],
            "an earlier default/c with UID u-gone, which is gone; the claim of that name now is another one",
            kept,
        ),
    ] {
        let explained = json(&list(&manifests), &["persistentvolumes", "v"]);
        assert_eq!(explained["claimState"], state, "{explained}");
        assert!(explained["decision"].as_str().unwrap().starts_with(decision), "{explained}");
        assert_eq!(explained["afterItsClaim"], Value::Null, "{explained}");
    }
}

#[test]
fn a_volume_of_a_cluster_that_cannot_be_read_is_a_candidate() {
    let unreadable = volume("huge", json!({"capacity": {"storage": "100E"}}));
    let manifests = list(&[
        from_cluster(unreadable, "u-v", json!({"phase": "Available"})),
        claim("c", json!({"storageClassName": ""})),
    ]);
    let explained = json(&manifests, &["pvc", "c"]);
    assert_eq!(explained["candidates"][0]["obstacles"][0]["reason"], "unreadable", "{explained}");
    let ended = explain(&manifests, &["pv", "huge"]);
    let why =
        "error: PersistentVolume \"huge\" cannot be read: spec.capacity.storage: \"100E\" is out of range";
    assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
    assert!(ended.stderr.starts_with(why), "{}", ended.stderr);
}

#[test]
fn an_object_that_is_not_there_is_named_with_the_remedy() {
    let manifests = list(&[claim("c", json!({}))]);
    for (arguments, said) in [
        (&["pod", "p"][..], "error: \"pod\" is not a type that is explained; give pvc NAME or pv NAME\n"),
        (&["pvc"], "error: the name is missing; give pvc NAME\n"),
        (
            &["pvc", "c", "-n", "elsewhere"],
            "error: the manifests have no persistentvolumeclaim elsewhere/c; name another object\n",
        ),
        (
            &["pvc", "c", "-n", "a/b"],
            "error: invalid value 'a/b' for '--namespace <NAMESPACE>': \"a/b\" is not a name; use lower case",
        ),
        (&["pvc", "c", "--context", "x"], "error: the argument '--filename <FILE>' cannot be used with "),
    ] {
        let ended = explain(&manifests, arguments);
        assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
        assert!(ended.stderr.starts_with(said), "{}\nand not\n{said}", ended.stderr);
    }
    let home = Home::new();
    let ended = home.bindery(&["explain", "pvc", "c"]);
    let said =
        "error: the kubeconfig cannot be used; name one by --kubeconfig, or give manifests by --filename: ";
    assert!(ended.status == 2 && ended.stderr.starts_with(said), "{ended:?}");
}

#[test]
fn the_program_has_a_second_name_as_plugin_of_kubectl() {
    let home = Home::new();
    symlink(env!("CARGO_BIN_EXE_bindery"), home.path().join("kubectl-bindery")).unwrap();
    let run = |arguments: &[&str]| {
        let mut plugin = home.program(home.path().join("kubectl-bindery"));
        plugin.args(arguments);
        ended(plugin, &list(&[claim("c", json!({}))]).to_string())
    };
    assert!(run(&["explain", "--help"]).stdout.contains("Usage: kubectl bindery explain "));
    for arguments in [
        &["explain", "pvc/c", "--filename=-", "--namespace=default"][..],
        // As kubectl's own flags may stand.
        &["-n", "default", "explain", "pvc/c", "-f", "-"],
        &["--namespace=default", "explain", "pvc/c", "-f", "-"],
    ] {
        let explained = run(arguments);
        assert!(explained.stdout.starts_with("PersistentVolumeClaim default/c\n"), "{explained:?}");
    }
    let refused = run(&["-n", "default", "plan", "-f", "-"]);
    assert!(refused.stderr.starts_with("error: unexpected argument '-n' found"), "{refused:?}");
}

#[test]
fn commands_and_flags_are_completed_for_shells_and_for_kubectl() {
    let home = Home::new();
    let script = home.bindery(&["completion", "bash"]).stdout;
    assert!(script.contains("complete -F _bindery") && script.contains("--nearest"), "{script}");
    symlink(env!("CARGO_BIN_EXE_bindery"), home.path().join("kubectl_complete-bindery")).unwrap();
    for (words, answer) in [
        (&["ex"][..], "explain\nexample\n:4\n"),
        (&["explain", "pvc", "c", "--cont"], "--context\n:4\n"),
        (&["explain", "-f", ""], ":0\n"),
        (&["-n", "shop", "explain", ""], "pvc\npv\n:4\n"),
    ] {
        let mut program = home.program(home.path().join("kubectl_complete-bindery"));
        program.args(words);
        assert_eq!(ended(program, "").stdout, answer);
    }
}

#[test]
fn a_steered_claim_says_how_far_bindery_and_upstream_are() {
    let key = json!([{"key": "c.default.steer.bindery.dev/claim", "operator": "Exists"}]);
    let spec = json!({"storageClassName": "local", "selector": {"matchExpressions": key}});
    let steered = |change: Value| {
        let claim = bindery_kit::json::merged(claim("c", spec.clone()), change);
        from_cluster(claim, "u-c", json!({"phase": "Pending"}))
    };
    let free = || volume("v", json!({"storageClassName": "local"}));
    let class = |mode: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode,
        })
    };
    let reserved = json!({"namespace": "default", "name": "c"});
    let chosen = json!({"metadata": {"annotations": {"steer.bindery.dev/choice": "v u-v"}}});
    let binds = "upstream's binder binds what Bindery reserves";
    let wrote = |time: &str, field: &str| {
        let fields = json!({"f:spec": {field: {}}});
        let entry = json!({"manager": "m", "operation": "Update", "time": time, "fieldsType": "FieldsV1"});
        bindery_kit::json::merged(entry, json!({"fieldsV1": fields}))
    };
    let fields = [wrote("2026-01-01T00:00:00Z", "f:claimRef"), wrote("2026-01-02T00:00:00Z", "f:capacity")];
    let waiting = volume("v", json!({"storageClassName": "local", "claimRef": reserved}));
    let waiting = bindery_kit::json::merged(
        from_cluster(waiting, "u-v", json!({"phase": "Available"})),
        json!({"metadata": {"managedFields": fields}}),
    );
    for (manifests, how_far) in [
        (
            vec![steered(json!({})), waiting],
            "volume v: it is reserved, and waits for upstream's binder since 2026-01-01T00:00:00Z".to_owned(),
        ),
        (vec![steered(json!({})), free()], "no volume is chosen".to_owned()),
        (vec![steered(chosen), free()], "volume v: it is chosen, and not reserved yet".to_owned()),
        (
            vec![steered(json!({})), volume("v", json!({"storageClassName": "local", "claimRef": reserved}))],
            "volume v: it is reserved; upstream's binder has not bound it yet".to_owned(),
        ),
        (
            vec![class("WaitForFirstConsumer"), steered(json!({})), free()],
            "its class waits for a pod; then the scheduler chooses among the volumes with its label"
                .to_owned(),
        ),
    ] {
        let explained = json(&list(&manifests), &["pvc", "c"]);
        assert_eq!(explained["steered"], format!("{binds}; {how_far}"), "{explained}");
    }
}
