//! The commands of the guides that only look: a real API server answers each of them.

use bindery_chart::{NAMESPACE, RELEASE, read, rendered};
use serde_json::json;

use crate::release::operator;
use crate::site::{Site, claim};

/// Guides that have commands of kubectl.
const GUIDES: [&str; 4] =
    ["docs/operate.md", "docs/runbooks.md", "docs/metrics.md", "charts/bindery/README.md"];
/// Verbs of kubectl that change nothing.
const LOOKING: [&str; 2] = ["get", "describe"];

/// The commands of kubectl in a guide: lines of their own, and what is quoted within sentences.
fn commands(guide: &str) -> Vec<String> {
    let (blocks, sentences): (Vec<_>, Vec<_>) = guide.lines().partition(|line| line.starts_with("    "));
    let sentences = sentences.join(" ").replace("\\|", "|");
    let quoted = sentences.split('`').skip(1).step_by(2);
    let commands = blocks.into_iter().map(str::trim).chain(quoted);
    commands.filter(|command| command.starts_with("kubectl ")).map(str::to_owned).collect()
}

/// What a command of kubectl does.
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

/// Whether it only looks, and at the API server: here are no pods to be asked.
fn is_tried(command: &str) -> bool {
    verb(command).is_some_and(|verb| LOOKING.contains(&verb)) && !command.contains(" --raw ")
}

/// What the guides' commands are about: a Lease, the objects of a release, and a claim that waits beside one
/// that is bound.
async fn furnish(site: &Site) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "kube-system", "name": "bindery", "annotations": {"bindery.dev/foreign-writer": "seen"}},
        "spec": {"holderIdentity": "first"},
    });
    let claims = ["waits", "bound"].map(|name| claim("default", name, "1Gi"));
    for object in claims.into_iter().chain([lease]) {
        site.create(&object, "").await.unwrap();
    }
    let bound = "/api/v1/namespaces/default/persistentvolumeclaims/bound/status";
    site.patch(bound, &json!({"status": {"phase": "Bound"}})).await.unwrap();
    site.define().await;
    site.install(&rendered(&json!({})), &["Secret", "ValidatingWebhookConfiguration"]).await;
    let issued = rendered(&json!({"certificates": {"source": "cert-manager"}}));
    site.install(&issued, &["Certificate"]).await;
}

#[tokio::test]
async fn every_command_of_the_guides_that_only_looks_is_answered() {
    let site = Site::start().await;
    furnish(&site).await;
    let folder = tempfile::tempdir().unwrap();
    let operator = operator(&site, folder.path());
    let mut tried = Vec::new();
    for guide in GUIDES {
        for command in commands(&read(guide)).into_iter().filter(|command| is_tried(command)) {
            let line = command.replace("NAMESPACE", NAMESPACE).replace("NAME", RELEASE);
            // What reads it may not be here.
            let line = line.split(" | ").next().unwrap();
            let told = operator.shell(line).unwrap_or_else(|why| panic!("{guide}: {command}: {why}"));
            tried.push((command, told));
        }
    }
    assert!(tried.len() > 10, "{tried:?}");
    let (_, pending) = tried.iter().find(|(command, _)| command.contains("\"Pending\"")).unwrap();
    assert_eq!(pending, "default/waits\n");
}

/// The other flag takes the defaults of the chart of before: it fails with the first chart that has a new
/// value.
#[test]
fn no_guide_upgrades_by_the_defaults_of_before() {
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
