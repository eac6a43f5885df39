//! Stopping a release: by the guide, without the guide's first step, and by scaling its deployment.

use bindery_chart::{Operator, RELEASE, chart, commands, granted, read, rendered};
use bindery_cluster::Cluster;
use serde_json::{Value, json};

use crate::api_server::start;
use crate::release::installed;
use crate::replica::{LEASE, ReleaseReplica};
use crate::rights::until_decided;

async fn replicas(api: &Cluster) -> Value {
    let path = "/apis/apps/v1/namespaces/bindery-system/deployments/bindery";
    api.get(path).await.unwrap()["spec"]["replicas"].clone()
}

async fn leader(api: &Cluster) -> ReleaseReplica {
    let objects = rendered(&json!({"mode": "own"}));
    let mut replica = ReleaseReplica::start(api, &objects).await;
    replica.until(api, LEASE, |lease| holder(lease).is_some()).await;
    replica
}

/// The replica that a Lease names.
fn holder(lease: &Value) -> Option<&str> {
    lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())
}

#[tokio::test]
async fn the_guides_steps_back_to_upstream_release_the_lease() {
    let (api, operator) = installed().await;
    let mut leader = leader(&api).await;

    let commands = commands(&read("docs/operate.md"), "## Going back to upstream");
    let [stop, wait, look, observe, uninstall] = &commands[..] else { panic!("{commands:#?}") };
    assert_ne!(operator.shell(look).unwrap(), "");
    operator.shell(stop).unwrap();
    assert_eq!(replicas(&api).await, 0);
    // Without pods the test ends the replica, as kubelet would.
    leader.replica.terminate().await;
    operator.shell(wait).unwrap();
    assert_eq!(operator.shell(look).unwrap(), "");
    operator.shell(observe).unwrap();
    assert_eq!(replicas(&api).await, 2);
    operator.shell(uninstall).unwrap();
}

#[tokio::test]
async fn a_switch_to_observe_without_a_stop_leaves_the_leader_in_the_lease() {
    let (api, operator) = installed().await;
    let mut leader = leader(&api).await;
    operator.upgrade(&["--set", "mode=observe,confirmObserve=true"]).unwrap();
    let rights = granted(&rendered(&json!({"mode": "own"})));
    let of_leases = rights.into_iter().filter(|right| right.resource == "leases (coordination.k8s.io)");
    until_decided(&api, of_leases.collect(), false).await;
    leader.replica.terminate().await;
    let lease = api.get(LEASE).await.unwrap();
    assert!(holder(&lease).is_some(), "{lease}");

    // The confirmation is for one upgrade. The error names it, and the guide's next step takes it back.
    let why = operator.upgrade(&["--set", "mode=own"]).unwrap_err();
    assert!(why.contains("give confirmObserve=false"), "{why}");
    let commands = commands(&read("docs/operate.md"), "## Switching to Bindery");
    operator.shell(commands.iter().find(|command| command.starts_with("helm upgrade")).unwrap()).unwrap();
    let chart = chart();
    let forgotten = ["upgrade", RELEASE, chart.to_str().unwrap(), "--set", "replicas=3"];
    let why = operator.try_helm(&forgotten).unwrap_err();
    assert!(why.contains("confirmObserve=true"), "{why}");
}

/// Two clients must not both own the number of replicas.
#[tokio::test]
async fn a_deployment_that_another_client_scales_is_upgraded_as_documented() {
    let api = start().await;
    let operator = Operator::new(api.kubeconfig());
    operator.helm(&["install", RELEASE, chart().to_str().unwrap()]);
    let scale = |replicas: &str| {
        let scale = ["--namespace", "bindery-system", "scale", "deployment/bindery", "--replicas", replicas];
        operator.kubectl(&scale, "").unwrap();
    };
    // Helm's own number is no conflict, even if another client has set it.
    scale("3");
    let why = operator.upgrade(&[]).unwrap_err();
    assert!(why.contains("conflict") && why.contains(".spec.replicas"), "{why}");
    assert_eq!(replicas(&api).await, 3);
    scale("2");
    operator.upgrade(&[]).unwrap();
    scale("3");
    operator.upgrade(&["--force-conflicts"]).unwrap();
    assert_eq!(replicas(&api).await, 2);
    // A Scale omits 0, so no client owns it.
    scale("0");
    operator.upgrade(&[]).unwrap();
    assert_eq!(replicas(&api).await, 2);

    // Without a number in the chart, an autoscaler keeps its own.
    scale("3");
    operator.upgrade(&["--set", "replicas=null"]).unwrap();
    assert_eq!(replicas(&api).await, 3);
    scale("4");
    operator.upgrade(&["--set", "podLabels.team=storage"]).unwrap();
    assert_eq!(replicas(&api).await, 4);
}
