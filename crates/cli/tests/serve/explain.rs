//! `bindery explain` on a real API server, as the plugin of the real kubectl.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bindery_cluster::{Cluster, Manager, is_bound_to, is_event, run};
use bindery_kit::json;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::policies::documents;

/// A folder with the program under the names of a plugin, and what its user gives to kubectl.
struct User {
    folder: TempDir,
    kubeconfig: PathBuf,
}

impl User {
    fn new(kubeconfig: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kubectl-bindery", "kubectl_complete-bindery"] {
            symlink(env!("CARGO_BIN_EXE_bindery"), folder.path().join(name)).unwrap();
        }
        Self { folder, kubeconfig: kubeconfig.to_owned() }
    }

    /// The same user as another one.
    fn impersonating(self, name: &str) -> Self {
        let mut kubeconfig: Value =
            serde_json::from_slice(&std::fs::read(&self.kubeconfig).unwrap()).unwrap();
        kubeconfig["users"][0]["user"]["as"] = name.into();
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        Self { kubeconfig: path, ..self }
    }

    /// What `kubectl bindery explain` prints; with the standard error, if it fails.
    fn explains(&self, arguments: &[&str]) -> Result<String, String> {
        self.kubectl(&["bindery", "explain"], arguments)
    }

    /// What kubectl offers for the last word of `kubectl bindery`.
    fn is_offered(&self, words: &[&str]) -> String {
        self.kubectl(&["__complete", "bindery"], words).unwrap()
    }

    fn kubectl(&self, command: &[&str], arguments: &[&str]) -> Result<String, String> {
        let mut kubectl = Command::new(std::env::var_os("BINDERY_KUBECTL").unwrap());
        kubectl.env("PATH", self.folder.path()).env("KUBECONFIG", &self.kubeconfig);
        kubectl.args(command).args(arguments);
        let output = run(&mut kubectl, "");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explains_claims_and_volumes_by_reads_alone() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let documents = documents();
    let folder = documents.path().to_str().unwrap();
    let _replica = cluster.replica_with("first", &["--policy", folder]);
    cluster.create_available_volume("large", "100Gi").await;
    cluster.create_claim("c", "1Gi").await;
    cluster.until_event(is_event("c", "FailedBinding")).await;

    let proxy = cluster.proxy().await;
    let user = User::new(&proxy.kubeconfig());
    let twice = documents.path().join("twice.yaml");
    let policy = ["--policy", twice.to_str().unwrap()];
    let explained = user.explains(&[&["pvc", "c"], &policy[..]].concat()).unwrap();
    for part in [
        "PersistentVolumeClaim default/c\n",
        "  phase             Pending\n",
        "  without policies  bound to large\n",
        "\n  large  policy twice rejects it: ",
        "\n  Add a volume without class with at least 1Gi, ReadWriteOnce that the policies allow.\n",
    ] {
        assert!(explained.contains(part), "{explained}\nlacks {part}");
    }

    cluster.create_volume("right", "2Gi").await;
    cluster.until_claim("c", is_bound_to("right")).await;
    assert_eq!(user.is_offered(&["explain", "pv", "r"]), "right\n:4\n");
    assert_eq!(user.is_offered(&["-n", "default", "explain", "pvc/"]), "pvc/c\n:4\n");
    let explained = user.explains(&["pvc/c", "--namespace", "default"]).unwrap();
    assert!(explained.contains("  decision  is bound to right since 20"), "{explained}");
    let explained: Value =
        serde_json::from_str(&user.explains(&["pv", "right", "-o", "json"]).unwrap()).unwrap();
    assert_eq!(explained["claimState"], "bound to default/c", "{explained}");
    let kept = "it is kept with its data until an administrator clears spec.claimRef or deletes it";
    assert_eq!(explained["afterItsClaim"], kept, "{explained}");
    cluster.create_claim("d", "1Gi").await;
    let labels = json!({"metadata": {"labels": {"app": "db"}}});
    for name in ["c", "d"] {
        let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
        cluster.patch(&path, &labels).await.unwrap();
    }
    let spread = documents.path().join("spread.yaml");
    let spec = json!({"module": "builtin:spread", "settings": {"atMost": 1}});
    std::fs::write(&spread, json::policy("MatchPolicy", "spread", &spec).to_string()).unwrap();
    let explained = user.explains(&["pvc", "d", "--policy", spread.to_str().unwrap()]).unwrap();
    assert!(explained.contains("policy spread rejects it"), "a sibling has a volume: {explained}");
    let requests = proxy.take_requests();
    assert!(!requests.is_empty() && requests.iter().all(|request| !request.is_write()), "{requests:?}");

    let absent = "error: persistentvolumeclaims \"c\" not found in namespace kube-system; name another one \
                  by --namespace\n";
    assert_eq!(user.explains(&["pvc", "c", "-n", "kube-system"]), Err(absent.to_owned()));
    let no_context = "error: the kubeconfig cannot be used; name one by --kubeconfig, or give manifests by \
        --filename: it has no context \"x\": name another one\n";
    assert_eq!(user.explains(&["pvc", "c", "--context", "x"]), Err(no_context.to_owned()));
    let refused = user.impersonating("nobody").explains(&["pv", "right"]).unwrap_err();
    let forbidden = "error: persistentvolumes \"right\" is forbidden: User \"nobody\" cannot get resource \
        \"persistentvolumes\" in API group \"\" at the cluster scope; ask for this right: ";
    assert!(refused.starts_with(forbidden), "{refused}");
}
