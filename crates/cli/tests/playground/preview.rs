//! `bindery policy preview` of policies that decide about released volumes.

use bindery_kit::json;
use serde_json::{Value, json};

use super::running::Playground;
use crate::support::{ended, offered};

/// Creates a volume whose claim is gone.
fn create_released(playground: &Playground, name: &str, reclaim_policy: &str) {
    let csi = json!({"driver": "disks.example.com", "volumeHandle": name});
    let claim = json!({"namespace": "default", "name": "gone", "uid": "uid-gone"});
    let spec = json!({
        "hostPath": null, "csi": csi, "claimRef": claim, "persistentVolumeReclaimPolicy": reclaim_policy,
    });
    let file = playground.file(&format!("{name}.json"), &json::volume(name, json!({"spec": spec})));
    playground.kubectl(&["create", "--filename", &file]);
    playground.wait_for(&format!("pv/{name}"), "Released");
}

/// What `bindery policy preview` prints about a `ReclaimPolicy` with this name and spec, with more arguments.
fn preview_with(playground: &Playground, name: &str, spec: &Value, arguments: &[&str]) -> String {
    let file = playground.file(&format!("{name}.json"), &json::policy("ReclaimPolicy", name, spec));
    let mut command = playground.home().command(&["policy", "preview", "--engine", "native", &file]);
    command.args(arguments);
    command.env("KUBECONFIG", playground.home().path().join("config"));
    command.env("BINDERY_POLICIES", offered("BINDERY_POLICIES"));
    let ended = ended(command, "");
    assert_eq!(ended.status, 0, "{ended:?}");
    ended.stdout
}

fn preview(playground: &Playground, name: &str, spec: &Value) -> String {
    preview_with(playground, name, spec, &[])
}

#[test]
fn given_released_volumes_a_preview_tells_their_fates_and_changes_none() {
    let playground = Playground::start(&[]);
    create_released(&playground, "deleted", "Delete");
    create_released(&playground, "kept", "Retain");
    let volumes = || playground.kubectl(&["get", "pv", "--output", "json"]);
    let before = volumes();

    let printed = preview(&playground, "keep", &json!({"module": "builtin:keep-labelled"}));
    let expected = "pv deleted: without the change: its provisioner is expected to delete it; with it: \
                    policy keep sets the reclaim policy to \"Retain\": nothing is known of its claim\n";
    assert_eq!(printed, expected);
    let days = json!({"module": "builtin:delete-after", "settings": {"days": 3}});
    let mut allowed = days.clone();
    allowed["allow"] = json!(["Delete"]);
    for (spec, fares_otherwise) in [(days, &["pv deleted"][..]), (allowed, &["pv deleted", "pv kept"])] {
        let printed = preview(&playground, "later", &spec);
        let of = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        assert_eq!(printed.lines().map(of).collect::<Vec<_>>(), fares_otherwise, "{printed}");
        assert!(
            printed.lines().all(|line| line.ends_with(" (it is decided again within 3 days)")),
            "{printed}"
        );
    }
    for (field, value) in [("mode", json!("off")), ("match", json!({"classNames": ["another"]}))] {
        let printed = preview(&playground, "keep", &json!({"module": "builtin:keep-labelled", field: value}));
        assert_eq!(printed, "Nothing would change now for 0 claims and 2 volumes.\n", "{field}");
    }
    let keep = json::policy("ReclaimPolicy", "keep", &json!({"module": "builtin:keep-labelled"}));
    let keep = ["--policy", &playground.file("in-effect.json", &keep)];
    let mut later = json!({"module": "builtin:delete-after", "settings": {"days": 3}, "mode": "shadow"});
    let beside = preview_with(&playground, "later", &later, &keep);
    later["replaces"] = "keep".into();
    let instead = preview_with(&playground, "later", &later, &keep);
    assert_eq!(beside, "Nothing would change now for 0 claims and 2 volumes.\n");
    let kept = "pv deleted: without the change: policy keep sets the reclaim policy to \"Retain\"";
    assert!(instead.starts_with(kept), "{instead}");
    assert_eq!(volumes(), before);
}
