//! The program accepts the settings that the chart writes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use bindery_chart::{KUBERNETES, Objects, RELEASE, built, chart, helm, read, render, rendered, run, sets};
use serde_json::{Value, json};

/// The arguments of the pod's container, and its settings file.
fn container(objects: &Objects) -> (Vec<String>, &Value) {
    let arguments = objects.at("Deployment/bindery /spec/template/spec/containers/bindery/args").unwrap();
    let arguments =
        arguments.as_array().unwrap().iter().map(|argument| argument.as_str().unwrap().to_owned());
    (
        arguments.collect(),
        objects.at("Deployment/bindery /spec/template/metadata/annotations/bindery.dev~1settings").unwrap(),
    )
}

/// The program must accept everything and then fail to find the cluster.
#[test]
fn the_program_accepts_all_settings_of_the_chart() {
    const NOWHERE: &str = "/nonexistent/kubeconfig";
    for (name, values) in sets() {
        let objects = rendered(&values);
        let (arguments, settings) = container(&objects);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.yaml");
        std::fs::write(&file, settings.to_string()).unwrap();
        let policies = folder.path().join("policies");
        std::fs::create_dir(&policies).unwrap();
        let mut program = Command::new(built("bindery"));
        program.env_clear();
        for argument in &arguments {
            match argument.split_once('=') {
                Some(("--config", _)) => program.arg(format!("--config={}", file.display())),
                _ => program.arg(argument),
            };
        }
        if objects.write_policies(&policies) > 0 {
            program.arg("--policy").arg(&policies).arg("--engine-cache").arg(folder.path().join("cache"));
        }
        // The engine is a file of the image, and the ports may be taken here.
        program.args(["--engine=native", "--listen=127.0.0.1:0", &format!("--kubeconfig={NOWHERE}")]);
        let output = program.output().unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(why.contains(&format!("--kubeconfig {NOWHERE} cannot be used")), "{name}: {why}");
    }
}

/// Settings with another default in the chart than in the program: a release observes, does not recycle
/// (RATIONALE.md), and has its webhook in its own namespace.
const OWN_DEFAULTS: [&str; 3] = ["mode", "recycle", "webhook-namespace"];

/// `docs/operate.md` describes the program's defaults.
#[test]
fn the_charts_defaults_are_the_programs() {
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

#[test]
fn the_schema_lists_the_programs_admission_rules_and_their_levels() {
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
    let why = try_rule("no-such-rule=warn");
    let known = why.split_once("there are ").unwrap_or_else(|| panic!("{why}")).1.lines().next().unwrap();
    let known: BTreeSet<_> = known.split(", ").collect();
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

/// Helm reports a mistake at once; otherwise it is in the log of a pod.
#[test]
fn the_chart_accepts_exactly_what_the_program_accepts() {
    let is_accepted = |setting: &str, value: &str| {
        let mut program = Command::new(built("bindery"));
        program.env_clear().args(["serve", "--kubeconfig=/nonexistent/kubeconfig", "--engine=native"]);
        let output = program.arg(format!("--{setting}={value}")).output().unwrap();
        !String::from_utf8(output.stderr).unwrap().contains(&format!("--{setting}"))
    };
    for lifetime in ["29s", "30s", "3650d", "3651d", "87600h", "87601h", "99999999999999999999d"] {
        let is_rendered = render(&json!({"certificates": {"lifetime": lifetime}})).is_ok();
        assert_eq!(is_rendered, is_accepted("certificate-lifetime", lifetime), "{lifetime}");
    }
    for address in ["127.0.0.1", "::1", "[::1]", "::ffff:127.0.0.1"] {
        let objects = rendered(&json!({"listenAddress": address}));
        let listen = container(&objects).1["listen"].as_str().unwrap().to_owned();
        // The program listens before it reads the kubeconfig, and the port may be taken on this machine.
        let listen = format!("{}:0", listen.strip_suffix(":8080").unwrap());
        assert!(is_accepted("listen", &listen), "{address}: {listen}");
    }
}

/// Kubernetes would set `BINDERY_…` variables for a Service named bindery, and the program reads those.
#[test]
fn the_pods_get_no_variables_of_services() {
    let objects = rendered(&json!({}));
    let links = objects.at("Deployment/bindery /spec/template/spec/enableServiceLinks");
    assert_eq!(links, Some(&Value::Bool(false)));
}

#[test]
fn the_pods_have_the_least_privileges() {
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

/// OpenShift chooses users, and refuses pods that name their own.
#[test]
fn the_pods_name_no_user_with_the_readmes_values_for_openshift() {
    let readme = read("charts/bindery/README.md");
    let (_, rest) = readme.split_once("\n## OpenShift\n").unwrap();
    let (_, set) = rest.split_once("--set ").unwrap();
    let set = ["--kube-version", KUBERNETES, "--set", set.lines().next().unwrap()];
    let manifests = run(helm(["template", RELEASE]).arg(chart()).args(set), "");
    let objects = Objects::read(&manifests.unwrap());
    for pod in ["Deployment/bindery /spec/template/spec", "Pod/bindery-test /spec"] {
        let context = objects.at(&format!("{pod}/securityContext")).unwrap();
        let expected = json!({
            "fsGroupChangePolicy": "OnRootMismatch",
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        });
        assert_eq!(*context, expected, "{pod}");
    }
}

#[test]
fn the_memory_in_a_comment_of_the_values_is_the_measured_one() {
    const COLUMN: &str = "peak MiB";
    let figures = read("docs/benchmarks.md");
    let mut lines = figures.lines().skip_while(|line| !line.contains(COLUMN));
    let column = lines.next().unwrap().split('|').position(|cell| cell.trim() == COLUMN).unwrap();
    let measured = lines.find(|line| line.starts_with("| Bindery |")).unwrap();
    let measured = measured.split('|').nth(column).unwrap().trim();
    let comment = format!("100,000 bound pairs Bindery has its peak at {measured} MiB");
    assert!(read("charts/bindery/values.yaml").contains(&comment), "no comment says: {comment}");
}
