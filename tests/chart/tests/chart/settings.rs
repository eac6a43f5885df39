//! The settings that the chart writes are those that the program knows.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use bindery_chart::{KUBERNETES, Objects, RELEASE, built, chart, helm, read, render, rendered, run, sets};
use serde_json::{Value, json};

/// What the pod's container runs, and the settings file that it finds.
fn container(objects: &Objects) -> (Vec<String>, &Value) {
    let arguments = objects.at("Deployment/bindery /spec/template/spec/containers/bindery/args").unwrap();
    let arguments =
        arguments.as_array().unwrap().iter().map(|argument| argument.as_str().unwrap().to_owned());
    (
        arguments.collect(),
        objects.at("Deployment/bindery /spec/template/metadata/annotations/bindery.dev~1settings").unwrap(),
    )
}

/// It must come as far as to look for the cluster, with nothing to complain of.
#[test]
fn the_program_takes_all_settings() {
    const NOWHERE: &str = "/nonexistent/kubeconfig";
    for (name, values) in sets() {
        let objects = rendered(&values);
        let (arguments, settings) = container(&objects);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.yaml");
        std::fs::write(&file, settings.to_string()).unwrap();
        let mut program = Command::new(built("bindery"));
        program.env_clear();
        for argument in &arguments {
            match argument.split_once('=') {
                Some(("--config", _)) => program.arg(format!("--config={}", file.display())),
                _ => program.arg(argument),
            };
        }
        // What lies in the pod, and ports that others may have here.
        program.args(["--engine=native", "--listen=127.0.0.1:0", &format!("--kubeconfig={NOWHERE}")]);
        let output = program.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(&format!("--kubeconfig {NOWHERE} cannot be used")), "{name}: {told}");
    }
}

/// Settings whose default in the chart is another than the program's: a release looks on until it is told to
/// act, recycles nothing until it is told to (RATIONALE.md), and has its webhook in its own namespace.
const OWN_DEFAULTS: [&str; 3] = ["mode", "recycle", "webhook-namespace"];

/// Who installs the chart has what `docs/operate.md` tells of.
#[test]
fn defaults_are_the_programs() {
    let output = Command::new(built("bindery")).env_clear().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let defaults = help.split("\n      --").filter_map(|setting| {
        let (name, text) = setting.split_once(' ')?;
        Some((name, text.split_once("[default: ")?.1.split_once(']')?.0))
    });
    let defaults: BTreeMap<_, _> = defaults.collect();
    let objects = rendered(&json!({}));
    let settings = container(&objects).1.as_object().unwrap();
    let differing = settings.iter().filter(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        defaults.get(name.as_str()).is_some_and(|default| *default != value)
    });
    let differing: Vec<_> = differing.map(|(name, _)| name.as_str()).collect();
    assert!(settings.keys().filter(|name| defaults.contains_key(name.as_str())).count() > 5, "{defaults:?}");
    assert_eq!(differing, OWN_DEFAULTS);
}

/// The schema knows the rules of admission, all of them, each with the levels that it may have.
#[test]
fn the_program_has_the_rules_of_the_schema() {
    let schema: Value = serde_json::from_str(&read("charts/bindery/values.schema.json")).unwrap();
    let rules = schema["properties"]["webhook"]["properties"]["rules"]["properties"].as_object().unwrap();
    let try_rule = |rule: &str| {
        let output = Command::new(built("bindery"))
            .env_clear()
            .args(["serve", &format!("--admission-rule={rule}")])
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let told = try_rule("no-such-rule=warn");
    let told = told.split_once("there are ").unwrap_or_else(|| panic!("{told}")).1.lines().next().unwrap();
    let known: BTreeSet<_> = told.split(", ").collect();
    assert_eq!(rules.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
    let definition = &schema["definitions"]["level"]["enum"];
    for (rule, levels) in rules {
        let levels = levels.get("enum").unwrap_or(definition).as_array().unwrap();
        for level in ["deny", "warn", "off"] {
            let is_refused = try_rule(&format!("{rule}={level}")).contains("--admission-rule");
            assert_eq!(is_refused, !levels.contains(&level.into()), "{rule}={level}");
        }
    }
}

/// Who is told of a mistake by Helm need not look for it in the log of a pod.
#[test]
fn the_chart_lets_in_what_the_program_takes() {
    let is_taken = |setting: &str, value: &str| {
        let mut program = Command::new(built("bindery"));
        program.env_clear().args(["serve", "--kubeconfig=/nonexistent/kubeconfig", "--engine=native"]);
        let output = program.arg(format!("--{setting}={value}")).output().unwrap();
        !String::from_utf8(output.stderr).unwrap().contains(&format!("--{setting}"))
    };
    for lifetime in ["29s", "30s", "3650d", "3651d", "87600h", "87601h", "99999999999999999999d"] {
        let is_let_in = render(&json!({"certificates": {"lifetime": lifetime}})).is_ok();
        assert_eq!(is_let_in, is_taken("certificate-lifetime", lifetime), "{lifetime}");
    }
    for address in ["127.0.0.1", "::1", "[::1]", "::ffff:127.0.0.1"] {
        let objects = rendered(&json!({"listenAddress": address}));
        let listen = container(&objects).1["listen"].as_str().unwrap().to_owned();
        assert!(is_taken("listen", &listen), "{address}: {listen}");
    }
}

/// The variables of a Service that is called `bindery` would be read as settings.
#[test]
fn services_do_not_become_settings() {
    let objects = rendered(&json!({}));
    let links = objects.at("Deployment/bindery /spec/template/spec/enableServiceLinks");
    assert_eq!(links, Some(&Value::Bool(false)));
}

#[test]
fn pods_may_do_no_more_than_they_must() {
    for (name, values) in sets() {
        let objects = rendered(&values);
        for pod in ["Deployment/bindery /spec/template/spec", "Pod/bindery-test /spec"] {
            let at = |path: &str| objects.at(&format!("{pod}/{path}")).unwrap_or(&Value::Null);
            assert_eq!(at("securityContext/runAsNonRoot"), true, "{name}: {pod}");
            assert!(at("securityContext/runAsUser").as_u64().is_some_and(|user| user > 0), "{name}: {pod}");
            assert_eq!(at("securityContext/seccompProfile/type"), "RuntimeDefault", "{name}: {pod}");
            let container = at("containers/0/securityContext");
            assert_eq!(container["readOnlyRootFilesystem"], true, "{name}: {pod}");
            assert_eq!(container["allowPrivilegeEscalation"], false, "{name}: {pod}");
            assert_eq!(container["capabilities"], json!({"drop": ["ALL"]}), "{name}: {pod}");
            let has_token = pod.starts_with("Deployment");
            assert_eq!(at("automountServiceAccountToken"), has_token, "{name}: {pod}");
        }
        let account = objects.get("ServiceAccount/bindery");
        assert!(account.is_none_or(|account| account["automountServiceAccountToken"] == false), "{name}");
    }
}

/// OpenShift chooses them, and refuses pods that name their own.
#[test]
fn the_pods_name_no_user_where_the_readme_tells_how() {
    let readme = read("charts/bindery/README.md");
    let (_, rest) = readme.split_once("\n## OpenShift\n").unwrap();
    let (_, set) = rest.split_once("--set ").unwrap();
    let set = ["--kube-version", KUBERNETES, "--set", set.lines().next().unwrap()];
    let told = run(helm(["template", RELEASE]).arg(chart()).args(set), "");
    let objects = Objects::read(&told.unwrap());
    for pod in ["Deployment/bindery /spec/template/spec", "Pod/bindery-test /spec"] {
        let context = objects.at(&format!("{pod}/securityContext")).unwrap();
        let expected = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(*context, expected, "{pod}");
    }
}

/// Who sizes a cluster by the chart's word finds the figure among the measured ones.
#[test]
fn the_memory_that_the_values_tell_is_what_was_measured() {
    const COLUMN: &str = "peak MiB";
    let figures = read("docs/benchmarks.md");
    let mut lines = figures.lines().skip_while(|line| !line.contains(COLUMN));
    let column = lines.next().unwrap().split('|').position(|cell| cell.trim() == COLUMN).unwrap();
    let measured = lines.find(|line| line.starts_with("| Bindery |")).unwrap();
    let measured = measured.split('|').nth(column).unwrap().trim();
    let told = format!("100,000 bound pairs Bindery has its peak at {measured} MiB");
    assert!(read("charts/bindery/values.yaml").contains(&told), "not told: {told}");
}
