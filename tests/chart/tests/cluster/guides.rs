//! A real API server answers each command of the guides that only reads.

use bindery_chart::{NAMESPACE, Operator, RELEASE, read, rendered};
use bindery_cluster::Cluster;
use serde_json::json;

use crate::api_server::{claim, install, install_definitions, start};
use crate::kinds::install_one_of_each;

/// Guides with commands of kubectl.
const GUIDES: [&str; 5] = [
    "docs/operate.md",
    "docs/managed-clusters.md",
    "docs/runbooks.md",
    "docs/metrics.md",
    "charts/bindery/README.md",
];
/// Verbs of kubectl that change nothing.
const READING: [&str; 2] = ["get", "describe"];

/// The commands of kubectl in a guide: in code blocks, and inline.
fn commands(guide: &str) -> Vec<String> {
    let (blocks, sentences): (Vec<_>, Vec<_>) = guide.lines().partition(|line| line.starts_with("    "));
    let sentences = sentences.join(" ").replace("\\|", "|");
    let inline = sentences.split('`').skip(1).step_by(2);
    let commands = blocks.into_iter().map(str::trim).chain(inline);
    commands.filter(|command| command.starts_with("kubectl ")).map(str::to_owned).collect()
}

/// The verb of a command of kubectl.
fn verb(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace().skip(1);
    loop {
        match words.next()? {
            "--namespace" => drop(words.next()),
            flag if flag.starts_with('-') => {}
            verb => return Some(verb),
        }
    }
}

/// Whether a command only reads from the API server. Those with `--raw` read from a pod, and there are none.
fn is_tried(command: &str) -> bool {
    verb(command).is_some_and(|verb| READING.contains(&verb)) && !command.contains(" --raw ")
}

/// Creates the objects that the commands read: a Lease, a release, policies, a pending claim and a bound one.
async fn create_objects(api: &Cluster) {
    let annotations = json!({"bindery.dev/foreign-writer": "seen"});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "kube-system", "name": "bindery", "annotations": annotations},
        "spec": {"holderIdentity": "first"},
    });
    let claims = ["waits", "bound"].map(|name| claim("default", name, "1Gi"));
    for object in claims.into_iter().chain([lease]) {
        api.create(&object, "").await.unwrap();
    }
    let bound = "/api/v1/namespaces/default/persistentvolumeclaims/bound/status";
    api.patch(bound, &json!({"status": {"phase": "Bound"}})).await.unwrap();
    install_definitions(api).await;
    install_one_of_each(api, &rendered(&json!({}))).await;
    install(api, &rendered(&json!({})), &["Secret", "ValidatingWebhookConfiguration"]).await;
    let issued = rendered(&json!({"certificates": {"source": "cert-manager"}}));
    install(api, &issued, &["Certificate"]).await;
}

#[tokio::test]
async fn every_reading_command_of_the_guides_succeeds() {
    let api = start().await;
    create_objects(&api).await;
    let operator = Operator::new(api.kubeconfig());
    let mut tried = Vec::new();
    for guide in GUIDES {
        for command in commands(&read(guide)).into_iter().filter(|command| is_tried(command)) {
            let line = command.replace("NAMESPACE", NAMESPACE).replace("NAME", RELEASE);
            // The programs behind the pipe need not be installed here.
            let line = line.split(" | ").next().unwrap();
            let printed = operator.shell(line).unwrap_or_else(|why| panic!("{guide}: {command}: {why}"));
            tried.push((command, printed));
        }
    }
    assert!(tried.len() > 10, "{tried:?}");
    let (_, pending) = tried.iter().find(|(command, _)| command.contains("\"Pending\"")).unwrap();
    assert_eq!(pending, "default/waits\n");
}

/// `--reuse-values` takes the defaults of the previous chart, and fails when the new chart has a new value.
#[test]
fn every_upgrade_in_the_guides_takes_new_defaults() {
    let mut upgrades = 0;
    for guide in GUIDES.into_iter().chain(["README.md", "charts/bindery/templates/NOTES.txt"]) {
        for line in
            read(guide).lines().filter(|line| line.contains("helm upgrade ") && line.contains("--set "))
        {
            assert!(line.contains(" --reset-then-reuse-values "), "{guide}: {line}");
            upgrades += 1;
        }
    }
    assert!(upgrades > 4, "{upgrades}");
}
