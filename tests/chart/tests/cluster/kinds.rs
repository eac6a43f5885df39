//! The kinds of policies on a real API server: what it accepts, refuses, explains and prints.

use bindery_chart::{Objects, Operator, RELEASE, chart, read, yaml};
use bindery_cluster::Cluster;
use bindery_kit::json::merged;
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

async fn until_served(api: &Cluster) {
    for list in LISTS {
        until(&format!("{list} is served"), async || api.get(list).await).await;
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
        let metadata = json!({"name": kind.to_lowercase()});
        let version = "policy.bindery.dev/v1alpha1";
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        api.create(&object, "").await.unwrap();
    }
}

/// An API server with the release and an example of each kind.
async fn with_examples() -> (Cluster, Operator) {
    let (api, operator) = installed().await;
    until_served(&api).await;
    operator.shell(&format!("kubectl apply -f {EXAMPLES}")).unwrap();
    (api, operator)
}

fn example(name: &str) -> Value {
    yaml(&read(&format!("{EXAMPLES}/{name}.yaml")))
}

/// Changes of an example that the API server must refuse, with a part of its reason.
fn wrong() -> Vec<(&'static str, Value, String)> {
    const NOT_A_NAME: &str = "a DNS label of at most 63 characters is allowed, such as same-zone";
    const NOT_A_MODULE: &str =
        "; builtin:NAME, configmap:NAMESPACE/NAME/KEY, or the absolute path of a file is allowed";
    const OTHER_KIND: &str =
        "only another module of the same kind (builtin:, configmap: or a file) is allowed";
    let spec = |spec: Value| json!({"spec": spec});
    let selected = |selector: &str, requirement: Value| {
        let requirements = json!({"matchExpressions": [requirement]});
        json!({"spec": {"match": {selector: requirements}}})
    };
    let mut cases = Vec::new();
    for kind in ["engine", "match-policy", "reclaim-policy"] {
        for name in ["same.zone".to_owned(), "a".repeat(64)] {
            let why = format!("metadata.name is {name}; {NOT_A_NAME}");
            cases.push((kind, json!({"metadata": {"name": name}}), why));
        }
        for module in ["zones.wasm", "builtin:", "builtin:Zone", "configmap:a/b", "configmap:a/b/c/d", ""] {
            let why = format!("spec.module is {module}{NOT_A_MODULE}");
            cases.push((kind, spec(json!({"module": module})), why));
        }
        let long = format!("/{}", "a".repeat(1024));
        cases.push((kind, spec(json!({"module": long})), "may not be more than 1024".to_owned()));
        cases.push((kind, spec(json!({"module": null})), "spec.module: Required value".to_owned()));
        cases.push((kind, json!({"spec": null}), "spec: Required value".to_owned()));
        cases.push((kind, spec(json!({"mode": "on"})), r#"supported values: "enforce", "off""#.to_owned()));
        cases.push((kind, spec(json!({"moed": "off"})), r#"unknown field "spec.moed""#.to_owned()));
    }
    for (kind, module) in [
        ("engine", "builtin:worst-fit"),
        ("engine", "/worst-fit.wasm"),
        ("match-policy", "configmap:bindery-system/modules/zones.wasm"),
        ("match-policy", "/zones.wasm"),
        ("reclaim-policy", "builtin:keep-labelled"),
    ] {
        let why = format!("and is {module}; {OTHER_KIND}");
        cases.push((kind, spec(json!({"module": module})), why));
    }
    for kind in ["match-policy", "reclaim-policy"] {
        for selector in ["namespaceSelector", "claimSelector"] {
            let field = format!("spec.match.{selector}.matchExpressions[0]");
            for (operator, values, rule) in [
                ("In", json!([]), "needs values"),
                ("NotIn", json!(null), "needs values"),
                ("Exists", json!(["a"]), "takes no values; In and NotIn do"),
                ("DoesNotExist", json!(["a"]), "takes no values; In and NotIn do"),
            ] {
                let requirement = json!({"key": "tier", "operator": operator});
                let requirement = merged(requirement, json!({"values": values}));
                let why = format!("the operator {operator} of key tier {rule}");
                cases.push((kind, selected(selector, requirement.clone()), why));
                cases.push((kind, selected(selector, requirement), field.clone()));
            }
            let requirement = json!({"key": "tier", "operator": "Is"});
            let why = r#"supported values: "In", "NotIn", "Exists", "DoesNotExist""#.to_owned();
            cases.push((kind, selected(selector, requirement), why));
            let labels: Value = (0..65).map(|n| (format!("label-{n}"), json!(""))).collect();
            let why = format!("spec.match.{selector}.matchLabels: Too many");
            cases.push((kind, json!({"spec": {"match": {selector: {"matchLabels": labels}}}}), why));
        }
        let why = r#"supported values: "Wait", "Skip""#.to_owned();
        cases.push((kind, spec(json!({"onFailure": "Ignore"})), why));
    }
    for (kind, fields, why) in [
        ("match-policy", json!({"weight": 0}), "spec.weight in body should be greater than or equal to 1"),
        ("match-policy", json!({"weight": 101}), "spec.weight in body should be less than or equal to 100"),
        ("match-policy", json!({"maxCandidates": 0}), "should be greater than or equal to 1"),
        ("match-policy", json!({"maxCandidates": 131_073}), "should be less than or equal to 131072"),
        ("match-policy", json!({"otherwise": "Skip"}), r#"supported values: "Provision", "Wait""#),
        (
            "reclaim-policy",
            json!({"allow": ["All"]}),
            r#"supported values: "Delete", "Recycle", "OfferAgain""#,
        ),
    ] {
        cases.push((kind, spec(fields), why.to_owned()));
    }
    cases
}

#[tokio::test]
async fn kinds_take_examples_refuse_mistakes_and_are_explained_and_printed() {
    let (api, operator) = with_examples().await;
    let apply = |object: &Value| {
        operator.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], &object.to_string())
    };
    for (name, change, reason) in wrong() {
        match apply(&merged(example(name), change.clone())) {
            Ok(_) => panic!("{name} {change} is accepted"),
            Err(why) => assert!(why.contains(&reason), "{name} {change}: no {reason:?} in {why}"),
        }
    }
    let another = json!({"spec": {"module": "configmap:bindery-system/engines-2/worst-fit.wasm"}});
    apply(&merged(example("engine"), another)).unwrap();

    let status = json!({
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
    });
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
        ("explain mpol.spec.mode", &["ENUM: enforce off", "`off`: It is not loaded."]),
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
