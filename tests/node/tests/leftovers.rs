//! A node leaves nothing on the machine, however it ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use bindery_node::objects::{Objects, is_ready};
use bindery_node::{IMAGE, Node, command};
use kube::api::PostParams;
use serde_json::json;

/// The servers of `up --node`, in the order in which they start.
const SERVERS: [&str; 9] = [
    "namespace",
    "relay",
    "etcd",
    "kube-apiserver",
    "containerd",
    "kube-controller-manager",
    "kubelet",
    "kube-proxy",
    "kube-scheduler",
];

/// Takes the cluster down and checks that nothing is left of it.
fn take_down(name: &str, when: &str) {
    let down = command("down", name).unwrap().output().unwrap();
    assert!(down.status.success(), "{when}: {}", String::from_utf8_lossy(&down.stderr));
    assert_eq!(cgroups(name), Vec::<String>::new(), "{when}");
    // Every process and every mount of the cluster names its folder.
    let folder = format!("/clusters/{name}");
    assert_eq!(naming("environ", &folder), Vec::<String>::new(), "{when}");
    assert_eq!(naming("mounts", &folder), Vec::<String>::new(), "{when}");
}

fn naming(file: &str, text: &str) -> Vec<String> {
    let paths = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join(file));
    let names = |path: &Path| {
        // The folders of processes have numbers as names. A process may end meanwhile.
        path.components().any(|part| part.as_os_str().to_string_lossy().parse::<u32>().is_ok())
            && fs::read(path).is_ok_and(|content| String::from_utf8_lossy(&content).contains(text))
    };
    paths.filter(|path| names(path)).map(|path| path.display().to_string()).collect()
}

fn cgroups(name: &str) -> Vec<String> {
    let root = Path::new("/sys/fs/cgroup");
    let trees = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).chain([root.to_owned()]);
    let entries = trees.filter_map(|tree| fs::read_dir(tree).ok()).flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|cgroup| cgroup.starts_with(&format!("bindery-{name}-"))).collect()
}

#[test]
fn down_leaves_nothing_when_up_was_killed_at_any_server() {
    let name = format!("killed-{}", std::process::id());
    for last in SERVERS {
        let mut up = command("up", &name).unwrap();
        let mut up = up.arg("--node").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(up.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().unwrap() == &format!("starting {last}"));
        assert!(line.is_some(), "{last} is never started");
        up.kill().unwrap();
        up.wait().unwrap();
        take_down(&name, last);
    }
}

#[tokio::test]
async fn down_ends_a_running_pod_of_an_abandoned_node() {
    let name = format!("abandoned-{}", std::process::id());
    let node = Node::start(&name).unwrap();
    let objects = Objects::new(node.client().await.unwrap(), String::new);
    // A number that identifies its process on the machine.
    let nap = format!("31{:07}", std::process::id());
    // A container counts as running while its process still has the runtime's command line.
    let has_begun = ["/bin/grep", "-q", "sleep", "/proc/1/cmdline"];
    let pod = json!({
        "metadata": {"name": "sleeper"},
        "spec": {"containers": [{
            "name": "c", "image": IMAGE, "command": ["/bin/sleep", nap],
            "readinessProbe": {"exec": {"command": has_begun}, "periodSeconds": 1},
        }]},
    });
    objects.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    objects.until(&objects.pods, "sleeper", is_ready).await;
    assert_eq!(naming("cmdline", &nap).len(), 1);
    assert_ne!(cgroups(&name), Vec::<String>::new());
    node.abandon().unwrap();
    take_down(&name, "abandoned");
    assert_eq!(naming("cmdline", &nap), Vec::<String>::new());
}
