//! The values that the chart refuses, by its schema or by a template.

use std::collections::BTreeSet;

use bindery_chart::{read, render, rendered, table, yaml};
use serde_json::{Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Paths of the maps in some values, the root first.
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

/// Helm's findings about values that it must refuse.
fn findings(values: &Value) -> Vec<String> {
    let why = render(values).expect_err("these values must be refused");
    why.lines().filter_map(|line| Some(line.trim().strip_prefix("- at ")?.to_owned())).collect()
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
fn an_unknown_key_is_refused_at_every_level() {
    // Maps with keys of the user's, such as labels.
    let free = [
        "/commonLabels",
        "/podLabels",
        "/podAnnotations",
        "/nodeSelector",
        "/dashboard/labels",
        "/policies/documents",
        "/policies/registry/keys",
        "/policies/registry/prefixes",
    ];
    let is_free =
        |path: &str| free.contains(&path) || path.ends_with("/annotations") || path.ends_with("abels");
    let mut found = Vec::new();
    maps(&yaml(&read("charts/bindery/values.yaml")), "", &mut found);
    found.retain(|path| !is_free(path));
    // All in one call, since Helm lists all findings.
    let mut values = json!({});
    for path in &found {
        set(&mut values, &format!("{path}/noSuchKey"), json!(1));
    }
    let findings = findings(&values);
    for path in &found {
        let expected = format!("'{path}': additional properties 'noSuchKey' not allowed");
        // The keys of quantities are not fixed either.
        let is_quantities = path.starts_with("/resources/");
        assert!(is_quantities || findings.contains(&expected), "{path}: {findings:#?}");
    }
}

#[test]
fn a_value_of_a_wrong_type_is_refused() {
    let readme = read("charts/bindery/README.md");
    let rows = table(&readme, "## Values").into_iter().map(|row| row[0].trim_matches('`').replace('.', "/"));
    let paths: Vec<_> = rows.map(|row| format!("/{row}")).collect();
    let mut values = json!({});
    for path in &paths {
        // No value has this type: a map of lists of maps of lists.
        set(&mut values, path, json!({"no": [{"such": ["value"]}]}));
    }
    let findings = findings(&values);
    for path in &paths {
        let is_about =
            |line: &String| line.starts_with(&format!("'{path}'")) || line.starts_with(&format!("'{path}/"));
        assert!(findings.iter().any(is_about), "{path} may have any type: {findings:#?}");
    }
}

#[test]
fn a_value_that_cannot_work_is_refused_by_the_schema() {
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
        (json!({"policies": {"documents": {"Zones": "kind: MatchPolicy"}}}), "invalid propertyName 'Zones'"),
        (
            json!({"policies": {"documents": {"zones": {"kind": "MatchPolicy"}}}}),
            "'/policies/documents/zones'",
        ),
        (
            json!({"policies": {"registry": {"prefixes": {"team": {"prefix": "ghcr.io/team", "keys": {}}}}}}),
            "'/policies/registry/prefixes/team/prefix'",
        ),
        (
            json!({"policies": {"registry": {"prefixes": {"team": {"prefix": "oci://ghcr.io/team"}}}}}),
            "'/policies/registry/prefixes/team'",
        ),
        (json!({"steer": {"admission": "none"}}), "'/steer/admission'"),
        (json!({"steer": {"namespaceLabel": "steer"}}), "'/steer/namespaceLabel'"),
        (json!({"steer": {"staticClasses": [""]}}), "'/steer/staticClasses/0'"),
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
        (json!({"journal": {"send": {"url": "http://logs.example"}}}), "'/journal/send/url'"),
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
        (
            json!({"affinity": {"nodeAffinity": {REQUIRED: {"terms": []}}}}),
            "'/affinity/nodeAffinity/required",
        ),
        (
            json!({"affinity": {"podAffinity": {REQUIRED: [{"topology": "a"}]}}}),
            "'/affinity/podAffinity/required",
        ),
    ] {
        let findings = findings(&values);
        assert!(findings.iter().any(|line| line.contains(why)), "{values}: {findings:#?}");
    }
}

fn issued(duration: &str, renew_before: &str) -> Value {
    let certificate = json!({"duration": duration, "renewBefore": renew_before});
    json!({"certificates": {"source": "cert-manager", "certManager": certificate}})
}

#[test]
fn values_that_contradict_each_other_are_refused_with_a_reason() {
    let names = json!({"names": ["kube-apiserver"]});
    for (values, reasons) in [
        // A certificate is renewed within its lifetime.
        (issued("24h", "720h"), &["certificates.certManager.renewBefore is 720h and duration 24h"][..]),
        (issued("1h", "60m"), &["certificates.certManager.renewBefore is 60m and duration 1h"]),
        // Without an authority no client certificate is asked for, and every client would be admitted.
        (
            json!({"webhook": {"clients": names}}),
            &["webhook.clients.names is given and webhook.clients.configMap is not", "give the ConfigMap"],
        ),
        // A confirmation that stays would confirm each forgotten mode.
        (json!({"mode": "own", "confirmObserve": true}), &["give confirmObserve=false"]),
        (json!({"mode": "steer", "confirmObserve": true}), &["mode is steer", "give confirmObserve=false"]),
        // Something has to add the requirement.
        (
            json!({"mode": "steer", "steer": {"admission": "webhook"}, "webhook": {"enabled": false}}),
            &["a webhook has to steer claims, and webhook.enabled is false", "steer.admission=policy"],
        ),
        (json!({"webhook": {"port": 8080}}), &["webhook.port and metrics.port are both 8080"]),
        (
            json!({"journal": {"send": {"url": "https://logs.example"}}}),
            &["journal.send.url is given and journal.enabled is false"],
        ),
        (
            json!({"policies": {"objects": true, "registry": {"prefixes": {
                "team": {"prefix": "oci://ghcr.io/team", "keys": {"ci": null}}
            }}}}),
            &["policies.registry.prefixes.team has no key"],
        ),
        (json!({"service": {"port": 8080}}), &["service.port and metrics.port are both 8080"]),
        // A pod must not be killed while it answers.
        (
            json!({"terminationGracePeriodSeconds": 5}),
            &["terminationGracePeriodSeconds must be more than webhook.drainSeconds"],
        ),
    ] {
        let why = render(&values).unwrap_err();
        for reason in reasons {
            assert!(why.contains(reason), "{values}: {why}");
        }
    }
}

#[test]
fn values_that_only_look_contradictory_are_accepted() {
    let names = json!({"names": ["kube-apiserver"]});
    for values in [
        issued("1h1ms", "59m"),
        json!({"webhook": {"clients": {"names": ["kube-apiserver"], "configMap": "authorities"}}}),
        json!({"webhook": {"clients": names, "enabled": false}}),
        json!({"confirmObserve": true}),
        json!({"metrics": {"port": 8443}, "webhook": {"enabled": false}}),
        json!({"terminationGracePeriodSeconds": 0, "webhook": {"enabled": false}}),
    ] {
        render(&values).unwrap_or_else(|why| panic!("{values}: {why}"));
    }
    // Helm gives every chart within another one the values `global`.
    assert_eq!(render(&json!({"global": {"imageRegistry": "other"}})), render(&json!({})));
    for filter in ["off", "warn,bindery=debug", "bindery[sync{uid=\"a,b\"}]=trace,info"] {
        let objects = rendered(&json!({"logging": {"level": filter}}));
        let log = "Deployment/bindery /spec/template/metadata/annotations/bindery.dev~1settings/log";
        assert_eq!(objects.at(log), Some(&json!(filter)));
    }
}

#[test]
fn the_schema_lists_exactly_the_existing_alerts() {
    let schema = schema();
    let names = |alerts: &Value, field: &str| -> BTreeSet<String> {
        let names = alerts.as_array().unwrap().iter().map(|alert| alert.get(field).unwrap_or(alert));
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let listed = &schema["properties"]["prometheusRule"]["properties"]["disabled"]["items"]["enum"];
    let existing = yaml(&read("charts/bindery/files/alerts.yaml"));
    assert_eq!(names(listed, ""), names(&existing, "alert"));
}

#[test]
fn every_map_of_the_schema_lists_its_keys() {
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
    // Helm passes `global` to all charts.
    assert_eq!(found, ["/properties/global"]);
}
