//! A module that explodes in the compiler, on a real API server.

use std::path::Path;

use bindery_cluster::{Cluster, Manager, Replica, assert_replays, condition, is_bound_to, is_event};
use bindery_kit::module::Module;
use kube::api::DeleteParams;
use serde_json::json;

use super::policy_objects::until_rejected;

/// A command in a mount namespace of its own, in which the folder `$0` has the memory of the container.
const CONTAINER: &str = r#"mount --bind "$0" /sys/fs/cgroup && exec "$@""#;
/// Bytes that the container has left. A compilation may take three quarters.
const LEFT: u64 = 400 << 20;
/// Variables and blocks of a function. The compiler keeps a value for each variable in each block.
const SIZE: usize = 4_000;

/// A matcher of 80 KB.
fn bomb() -> Vec<u8> {
    let mut text = format!("(func (param i32) {} (loop $again", "(local i32)".repeat(SIZE));
    for block in 1..=SIZE {
        let set = format!("(local.set {block} (local.get {}))", 1 + block * 7 % SIZE);
        text += &format!("(if (local.get 0) (then {set}))");
    }
    text += "(br_if $again (local.get 0)))";
    let uses = (1..=SIZE).map(|variable| format!("(i32.store (i32.const 0) (local.get {variable}))"));
    text.extend(uses.chain([")".to_owned()]));
    Module { fields: text.leak(), ..Module::default() }.component()
}

#[tokio::test]
async fn given_a_module_that_explodes_in_the_compiler_others_load_and_bind() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let policies = cluster.policies();
    policies.install().await;
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, bytes: &[u8]| std::fs::write(folder.path().join(file), bytes).unwrap();
    write("memory.max", LEFT.to_string().as_bytes());
    write("memory.current", b"0");
    write("bomb.wasm", &bomb());
    let isolated = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", CONTAINER];
    let mut command: Vec<&Path> = isolated.iter().map(Path::new).collect();
    command.extend([folder.path(), Path::new(env!("CARGO_BIN_EXE_bindery"))]);
    let shipped = std::env::var("BINDERY_POLICIES").expect("`cargo xtask test` builds the policies");
    let in_folder = |flag: &str, name: &str| format!("{flag}={}", folder.path().join(name).display());
    let (cache, journal) = (in_folder("--engine-cache", "compiled"), in_folder("--journal", "journal"));
    let arguments = ["--policy-objects=true", "--policies", &shipped, &cache, &journal];
    let mut replica = Replica::on(&cluster.plane, &command, &arguments.map(str::to_owned));
    replica.until_leading().await;

    cluster.create_class("held").await;
    let (module, matches) = (folder.path().join("bomb.wasm"), json!({"classNames": ["held"]}));
    policies.apply("MatchPolicy", "bomb", json!({"module": module, "match": matches})).await;
    let status = policies.until_ready("MatchPolicy", "bomb", "CompilerFailed").await;
    let message = condition(&status, "Ready")["message"].as_str().unwrap();
    let told = " MiB of memory, or more than the container has left; what it matches waits";
    assert!(message.starts_with("spec.module: compiling it takes more than "), "{message}");
    assert!(message.ends_with(told), "{message}");
    cluster.create_volume_of("held", "held", json!(null)).await;
    cluster.create_claim_of("held", "held", None).await;
    cluster.until_event(is_event("held", "PolicyFailed")).await;

    // What is compiled next has the same limit.
    let twice = json!({"module": "builtin:at-most-n-times", "settings": {"times": 2}});
    policies.apply("MatchPolicy", "size", twice).await;
    policies.until_ready("MatchPolicy", "size", "Loaded").await;
    cluster.create_available_volume("large", "9Gi").await;
    cluster.create_claim("c", "1Gi").await;
    until_rejected(&cluster, "c", "; 1 of 1 volumes rejected: size 1").await;
    cluster.create_volume("fits", "2Gi").await;
    cluster.until_claim("c", is_bound_to("fits")).await;
    policies.of("MatchPolicy").delete("bomb", &DeleteParams::default()).await.unwrap();
    cluster.until_claim("held", is_bound_to("held")).await;
    replica.terminate().await;
    assert_replays(&folder.path().join("journal"));
}
