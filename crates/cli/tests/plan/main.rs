//! `bindery plan` and `bindery explain` as their users see them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod explain;
mod input;
mod manifests;
mod policies;
#[path = "../support/mod.rs"]
mod support;

use bindery_kit::json;
use serde_json::{Value, json};
use support::{Home, example, list, root};

/// The plan of some manifests as a table.
fn table(manifests: &str) -> String {
    let ended = Home::new().bindery_with(&["plan", "-f", "-"], manifests);
    assert_eq!(ended.status, 0, "{ended:?}");
    ended.stdout
}

/// The plan of manifests from standard input, as JSON; no file is written.
fn plan(manifests: &Value) -> Value {
    let home = Home::new();
    let ended = home.bindery_with(&["plan", "-o", "json", "-f", "-"], &manifests.to_string());
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(home.content().is_empty(), "{:?}", home.content());
    serde_json::from_str(&ended.stdout).unwrap()
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().unwrap().iter()
}

fn volume(name: &str, spec: Value) -> Value {
    let nfs = json!({"hostPath": null, "nfs": {"server": "files.example", "path": "/"}});
    let volume = json::volume(name, json!({"spec": {"capacity": {"storage": "5Gi"}}}));
    json::merged(json::merged(volume, json!({"spec": nfs})), json!({"spec": spec}))
}

/// A claim without class, unless its spec has one.
fn claim(name: &str, spec: Value) -> Value {
    let claim =
        json::claim(name, json!({"metadata": {"namespace": null}, "spec": {"storageClassName": null}}));
    json::merged(claim, json!({"spec": spec}))
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json::class(name, provisioner, json!({"volumeBindingMode": mode}))
}

/// The object as a cluster returns it.
fn from_cluster(object: Value, uid: &str, status: Value) -> Value {
    let meta = json!({
        "uid": uid,
        "resourceVersion": "4711",
        "creationTimestamp": "2026-03-01T08:00:00Z",
        "managedFields": [{
            "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "2026-03-01T08:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:capacity": {".": {}, "f:storage": {}}}},
        }],
    });
    json::merged(object, json!({"metadata": meta, "status": status}))
}

#[test]
fn a_plan_shows_each_outcome_and_the_reasons_of_each_candidate() {
    let home = Home::new();
    let folder = example("static-binding");
    let ended = home.bindery(&["plan", "-f", folder.to_str().unwrap()]);
    let expected = "\
CLAIM            REQUEST  CLASS  OUTCOME         VOLUME  CAPACITY
default/archive  200Gi    -      pending         -       -
default/notes    4Gi      -      would be bound  small   5Gi
default/reports  4Gi      -      would be bound  large   100Gi

default/archive: no persistent volumes available for this claim and no storage class is set
  medium  spec.capacity.storage: offers 10Gi, asked for 200Gi
  large   spec.claimRef: belongs to default/reports; spec.capacity.storage: offers 100Gi, asked for 200Gi
  small   spec.claimRef: belongs to default/notes; spec.capacity.storage: offers 5Gi, asked for 200Gi
";
    assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.as_str()), (0, expected, ""));
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(expected), "the README shows another plan");
    assert!(home.content().is_empty(), "{:?}", home.content());
}

#[test]
fn every_way_to_give_manifests_gives_the_same_plan() {
    let home = Home::new();
    let folder = example("static-binding");
    let (volumes, claims) = (folder.join("1-volumes.yaml"), folder.join("2-claims.yaml"));
    let (volumes, claims) = (volumes.to_str().unwrap(), claims.to_str().unwrap());
    let from_folder = home.bindery(&["plan", "-f", folder.to_str().unwrap()]).stdout;
    assert_eq!(home.bindery(&["plan", "-f", volumes, "-f", claims]).stdout, from_folder);
    assert_eq!(home.bindery(&["plan", "-f", claims, volumes]).stdout, from_folder);
    let printed = home.bindery(&["example", "static-binding"]).stdout;
    assert_eq!(home.bindery_with(&["plan", "-f", "-"], &printed).stdout, from_folder);
    // The manifests of later steps are in a subfolder.
    let whole = home.bindery(&["plan", "-R", "-f", folder.to_str().unwrap()]).stdout;
    assert!(whole.contains("default/archive  200Gi    -      would be bound  huge"), "{whole}");
    let as_yaml = home.bindery(&["plan", "-o", "yaml", "-f", folder.to_str().unwrap()]).stdout;
    let as_json = home.bindery(&["plan", "-o", "json", "-f", folder.to_str().unwrap()]).stdout;
    let as_yaml: Value = serde_saphyr::from_str(&as_yaml).unwrap();
    assert_eq!(as_yaml, serde_json::from_str::<Value>(&as_json).unwrap());
    assert_eq!(
        as_json.parse::<Value>().unwrap()["claims"][0]["candidates"][0]["obstacles"][0]["reason"],
        "too-small"
    );
}

#[test]
fn objects_from_a_cluster_are_taken_as_they_are() {
    let reference =
        |name: &str, uid: &str| json!({"claimRef": {"namespace": "default", "name": name, "uid": uid}});
    let mut bound = claim("bound", json!({"volumeName": "v-bound", "storageClassName": ""}));
    bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let mut lost = claim("lost", json!({"volumeName": "v-gone", "storageClassName": ""}));
    lost["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let phase = |phase: &str| json!({"phase": phase});
    let mut policy = reference("deleted", "u-deleted");
    policy["persistentVolumeReclaimPolicy"] = json!("Retain");
    let mut external = policy.clone();
    external["persistentVolumeReclaimPolicy"] = json!("Delete");
    let mut external = volume("v-external", external);
    external["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "disks.example.com"});
    let bound_status =
        json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}});
    let plan = plan(&list(&[
        from_cluster(volume("v-bound", reference("bound", "u-bound")), "u1", phase("Bound")),
        from_cluster(volume("v-kept", policy), "u2", phase("Released")),
        from_cluster(external, "u3", phase("Bound")),
        from_cluster(bound, "u-bound", bound_status.clone()),
        from_cluster(lost, "u-lost", bound_status),
        from_cluster(claim("waiting", json!({"storageClassName": ""})), "u-waiting", phase("Pending")),
    ]));
    let outcome = |index: usize| (&plan["claims"][index]["name"], &plan["claims"][index]["outcome"]);
    assert_eq!(outcome(0), (&json!("bound"), &json!("bound")));
    assert_eq!(plan["claims"][0]["changed"], false);
    assert_eq!(outcome(1), (&json!("lost"), &json!("lost")));
    assert_eq!(outcome(2), (&json!("waiting"), &json!("pending")));
    let reasons: Vec<String> = each(&plan["claims"][2]["candidates"])
        .map(|candidate| format!("{}: {}", candidate["volume"], candidate["obstacles"][0]["message"]))
        .collect();
    assert_eq!(
        reasons,
        [
            r#""v-bound": "spec.claimRef: belongs to default/bound""#,
            r#""v-external": "spec.claimRef: belongs to default/deleted""#,
            r#""v-kept": "spec.claimRef: belongs to default/deleted""#,
        ]
    );
    let fates: Vec<(&Value, &Value, &Value)> =
        each(&plan["volumes"]).map(|volume| (&volume["name"], &volume["phase"], &volume["fate"])).collect();
    assert_eq!(
        fates,
        [
            (
                &json!("v-external"),
                &json!("Released"),
                &json!("\"disks.example.com\" is expected to delete it")
            ),
            (
                &json!("v-kept"),
                &json!("Released"),
                &json!("it is kept with its data until an administrator clears spec.claimRef or deletes it")
            ),
        ]
    );
}

#[test]
fn claims_of_each_kind_of_class_are_provisioned_or_wait() {
    let of_class = |name: &str, class: &str| claim(name, json!({"storageClassName": class}));
    let mut default = class("standard", "disks.example.com", "Immediate");
    default["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let plan = plan(&list(&[
        default,
        class("later", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        class("ebs", "kubernetes.io/aws-ebs", "Immediate"),
        class("folders", "kubernetes.io/host-path", "Immediate"),
        volume("local", json!({"storageClassName": "later"})),
        of_class("a-external", "standard"),
        claim("b-default", json!({})),
        of_class("c-later", "later"),
        of_class("d-migrated", "ebs"),
        of_class("e-off", "folders"),
        of_class("f-missing", "nowhere"),
        claim("g-named", json!({"volumeName": "unheard-of", "storageClassName": ""})),
    ]));
    let told: Vec<(&str, &str, &str)> = each(&plan["claims"])
        .map(|claim| {
            let text = |value: &'static str| claim[value].as_str().unwrap_or_default();
            (text("outcome"), text("provisioner"), claim["messages"][0].as_str().unwrap_or_default())
        })
        .collect();
    let starts = [
        ("provisioning", "disks.example.com", "Waiting for a volume to be created"),
        ("provisioning", "disks.example.com", "Waiting for a volume to be created"),
        ("waits-for-consumer", "", "waiting for first consumer to be created before binding"),
        ("provisioning", "ebs.csi.aws.com", "Waiting for a volume to be created"),
        ("pending", "", "Failed to provision volume: Failed to create provisioner: volume plugin"),
        ("pending", "", "Failed to provision volume: storageclass.storage.k8s.io \"nowhere\" not found"),
        ("pending", "", "spec.volumeName: there is no volume \"unheard-of\" yet"),
    ];
    assert_eq!(told.len(), starts.len());
    for (told, start) in told.iter().zip(starts) {
        assert!(
            told.0 == start.0 && told.1 == start.1 && told.2.starts_with(start.2),
            "{told:?} and not {start:?}"
        );
    }
    assert_eq!(plan["claims"][1]["storageClass"], "standard");
    assert_eq!(plan["claims"][2]["candidates"], json!([{"volume": "local", "fits": true}]));
}

/// Binary quantities are capped at 2^63, decimal ones are not.
#[test]
fn volumes_beyond_63_bits_keep_their_size() {
    let plan = plan(&list(&[
        volume("small", json!({"capacity": {"storage": "10E"}})),
        claim("large", json!({"resources": {"requests": {"storage": "15E"}}, "storageClassName": ""})),
    ]));
    let large = &plan["claims"][0];
    assert_eq!(large["outcome"], "pending", "{large}");
    assert!(large.to_string().contains("offers 10E, asked for 15E"), "{large}");
}

#[test]
fn failures_are_part_of_the_plan_and_not_logged() {
    let ended = Home::new().bindery(&["plan", "-f", example("release-and-delete").to_str().unwrap()]);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
    assert!(ended.stdout.contains("default/cache: Failed to provision volume: "), "{ended:?}");
}

#[test]
fn only_the_nearest_volumes_are_listed_in_each_format() {
    let mut items: Vec<Value> =
        (1..=25).map(|n| volume(&format!("v{n:02}"), json!({"volumeMode": "Block"}))).collect();
    items.push(claim("c", json!({"storageClassName": ""})));
    let manifests = list(&items).to_string();
    let by_default = &plan(&list(&items))["claims"][0];
    assert_eq!(by_default["candidates"].as_array().map(Vec::len), Some(16));
    assert_eq!(by_default["moreCandidates"], 9);
    let text = table(&manifests);
    assert!(text.contains("  v16  spec.volumeMode: offers Block, asked for Filesystem\n"), "{text}");
    let more = "  and 9 more volumes, further away; --nearest all lists every volume\n";
    assert!(text.ends_with(more), "{text}");
    let with = |nearest: &str, output: &str| {
        let arguments = ["plan", "--nearest", nearest, "-o", output, "-f", "-"];
        Home::new().bindery_with(&arguments, &manifests).stdout
    };
    let all = with("all", "table");
    assert!(all.ends_with("  v25  spec.volumeMode: offers Block, asked for Filesystem\n"), "{all}");
    for (nearest, listed, more) in [("3", 3, json!(22)), ("all", 25, Value::Null)] {
        let json: Value = with(nearest, "json").parse().unwrap();
        let claim = &json["claims"][0];
        assert_eq!(claim["candidates"].as_array().unwrap().len(), listed);
        assert_eq!(claim["moreCandidates"], more);
        let yaml: Value = serde_saphyr::from_str(&with(nearest, "yaml")).unwrap();
        assert_eq!(yaml, json);
    }
}

#[test]
fn claims_of_stateful_sets_and_ephemeral_volumes_are_planned() {
    let template = |name: &str, size: &str| {
        json!({
            "metadata": {"name": name, "labels": {"disk": name}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "resources": {"requests": {"storage": size}},
                "selector": {"matchLabels": {"for": name}},
            },
        })
    };
    let ephemeral =
        |name: &str| json!({"name": name, "ephemeral": {"volumeClaimTemplate": template(name, "1Gi")}});
    let pod_spec =
        |name: &str| json!({"containers": [{"name": "c", "image": "i"}], "volumes": [ephemeral(name)]});
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "postgres", "namespace": "db"},
        "spec": {
            "replicas": 2,
            "ordinals": {"start": 3},
            "selector": {"matchLabels": {"app": "postgres"}},
            "serviceName": "postgres",
            "template": {"metadata": {"labels": {"app": "postgres"}}, "spec": pod_spec("scratch")},
            "volumeClaimTemplates": [template("data", "4Gi")],
        },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec("tmp"),
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"template": {"spec": pod_spec("tmp")}},
    });
    let for_data = json!({"metadata": {"labels": {"for": "data"}}});
    // A claim that exists is used by the StatefulSet, and not planned a second time.
    let mut existing = claim("data-postgres-3", json!({"storageClassName": ""}));
    existing["metadata"]["namespace"] = json!("db");
    let manifests =
        list(&[json::merged(volume("v", json!({})), for_data), set, pod, deployment, existing]).to_string();
    let ended = Home::new().bindery_with(&["plan", "-o", "json", "-f", "-"], &manifests);
    assert_eq!(
        ended.stderr,
        "note: 1 x apps/v1 Deployment left out: the names of its pods, and so of their claims, are not known \
         before\n"
    );
    let plan: Value = ended.stdout.parse().unwrap();
    let told: Vec<String> = each(&plan["claims"])
        .map(|claim| {
            let text = |field: &str| claim[field].as_str().unwrap().to_owned();
            [text("namespace"), text("name"), text("request"), text("outcome")].join(" ")
        })
        .collect();
    assert_eq!(
        told,
        [
            "db data-postgres-3 1Gi bound",
            "db data-postgres-4 4Gi pending",
            "db postgres-3-scratch 1Gi pending",
            "db postgres-4-scratch 1Gi pending",
            "default p-tmp 1Gi pending",
        ]
    );
}

#[test]
fn a_lost_claim_is_told_both_uids_and_two_ways_out() {
    let of = |uid: &str, name: &str| json!({"claimRef": {"namespace": "default", "name": name, "uid": uid}});
    let lost = |name: &str, uid: &str| {
        let mut claim = claim(name, json!({"volumeName": format!("v-{name}"), "storageClassName": ""}));
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        from_cluster(claim, uid, json!({"phase": "Bound"}))
    };
    let bound = json!({"phase": "Bound"});
    let mut second = lost("second", "u-second");
    second["spec"]["volumeName"] = json!("v-first");
    let plan = plan(&list(&[
        from_cluster(volume("v-restored", of("u-old", "restored")), "u1", bound.clone()),
        from_cluster(volume("v-first", of("u-first", "first")), "u2", bound),
        lost("restored", "u-new"),
        lost("first", "u-first"),
        second,
    ]));
    let told: Vec<(&Value, &Value)> =
        each(&plan["claims"]).map(|claim| (&claim["outcome"], &claim["messages"])).collect();
    assert_eq!(
        told,
        [
            (&json!("bound"), &Value::Null),
            (
                &json!("lost"),
                &json!(["volume \"v-restored\" belongs to default/restored with UID u-old, and this claim \
                     has UID u-new: one of them was made again, for instance by a restore. If the volume \
                     has this claim's data, clear its spec.claimRef, and the claim is bound again. If not, \
                     delete the claim and make it again: it gets another volume"])
            ),
            (
                &json!("lost"),
                &json!(["Two claims are bound to the same volume \"v-first\"; it belongs to default/first"])
            ),
        ]
    );
}

#[test]
fn a_folder_without_manifests_stands_for_its_subfolders() {
    let ended = Home::new().bindery(&["plan", "-f", root().join("examples").to_str().unwrap()]);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
    assert!(ended.stdout.contains("default/notes "), "{}", ended.stdout);
    assert!(ended.stdout.contains("default/cache "), "{}", ended.stdout);
}
