//! The API server accepts every object of the chart. Its validation is stricter than a schema: fields, values
//! and expressions are checked.

use bindery_chart::{Objects, manifests, manifests_of, rendered, sets};
use bindery_cluster::Cluster;
use serde_json::{Value, json};

use crate::api_server::{create_namespace, install, install_definitions, start};

const STRICT: &str = "dryRun=All&fieldValidation=Strict";

/// Tries to create each object, and the pod of each deployment. Returns the first refusal.
async fn validate(api: &Cluster, objects: &Objects) -> Result<(), String> {
    let has_policies = api.has_mutating_policies().await;
    let is_known = |name: &str| has_policies || !name.starts_with("MutatingAdmissionPolicy");
    for (name, object) in objects.iter().filter(|(name, _)| is_known(name)) {
        for content in [object.clone()].into_iter().chain(pod_of(object)) {
            api.create(&content, STRICT).await.map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(())
}

/// The pod that a deployment would make. Pod Security applies to pods only.
fn pod_of(object: &Value) -> Option<Value> {
    let mut pod = object["spec"].get("template").filter(|_| object["kind"] == "Deployment")?.clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "replica".into();
    pod["metadata"]["namespace"] = object["metadata"]["namespace"].clone();
    // The quota for its priority class is counted by a controller, which does not run here.
    pod["spec"].as_object_mut().unwrap().remove("priorityClassName");
    Some(pod)
}

#[tokio::test]
async fn every_object_of_every_set_of_values_is_valid() {
    let api = start().await;
    install_definitions(&api).await;
    for (name, values) in sets() {
        validate(&api, &rendered(&values)).await.unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[tokio::test]
async fn an_object_with_a_wrong_field_is_refused() {
    let api = start().await;
    let manifests = manifests(&json!({})).unwrap();
    for (right, wrong) in [
        ("priorityClassName:", "priorityClass:"),
        ("failurePolicy: Ignore", "failurePolicy: true"),
        ("maxUnavailable: 1\n  # A pod", "maxUnavailable: [1]\n  # A pod"),
        ("sideEffects: None", ""),
    ] {
        assert!(manifests.contains(right), "{right}");
        let objects = Objects::read(&manifests.replacen(right, wrong, 1));
        assert!(validate(&api, &objects).await.is_err(), "{wrong}");
    }
}

/// A name in YAML that is not quoted may be read as a number, a truth value or nothing.
#[tokio::test]
async fn a_name_that_looks_like_another_type_stays_text() {
    let api = start().await;
    install_definitions(&api).await;
    for name in ["123", "true", "null", "1e3"] {
        create_namespace(&api, name).await;
    }
    for (name, namespace) in [("123", "123"), ("true", "true"), ("null", "null"), ("1e3", "123")] {
        let mut values = everything(name);
        let issued = json!({"source": "cert-manager", "certManager": {"issuerName": name}});
        for certificates in [values["certificates"].clone(), issued] {
            values["certificates"] = certificates;
            let objects = Objects::read(&manifests_of(name, namespace, &values).unwrap());
            validate(&api, &objects).await.unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
}

/// Values that enable everything, with a name in each place for one.
fn everything(name: &str) -> Value {
    let (_, mut values) = sets().into_iter().find(|(file, _)| file == "all-values.yaml").unwrap();
    values["nameOverride"] = name.into();
    values["priorityClassName"] = name.into();
    values["lease"] = json!({"namespace": name, "name": name});
    values["serviceAccount"]["name"] = name.into();
    values["engine"]["configMap"] = json!({"name": name, "key": name});
    values["webhook"]["clients"]["configMap"] = name.into();
    values["certificates"] = json!({"secretName": name});
    values["commonLabels"]["odd"] = name.into();
    values
}

#[tokio::test]
async fn long_and_dotted_names_make_valid_objects() {
    let api = start().await;
    create_namespace(&api, "n").await;
    let long = "a".repeat(63);
    let (release, dotted) = ("r".repeat(53), format!("{}.b", "a".repeat(57)));
    for (release, values) in [
        ("123", json!({})),
        ("123", json!({"nameOverride": "123"})),
        ("my.release", json!({})),
        (release.as_str(), json!({})),
        ("r", json!({"nameOverride": long})),
        ("r", json!({"nameOverride": dotted})),
        ("r", json!({"nameOverride": "a.b"})),
        ("r", json!({"fullnameOverride": long})),
    ] {
        let objects = Objects::read(&manifests_of(release, "n", &values).unwrap());
        validate(&api, &objects).await.unwrap_or_else(|why| panic!("{release}: {why}"));
        let service = objects.of("Service").next().unwrap();
        let name = service["metadata"]["name"].as_str().unwrap();
        // The test finds the address in a variable whose name a shell must accept.
        let variable = format!("{}_SERVICE_HOST", name.to_uppercase().replace('-', "_"));
        let test = objects.of("Pod").next().unwrap();
        let script = test["spec"]["containers"][0]["args"][0].as_str().unwrap();
        assert!(script.contains(&format!("host=${variable}\n")), "{release}: {script}");
    }
}

/// The README says that Pod Security refuses host networking.
#[tokio::test]
async fn a_pod_on_the_host_network_is_refused_where_pods_are_restricted() {
    let api = start().await;
    install(&api, &rendered(&json!({})), &["ServiceAccount"]).await;
    for (values, is_refused) in [(json!({}), false), (json!({"hostNetwork": true}), true)] {
        let objects = rendered(&values);
        let pod = pod_of(objects.get("Deployment/bindery").unwrap()).unwrap();
        let answer = api.create(&pod, "dryRun=All").await;
        let refused = answer
            .err()
            .is_some_and(|why| why.contains("violates PodSecurity") && why.contains("host namespaces"));
        assert_eq!(refused, is_refused, "{values}");
    }
}
