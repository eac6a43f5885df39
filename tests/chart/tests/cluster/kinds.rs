//! The kinds of policies on a real API server: what it accepts, refuses, explains and prints.

use bindery_chart::{Objects, Operator, RELEASE, chart, read, yaml};
use bindery_cluster::Cluster;
use bindery_kit::json::{merged, policy};
use serde_json::{Value, json};

use crate::api_server::{install, until};
use crate::release::installed;

const EXAMPLES: &str = "docs/policies/objects";
const LISTS: [&str; 3] = [
    "/apis/policy.bindery.dev/v1alpha1/engines",
    "/apis/policy.bindery.dev/v1alpha1/matchpolicies",
    "/apis/policy.bindery.dev/v1alpha1/reclaimpolicies",
];
const POLICY: &str = "/apis/policy.bindery.dev/v1alpha1/matchpolicies/databases-in-their-zone";

/// Waits until the kinds are served, and kubectl can discover them.
pub(crate) async fn until_served(api: &Cluster) {
    for list in LISTS {
        until(&format!("{list} is served"), async || {
            api.get(list).await?;
            let (group, plural) = list.rsplit_once('/').unwrap();
            let found = api.get(group).await?;
            let mut resources = found["resources"].as_array().into_iter().flatten();
            if resources.any(|resource| resource["name"] == plural) { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }
}

/// Installs the kinds of a release, and an object of each that changes no decision.
pub(crate) async fn install_one_of_each(api: &Cluster, objects: &Objects) {
    install(api, objects, &["CustomResourceDefinition"]).await;
    until_served(api).await;
    for (kind, spec) in [
        ("Engine", json!({"module": "configmap:bindery-system/missing/engine.wasm"})),
        ("MatchPolicy", json!({"module": "builtin:prefer", "mode": "off"})),
        ("ReclaimPolicy", json!({"module": "builtin:keep-labelled", "mode": "off"})),
    ] {
        api.create(&policy(kind, &kind.to_lowercase(), &spec), "").await.unwrap();
    }
}

/// An API server with the release and an example of each kind.
async fn with_examples() -> (Cluster, Operator) {
    let (api, operator) = installed().await;
    until_served(&api).await;
    operator.shell(&format!("kubectl apply -f {EXAMPLES}")).unwrap();
    (api, operator)
}

fn example(file: &str) -> Value {
    yaml(&read(&format!("{EXAMPLES}/{file}.yaml")))
}

/// A module of a registry.
const FROM_REGISTRY: &str = "oci://registry.example/team/zones\
                             @sha256:4b1c0f3f7f8b5a0e6e9a2c1d4b5f60718293a4b5c6d7e8f90123456789abcdef";

/// The file of an example, a change of it that the API server must refuse, and a part of the reason.
type Wrong = (&'static str, Value, String);

fn wrong_in_any_kind() -> Vec<Wrong> {
    const NOT_A_NAME: &str = "a DNS label of at most 63 characters is allowed, such as same-zone";
    const NOT_A_MODULE: &str = "; builtin:NAME, configmap:NAMESPACE/NAME/KEY, \
                                oci://HOST/REPOSITORY@sha256:HEX, or the absolute path of a file is allowed";
    let mut wrong = Vec::new();
    for file in ["engine", "match-policy", "reclaim-policy"] {
        for name in ["same.zone".to_owned(), "a".repeat(64)] {
            let why = format!("metadata.name is {name}; {NOT_A_NAME}");
            wrong.push((file, json!({"metadata": {"name": name}}), why));
        }
        let by_tag = ["oci://ghcr.io/a:1", "oci://ghcr.io/a@sha256:0"];
        let others = ["zones.wasm", "builtin:", "builtin:Zone", "configmap:a/b", "configmap:a/b/c/d", ""];
        for module in by_tag.into_iter().chain(others) {
            let why = format!("spec.module is {module}{NOT_A_MODULE}");
            wrong.push((file, json!({"spec": {"module": module}}), why));
        }
        let long = format!("/{}", "a".repeat(1024));
        for (spec, why) in [
            (json!({"module": long}), "may not be more than 1024"),
            (json!({"module": null}), "spec.module: Required value"),
            (json!(null), "spec: Required value"),
            (json!({"mode": "on"}), r#"supported values: "enforce", "shadow", "off""#),
            (json!({"moed": "off"}), r#"unknown field "spec.moed""#),
        ] {
            wrong.push((file, json!({"spec": spec}), why.to_owned()));
        }
    }
    let pull = |spec: Value| json!({"spec": merged(json!({"module": FROM_REGISTRY}), spec)});
    for file in ["engine", "match-policy", "reclaim-policy"] {
        let why = "spec.pull is given, and spec.module is ";
        wrong.push((file, json!({"spec": {"pull": {"secret": "team"}}}), why.to_owned()));
    }
    for (spec, why) in [
        (json!({"secret": "team/a"}), "spec.pull.secret is team/a; the name of a Secret is allowed"),
        (json!({"ca": "x"}), "spec.pull.ca has no certificate; certificate authorities in PEM are allowed"),
        (json!({"ca": "x".repeat(16_385)}), "may not be more than 16384"),
        (json!({"secrets": "team"}), r#"unknown field "spec.pull.secrets""#),
    ] {
        wrong.push(("engine", pull(json!({"pull": spec})), why.to_owned()));
    }
    wrong
}

fn wrong_selectors() -> Vec<Wrong> {
    let requirement = |operator: &str, values: Value| {
        let requirement = json!({"key": "tier", "operator": operator});
        json!({"matchExpressions": [merged(requirement, json!({"values": values}))]})
    };
    let labels: Value = (0..65).map(|n| (format!("label-{n}"), json!(""))).collect();
    let mut wrong = Vec::new();
    for (selector, field, why) in [
        (requirement("In", json!([])), "matchExpressions[0]", "the operator In of key tier needs values"),
        (requirement("NotIn", json!(null)), "matchExpressions[0]", "operator NotIn of key tier needs values"),
        (requirement("Exists", json!(["a"])), "matchExpressions[0]", "Exists of key tier takes no values"),
        (
            requirement("DoesNotExist", json!(["a"])),
            "matchExpressions[0]",
            "takes no values; In and NotIn do",
        ),
        (
            requirement("Is", json!(null)),
            "matchExpressions[0].operator",
            r#"supported values: "In", "NotIn", "Exists", "DoesNotExist""#,
        ),
        (json!({"matchLabels": labels}), "matchLabels", "must have at most 64 items"),
    ] {
        for file in ["match-policy", "reclaim-policy"] {
            for of in ["namespaceSelector", "claimSelector"] {
                let change = json!({"spec": {"match": {of: selector}}});
                wrong.push((file, change.clone(), why.to_owned()));
                wrong.push((file, change, format!("spec.match.{of}.{field}: ")));
            }
        }
    }
    wrong
}

fn wrong_fields() -> Vec<Wrong> {
    const OTHER_KIND: &str =
        "; only another module of the same kind (builtin:, configmap:, oci: or a file) is allowed";
    let fields = [
        ("engine", "module", json!("builtin:worst-fit"), OTHER_KIND),
        ("engine", "module", json!("/worst-fit.wasm"), OTHER_KIND),
        ("match-policy", "module", json!("configmap:a/b/c"), OTHER_KIND),
        ("match-policy", "module", json!("/zones.wasm"), OTHER_KIND),
        ("reclaim-policy", "module", json!("builtin:keep-labelled"), OTHER_KIND),
        ("match-policy", "weight", json!(0), "spec.weight in body should be greater than or equal to 1"),
        ("match-policy", "weight", json!(101), "spec.weight in body should be less than or equal to 100"),
        ("engine", "samplePercent", json!(0), "spec.samplePercent in body should be greater than"),
        ("match-policy", "samplePercent", json!(101), "should be less than or equal to 100"),
        ("reclaim-policy", "samplePercent", json!(0), "should be greater than or equal to 1"),
        ("match-policy", "maxCandidates", json!(0), "should be greater than or equal to 1"),
        ("match-policy", "maxCandidates", json!(131_073), "should be less than or equal to 131072"),
        ("match-policy", "otherwise", json!("Skip"), r#"supported values: "Provision", "Wait""#),
        ("match-policy", "onFailure", json!("Ignore"), r#"supported values: "Wait", "Skip""#),
        ("reclaim-policy", "onFailure", json!("Ignore"), r#"supported values: "Wait", "Skip""#),
        ("reclaim-policy", "allow", json!(["All"]), r#"values: "Delete", "Recycle", "OfferAgain""#),
    ];
    fields.map(|(file, field, value, why)| (file, json!({"spec": {field: value}}), why.to_owned())).into()
}

/// A status of a policy.
fn status() -> Value {
    json!({
        "observedGeneration": 1,
        "digest": "sha256:12",
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "Loaded",
            "message": "It is in use.",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-11-26T10:00:00Z",
        }],
        "lastGood": {"generation": 1, "digest": "sha256:12", "spec": {"module": "builtin:same-zone"}},
        "calls": 7,
        "faults": 2,
        "rejections": {"other-zone": 3},
    })
}

#[tokio::test]
async fn kinds_take_examples_refuse_mistakes_and_are_explained_and_printed() {
    let (api, operator) = with_examples().await;
    let apply = |object: &Value| {
        operator.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], &object.to_string())
    };
    for (file, change, reason) in [wrong_in_any_kind(), wrong_selectors(), wrong_fields()].concat() {
        match apply(&merged(example(file), change.clone())) {
            Ok(_) => panic!("{file} {change} is accepted"),
            Err(why) => assert!(why.contains(&reason), "{file} {change}: no {reason:?} in {why}"),
        }
    }
    let another = json!({"spec": {"module": "configmap:bindery-system/engines-2/worst-fit.wasm"}});
    apply(&merged(example("engine"), another)).unwrap();

    let status = status();
    let policy = api.patch(&format!("{POLICY}/status"), &json!({"status": status})).await.unwrap();
    assert_eq!(policy["status"], status);
    let twice = json!([status["conditions"][0], status["conditions"][0]]);
    let why = api.patch(&format!("{POLICY}/status"), &json!({"status": {"conditions": twice}})).await;
    assert!(why.unwrap_err().contains("Duplicate value"));
    assert_eq!(policy["spec"]["settings"], json!({"zone": "Label"}));
    for (field, default) in [
        ("mode", json!("enforce")),
        ("weight", json!(1)),
        ("maxCandidates", json!(4096)),
        ("onFailure", json!("Wait")),
        ("otherwise", json!("Provision")),
    ] {
        assert_eq!(policy["spec"][field], default, "{field}");
    }

    for (command, expected) in [
        ("get mpol", &["NAME MODE ORDER READY MODULE AGE", " enforce 10 True builtin:same-zone "][..]),
        ("get mpol -o wide", &["MODULE AGE DIGEST CALLS FAULTS", " sha256:12 7 2"]),
        ("get bengine", &["NAME MODE READY MODULE AGE", "worst-fit enforce configmap:"]),
        ("get rpol", &["NAME MODE ORDER READY MODULE AGE", "finished-tests off 0 /policies/"]),
        ("get bindery -o name", &["/worst-fit", "/databases-in-their-zone", "/finished-tests"]),
        (
            "get bindery --field-selector spec.mode=off",
            &["MODULE AGE reclaimpolicy.policy.bindery.dev/finished-tests off 0"],
        ),
        ("get bengine --field-selector spec.module=builtin:none", &["No resources found"]),
        (
            "explain matchpolicy.spec.module",
            &["the absolute path of a file", "`configmap:NAMESPACE/NAME/KEY`"],
        ),
        ("explain mpol.spec.mode", &["ENUM: enforce shadow off", "`off`: It is not loaded."]),
        (
            "explain mpol.spec.pull",
            &["How a module of a registry is fetched", "secret <string>", "policies.registry.pullSecrets"],
        ),
        ("explain rpol.spec.allow", &["`OfferAgain`: To offer a volume again with its data."]),
        ("explain bengine", &["The component that decides"]),
    ] {
        // The schemas of new kinds are published after a moment.
        until(&format!("kubectl {command} prints {expected:?}"), async || {
            let printed = operator.shell(&format!("kubectl {command} 2>&1"))?;
            let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
            if expected.iter().all(|text| printed.contains(text)) { Ok(()) } else { Err(printed) }
        })
        .await;
    }
}

#[tokio::test]
async fn objects_outlive_a_release_until_crds_keep_is_false() {
    let (api, operator) = with_examples().await;
    let before = api.get(POLICY).await.unwrap();
    operator.helm(&["uninstall", RELEASE]);
    assert_eq!(api.get(POLICY).await.unwrap(), before);
    // The same release takes the kinds over.
    operator.helm(&["install", RELEASE, chart().to_str().unwrap(), "--set", "mode=own"]);
    operator.upgrade(&["--set", "crds.install=false"]).unwrap();
    assert_eq!(api.get(POLICY).await.unwrap(), before);

    operator.upgrade(&["--set", "crds.install=true,crds.keep=false"]).unwrap();
    assert_eq!(api.get(POLICY).await.unwrap(), before);
    operator.helm(&["uninstall", RELEASE]);
    for list in LISTS {
        let is_gone = async || match api.get(list).await {
            Ok(_) => Err("it is served".to_owned()),
            Err(why) => Ok(why),
        };
        until(&format!("{list} is gone"), is_gone).await;
    }
}
