//! An engine cannot deny at will: each of its denials is checked against the objects and its own questions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bindery_admission_tests::{Replica, claim, create, update, volume, warnings};
use bindery_core::{ClaimKey, Cluster, Decision, Engine, Finding, Request, Rule, Source, Subject};
use bindery_kit::Scripted;
use bindery_webhook::{AdmissionSettings, Levels};
use serde_json::{Value, json};

/// An engine that makes a finding about every object.
fn malicious(rule: Rule) -> impl Engine {
    Scripted(move |request: &Request, cluster: &mut dyn Cluster| {
        // The engine knows the names, so its finding is well formed.
        let key = ClaimKey::new("ns", "c");
        cluster.volume(Source::Overlay, "v".into())?;
        cluster.claim(Source::Overlay, key.clone())?;
        let claim = matches!(request.subject, Subject::ReviewVolume { .. }).then_some(key);
        let (found, wanted) = ("1Gi".into(), "8Gi".into());
        let finding = Finding { rule, volume: "v".into(), claim, found, wanted };
        Ok(Decision { findings: vec![finding], ..Decision::done() })
    })
}

#[tokio::test]
async fn an_engine_that_denies_everything_denies_nothing() {
    let fitting = [volume("v", "8Gi", json!({})), claim("c", "8Gi", json!({}))];
    let named = claim("c", "8Gi", json!({"volumeName": "v"}));
    let reserved = volume("v", "8Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    // A claim and a volume that name each other are never denied.
    for rule in Rule::ALL.into_iter().filter(|rule| *rule != Rule::PairMismatch) {
        let denied = format!("{}=deny", rule.name()).parse().unwrap();
        let settings = AdmissionSettings { levels: Levels::new([denied]), ..AdmissionSettings::default() };
        let replica = Replica::new(Arc::new(malicious(rule)), settings).having(&fitting);
        let reviews =
            [create(&named), update(&named, &fitting[1]), create(&reserved), update(&reserved, &fitting[0])];
        for (review, count) in reviews.into_iter().zip(1..) {
            let response = replica.response(&review).await;
            assert_eq!(response["allowed"], json!(true), "{rule:?}: {response}");
            assert_eq!(warnings(&response), ["Bindery has not checked this request: its engine failed"]);
            let counted = format!("bindery_admission_faults_total{{cause=\"engine\"}} {count}\n");
            assert!(replica.scrape().contains(&counted), "no {counted} in {}", replica.scrape());
        }
    }
}

#[tokio::test]
async fn an_engine_cannot_deny_an_update_for_an_old_fault() {
    let pair = |name: &str| {
        let mut claim = claim(name, "8Gi", json!({"volumeName": "v"}));
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        claim
    };
    let bound_to =
        |name: &str| json!({"claimRef": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")}});
    let named = claim("c", "8Gi", json!({"volumeName": "v"}));
    // A waiting claim, a lost claim, and a claim that is bound again at once.
    for (volume, others, old, new) in [
        (volume("v", "1Gi", json!({})), vec![], named.clone(), named.clone()),
        (volume("v", "8Gi", bound_to("d")), vec![pair("d")], pair("c"), pair("c")),
        (volume("v", "8Gi", bound_to("c")), vec![], pair("c"), named),
    ] {
        let mut labelled = new;
        labelled["metadata"]["labels"] = json!({"app": "db"});
        for rule in Rule::ALL.into_iter().filter(|rule| rule.denies()) {
            let replica = Replica::new(Arc::new(malicious(rule)), AdmissionSettings::default());
            let replica = replica.having(&[volume.clone(), old.clone()]).having(&others);
            let response = replica.response(&update(&labelled, &old)).await;
            assert_eq!(response["allowed"], json!(true), "{rule:?}: {response}");
        }
    }
}

/// An engine that reports the class of each claim, with or without asking about it.
fn slanderous(rule: Rule, asks: bool) -> impl Engine {
    Scripted(move |request: &Request, cluster: &mut dyn Cluster| {
        if asks {
            bindery_engine::DefaultEngine.decide(request, cluster)?;
            // The default engine asks for no volumes if nothing is wrong with the class. This one does.
            let Subject::ReviewClaim { new, .. } = &request.subject else { panic!("a claim is created") };
            cluster.access_sets(new.access_set())?;
        }
        let (volume, found, wanted) = ("".into(), "gold".into(), "".into());
        let finding = Finding { rule, volume, claim: None, found, wanted };
        Ok(Decision { findings: vec![finding], ..Decision::done() })
    })
}

#[tokio::test]
async fn an_engine_denies_a_class_only_after_it_asked_for_other_ways() {
    use Rule::{ClassMissing, ProvisionerUnknown};
    let of_class = |storage: &str, spec: Value| {
        let mut volume = volume("v", storage, spec);
        volume["spec"]["storageClassName"] = "gold".into();
        volume["status"] = json!({"phase": "Available"});
        volume
    };
    let fits = || of_class("8Gi", json!({}));
    let is_reserved = || of_class("8Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    let is_small = || of_class("1Gi", json!({}));
    let glusterfs = Some("kubernetes.io/glusterfs");
    let rows: [(Rule, Option<&str>, Option<Value>, bool); 15] = [
        (ProvisionerUnknown, glusterfs, None, true),
        (ProvisionerUnknown, glusterfs, Some(is_small()), true),
        (ProvisionerUnknown, glusterfs, Some(fits()), false),
        (ProvisionerUnknown, glusterfs, Some(is_reserved()), false),
        // The class has no provisioner on purpose, a CSI driver replaces the plugin, or the provisioner is
        // not in-tree.
        (ProvisionerUnknown, Some("kubernetes.io/no-provisioner"), None, false),
        (ProvisionerUnknown, Some("kubernetes.io/aws-ebs"), None, false),
        (ProvisionerUnknown, Some("vendor.example/disk"), None, false),
        (ProvisionerUnknown, None, None, false),
        (ClassMissing, None, None, true),
        (ClassMissing, None, Some(is_small()), true),
        (ClassMissing, None, Some(fits()), false),
        (ClassMissing, None, Some(is_reserved()), false),
        (ClassMissing, glusterfs, None, false),
        (ClassMissing, Some("kubernetes.io/no-provisioner"), None, false),
        (ClassMissing, Some("vendor.example/disk"), None, false),
    ];
    for (row, (rule, provisioner, volume, is_so)) in rows.into_iter().enumerate() {
        for asks in [true, false] {
            let levels = Levels::new([format!("{}=deny", rule.name()).parse().unwrap()]);
            let settings = AdmissionSettings { levels, ..AdmissionSettings::default() };
            let replica = Replica::new(Arc::new(slanderous(rule, asks)), settings);
            let class = provisioner.map(|provisioner| {
                json!({"kind": "StorageClass", "metadata": {"name": "gold"}, "provisioner": provisioner,
                    "volumeBindingMode": "Immediate"})
            });
            let objects: Vec<_> = class.into_iter().chain(volume.clone()).collect();
            let replica = replica.having(&objects);
            let response =
                replica.response(&create(&claim("c", "8Gi", json!({"storageClassName": "gold"})))).await;
            assert_eq!(response["allowed"], json!(!(is_so && asks)), "row {row}, asks {asks}: {response}");
        }
    }
}
