//! A release that is stopped: by the guide, by whoever else scales its deployment, and by surprise.

use bindery_chart::{RELEASE, chart, commands, read, rendered};
use http::Method;
use serde_json::{Value, json};

use crate::release::{installed, operator};
use crate::serving::{LEASE, Replica, until_denied};
use crate::site::{ADMIN, Site};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/bindery-system/deployments/bindery";

async fn replicas(site: &Site) -> Value {
    let deployment = site.ask(ADMIN, Method::GET, DEPLOYMENT, None).await.unwrap();
    deployment["spec"]["replicas"].clone()
}

/// A replica under the rights of a release of mode own, which leads.
async fn leader(site: &Site) -> Replica {
    let objects = rendered(&json!({"mode": "own"}));
    let mut replica = Replica::start(site, &objects).await;
    replica.until(site, LEASE, |lease| holder(lease).is_some()).await;
    replica
}

/// Who leads, by a Lease.
fn holder(lease: &Value) -> Option<&str> {
    lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())
}

#[tokio::test]
async fn who_goes_back_by_the_guide_finds_the_lease_given_back() {
    let (site, operator, _folder) = installed().await;
    let leader = leader(&site).await;

    let commands = commands(&read("docs/operate.md"), "## Going back to upstream");
    let [stop, wait, look, look_on, uninstall] = &commands[..] else { panic!("{commands:#?}") };
    assert_ne!(operator.shell(look).unwrap(), "");
    operator.shell(stop).unwrap();
    assert_eq!(replicas(&site).await, 0);
    // Here are no pods: the one that there would be ends as kubelet would have it end.
    leader.end().await;
    operator.shell(wait).unwrap();
    assert_eq!(operator.shell(look).unwrap(), "");
    operator.shell(look_on).unwrap();
    assert_eq!(replicas(&site).await, 2);
    operator.shell(uninstall).unwrap();
}

/// What the guide says of those who do otherwise.
#[tokio::test]
async fn who_goes_back_at_once_leaves_the_leaders_name_in_the_lease() {
    let (site, operator, _folder) = installed().await;
    let leader = leader(&site).await;
    operator.upgrade(&["--set", "mode=observe,confirmObserve=true"]).unwrap();
    until_denied(&site, &rendered(&json!({"mode": "own"})), "leases (coordination.k8s.io)").await;
    leader.end().await;
    let lease = site.ask(ADMIN, Method::GET, LEASE, None).await.unwrap();
    assert!(holder(&lease).is_some(), "{lease}");

    // What was confirmed for once is not confirmed for ever, and the next step that is told says so.
    let why = operator.upgrade(&["--set", "mode=own"]).unwrap_err();
    assert!(why.contains("give confirmObserve=false"), "{why}");
    let commands = commands(&read("docs/operate.md"), "## Switching to Bindery");
    let switch = commands.iter().find(|command| command.starts_with("helm upgrade")).unwrap();
    operator.shell(switch).unwrap();
    let why = operator
        .try_helm(&["upgrade", RELEASE, chart().to_str().unwrap(), "--set", "replicas=3"])
        .unwrap_err();
    assert!(why.contains("confirmObserve=true"), "{why}");
}

/// Helm and whoever else scales a deployment do not both own its number of replicas.
#[tokio::test]
async fn a_release_that_somebody_else_scales_is_upgraded_as_the_readme_tells() {
    let site = Site::start().await;
    let folder = tempfile::tempdir().unwrap();
    let operator = operator(&site, folder.path());
    operator.helm(&["install", RELEASE, chart().to_str().unwrap()]);
    let scale = |replicas: &str| {
        let scale = ["--namespace", "bindery-system", "scale", "deployment/bindery", "--replicas", replicas];
        operator.kubectl(&scale, "").unwrap();
    };
    // The number that Helm has is no conflict, whoever has set it.
    scale("3");
    let why = operator.upgrade(&[]).unwrap_err();
    assert!(why.contains("conflict") && why.contains(".spec.replicas"), "{why}");
    assert_eq!(replicas(&site).await, 3);
    scale("2");
    operator.upgrade(&[]).unwrap();
    scale("3");
    operator.upgrade(&["--force-conflicts"]).unwrap();
    assert_eq!(replicas(&site).await, 2);
    // 0 is nobody's number: a Scale leaves it out.
    scale("0");
    operator.upgrade(&[]).unwrap();
    assert_eq!(replicas(&site).await, 2);

    // Whoever scales it for good keeps what he has set.
    scale("3");
    operator.upgrade(&["--set", "replicas=null"]).unwrap();
    assert_eq!(replicas(&site).await, 3);
    scale("4");
    operator.upgrade(&["--set", "podLabels.team=storage"]).unwrap();
    assert_eq!(replicas(&site).await, 4);
}
