//! What the schema of values refuses.

use std::collections::BTreeSet;

use bindery_chart::{read, render, rendered, table, yaml};
use serde_json::{Value, json};

/// A field of affinities.
const NEEDED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Paths of the maps in some values, the whole first.
fn maps(values: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(fields) = values.as_object() {
        found.push(path.to_owned());
        for (key, value) in fields {
            maps(value, &format!("{path}/{key}"), found);
        }
    }
}

fn schema() -> Value {
    serde_json::from_str(&read("charts/bindery/values.schema.json")).unwrap()
}

/// What Helm says of values that it must refuse, one finding a line.
fn complaints(values: &Value) -> Vec<String> {
    let told = render(values).expect_err("these values must be refused");
    told.lines().filter_map(|line| Some(line.trim().strip_prefix("- at ")?.to_owned())).collect()
}

/// Sets a value, and makes the maps above it.
fn set(values: &mut Value, path: &str, to: Value) {
    let mut at = values;
    for key in path.split('/').skip(1) {
        at = at.as_object_mut().unwrap().entry(key).or_insert_with(|| json!({}));
    }
    *at = to;
}

#[test]
fn a_key_that_does_not_exist_is_refused_at_every_level() {
    // Maps whose keys are the user's: labels, annotations.
    let free = ["/commonLabels", "/podLabels", "/podAnnotations", "/nodeSelector", "/dashboard/labels"];
    let is_free =
        |path: &str| free.contains(&path) || path.ends_with("/annotations") || path.ends_with("abels");
    let mut found = Vec::new();
    maps(&yaml(&read("charts/bindery/values.yaml")), "", &mut found);
    found.retain(|path| !is_free(path));
    // All at once: Helm tells of each.
    let mut values = json!({});
    for path in &found {
        set(&mut values, &format!("{path}/noSuchKey"), json!(1));
    }
    let complaints = complaints(&values);
    for path in &found {
        let told = format!("'{path}': additional properties 'noSuchKey' not allowed");
        let root = "'': additional properties 'noSuchKey' not allowed";
        let told = if path.is_empty() { root } else { &told };
        // Quantities are the only other maps with keys of their own kind.
        let is_quantities = path.starts_with("/resources/");
        assert!(is_quantities || complaints.iter().any(|line| line == told), "{path}: {complaints:#?}");
    }
}

#[test]
fn a_value_of_a_wrong_kind_is_refused() {
    let readme = read("charts/bindery/README.md");
    let rows = table(&readme, "## Values").into_iter().map(|row| row[0].trim_matches('`').replace('.', "/"));
    let paths: Vec<_> = rows.map(|row| format!("/{row}")).collect();
    let mut values = json!({});
    for path in &paths {
        // No value is a map of lists of maps of lists.
        set(&mut values, path, json!({"no": [{"such": ["value"]}]}));
    }
    let complaints = complaints(&values);
    for path in &paths {
        let told =
            |line: &String| line.starts_with(&format!("'{path}'")) || line.starts_with(&format!("'{path}/"));
        assert!(complaints.iter().any(told), "{path} may be anything: {complaints:#?}");
    }
}

#[test]
fn values_that_cannot_work_are_refused() {
    for (values, why) in [
        (json!({"mode": "Own"}), "'/mode'"),
        (json!({"replicas": -1}), "'/replicas'"),
        (json!({"fullnameOverride": "my.bindery"}), "'/fullnameOverride'"),
        (json!({"fullnameOverride": "1st"}), "'/fullnameOverride'"),
        (json!({"image": {"digest": "sha256:abc"}}), "'/image/digest'"),
        (json!({"lease": {"durationSeconds": 2}}), "'/lease/durationSeconds'"),
        (json!({"inFlight": 0}), "'/inFlight'"),
        (json!({"webhook": {"rules": {"no-such-rule": "deny"}}}), "'/webhook/rules'"),
        (json!({"webhook": {"rules": {"volume-oversized": "off "}}}), "'/webhook/rules/volume-oversized'"),
        (json!({"webhook": {"timeoutSeconds": 31}}), "'/webhook/timeoutSeconds'"),
        (json!({"webhook": {"port": 443}}), "'/webhook/port'"),
        (json!({"certificates": {"lifetime": "3 months"}}), "'/certificates/lifetime'"),
        (json!({"certificates": {"source": "secret"}}), "'/certificates/secretName'"),
        (json!({"certificates": {"caBundle": "-----BEGIN"}}), "'/certificates/caBundle'"),
        (json!({"listenAddress": "localhost"}), "'/listenAddress'"),
        (json!({"listenAddress": "10.0.0.256"}), "'/listenAddress'"),
        (json!({"listenAddress": "[::"}), "'/listenAddress'"),
        (json!({"listenAddress": "[::]:8080"}), "'/listenAddress'"),
        (json!({"tracing": {"endpoint": "https://collector"}}), "'/tracing/endpoint'"),
        (
            json!({"podLabels": {"app.kubernetes.io/name": "other"}}),
            "invalid propertyName 'app.kubernetes.io/name'",
        ),
        (json!({"prometheusRule": {"disabled": ["NoSuchAlert"]}}), "'/prometheusRule/disabled/0'"),
        (json!({"tolerations": [{"effect": "NoScheduling"}]}), "'/tolerations/0/effect'"),
        (json!({"logging": {"level": "inof"}}), "'/logging/level'"),
        (json!({"logging": {"level": "warn,bindery"}}), "'/logging/level'"),
        (json!({"webhook": {"exemptNamespaces": ["kube_system"]}}), "'/webhook/exemptNamespaces/0'"),
        (json!({"extraVolumes": [{"name": "a", "confgMap": {"name": "b"}}]}), "'/extraVolumes/0'"),
        (json!({"extraVolumes": [{"name": "a", "configMap": {"nmae": "b"}}]}), "'/extraVolumes/0/configMap'"),
        (json!({"affinity": {"nodeAffinity": {NEEDED: {"terms": []}}}}), "'/affinity/nodeAffinity/required"),
        (
            json!({"affinity": {"podAffinity": {NEEDED: [{"topology": "a"}]}}}),
            "'/affinity/podAffinity/required",
        ),
    ] {
        let complaints = complaints(&values);
        assert!(complaints.iter().any(|line| line.contains(why)), "{values}: {complaints:#?}");
    }
}

#[test]
fn filters_of_the_log_are_let_in() {
    for filter in ["off", "warn,bindery=debug", "bindery[sync{uid=\"a,b\"}]=trace,info"] {
        let objects = rendered(&json!({"logging": {"level": filter}}));
        assert_eq!(
            objects.at("Deployment/bindery /spec/template/metadata/annotations/bindery.dev~1settings/log"),
            Some(&json!(filter))
        );
    }
}

#[test]
fn a_certificate_is_renewed_within_its_life() {
    let issued = |duration: &str, left: &str| json!({"certificates": {"source": "cert-manager", "certManager": {"duration": duration, "renewBefore": left}}});
    for (duration, left) in [("24h", "720h"), ("1h", "60m")] {
        let why = render(&issued(duration, left)).unwrap_err();
        let told = format!("certificates.certManager.renewBefore is {left} and duration {duration}");
        assert!(why.contains(&told), "{why}");
    }
    render(&issued("1h1ms", "59m")).unwrap();
}

/// Without authorities nobody has a certificate that could have a name, and everybody would be let in.
#[test]
fn names_of_clients_are_not_dropped() {
    let named = |webhook: Value| json!({"webhook": webhook});
    let names = json!(["kube-apiserver"]);
    let why = render(&named(json!({"clients": {"names": names}}))).unwrap_err();
    let told = "webhook.clients.names is given and webhook.clients.configMap is not";
    assert!(why.contains(told) && why.contains("give the ConfigMap"), "{why}");
    render(&named(json!({"clients": {"names": names, "configMap": "authorities"}}))).unwrap();
    render(&named(json!({"clients": {"names": names}, "enabled": false}))).unwrap();
}

/// What was confirmed once would be confirmed for every mode that is forgotten later.
#[test]
fn a_release_that_binds_has_confirmed_nothing() {
    let why = render(&json!({"mode": "own", "confirmObserve": true})).unwrap_err();
    assert!(why.contains("give confirmObserve=false"), "{why}");
    render(&json!({"confirmObserve": true})).unwrap();
}

#[test]
fn two_servers_do_not_share_a_port() {
    for (values, told) in [
        (json!({"webhook": {"port": 8080}}), "webhook.port and metrics.port are both 8080"),
        (json!({"service": {"port": 8080}}), "service.port and metrics.port are both 8080"),
    ] {
        let why = render(&values).unwrap_err();
        assert!(why.contains(told), "{values}: {why}");
    }
    render(&json!({"metrics": {"port": 8443}, "webhook": {"enabled": false}})).unwrap();
}

#[test]
fn a_pod_is_not_killed_while_it_answers() {
    let values = json!({"terminationGracePeriodSeconds": 5});
    let told = render(&values).unwrap_err();
    assert!(told.contains("terminationGracePeriodSeconds must be more than webhook.drainSeconds"), "{told}");
    render(&json!({"terminationGracePeriodSeconds": 0, "webhook": {"enabled": false}})).unwrap();
}

/// Helm gives every chart within another one the values `global`.
#[test]
fn the_chart_may_be_part_of_another() {
    assert_eq!(render(&json!({"global": {"imageRegistry": "other"}})), render(&json!({})));
}

#[test]
fn the_alerts_in_the_schema_are_those_that_there_are() {
    let schema = schema();
    let names = |values: &Value| -> BTreeSet<String> {
        values.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let alerts = names(&schema["properties"]["prometheusRule"]["properties"]["disabled"]["items"]["enum"]);
    let file = yaml(&read("charts/bindery/files/alerts.yaml"));
    assert_eq!(
        alerts,
        file.as_array().unwrap().iter().map(|alert| alert["alert"].as_str().unwrap().to_owned()).collect()
    );
}

/// Every map of the schema says which keys it may have.
#[test]
fn no_map_of_the_schema_is_open_by_accident() {
    fn open(schema: &Value, path: &str, found: &mut Vec<String>) {
        if let Some(fields) = schema.as_object() {
            if fields.get("type").is_some_and(|kind| kind == "object")
                && !fields.contains_key("additionalProperties")
            {
                found.push(path.to_owned());
            }
            fields.iter().for_each(|(key, value)| open(value, &format!("{path}/{key}"), found));
        }
        for (item, index) in schema.as_array().into_iter().flatten().zip(0..) {
            open(item, &format!("{path}/{index}"), found);
        }
    }
    let mut found = Vec::new();
    open(&schema(), "", &mut found);
    // What Helm hands to all charts.
    assert_eq!(found, ["/properties/global"]);
}
