//! The journal of a replica: killed and started again, on a full disk, and sent to an endpoint.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use bindery_cluster::{Cluster, Manager, Replica, assert_replays};
use bindery_journal::{Files, What};
use bindery_kit::{OciRegistry, RegistrySettings, Reply};
use bytes::Bytes;
use http::Response;
use rustix::process::Signal;

use crate::support::Home;

#[tokio::test]
async fn the_journal_of_killed_replicas_replays_and_its_counts_add_up() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let home = Home::new();
    let folder = home.path().join("journal");
    let journal = ["--journal", folder.to_str().unwrap()];
    for (name, pairs) in [("first", 20), ("second", 10)] {
        let mut replica = cluster.replica_with(name, &journal);
        replica.until_leading().await;
        cluster.bind_pairs(name, pairs).await;
        let written = "bindery_journal_records_written_total";
        // Four writes and a decision for each bind.
        let at_least = 5 * pairs as u64;
        replica.until_metric(written, |records| records >= at_least).await;
        let [_, lost] = settled_counts(&replica).await;
        assert_eq!(lost, 0, "{}", replica.log());
        replica.signal(Signal::KILL);
        replica.wait().await;
    }
    assert_replays(&folder);
    let verified = home.bindery(&["journal", "verify", "journal"]);
    assert!(verified.status == 0 && verified.stdout.contains(" entries in 2 files\n"), "{verified:?}");
    let mut files = Files::open(&folder).unwrap();
    let (mut replicas, mut binds) = (Vec::new(), 0);
    while let Some(entry) = files.next() {
        replicas.extend(files.header().map(|header| header.replica.clone()));
        if let What::Write(wrote) = entry.unwrap().what {
            binds += usize::from(wrote.write == "reserve volume" && wrote.result.is_ok());
        }
    }
    replicas.dedup();
    assert_eq!((replicas, binds), (vec!["first".to_owned(), "second".to_owned()], 30));
}

/// A command in a mount namespace of its own, in which the folder `$0` is a file system of 1 MiB.
const SMALL_DISK: &str = r#"mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@""#;

#[tokio::test]
async fn a_full_disk_stops_no_bind_and_is_caught_up_once_there_is_room() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let home = Home::new();
    let folder = home.path().join("disk");
    fs::create_dir(&folder).unwrap();
    let isolated = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK];
    let bindery = Path::new(env!("CARGO_BIN_EXE_bindery"));
    let mut command: Vec<&Path> = isolated.iter().map(Path::new).collect();
    command.extend([&*folder, bindery]);
    let journal = ["--journal", folder.to_str().unwrap()].map(str::to_owned);
    let mut replica = Replica::on(&cluster.plane, &command, &journal);
    replica.until_leading().await;
    cluster.bind_pairs("before", 5).await;
    // The folder as the replica sees it.
    let disk = Path::new("/proc")
        .join(replica.id().to_string())
        .join("root")
        .join(folder.strip_prefix("/").unwrap());
    let filler = disk.join("filler");
    let full = fs::write(&filler, vec![0; 2 << 20]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    cluster.bind_pairs("full", 50).await;
    replica.until_metric("bindery_journal_failing", |failing| failing == 1).await;
    fs::remove_file(&filler).unwrap();
    replica.until_metric("bindery_journal_failing", |failing| failing == 0).await;
    let [written, lost] = settled_counts(&replica).await;
    assert_eq!(lost, 0, "{}", replica.log());
    // Four writes and a decision for each bind.
    assert!(written >= 5 * 55, "{written}");
    let entries = Files::open(&disk).unwrap().map(|entry| entry.unwrap().what);
    let read = entries.filter(|what| !matches!(what, What::End)).count() as u64;
    assert!(read >= written, "{read} of {written} records are in the files");
}

/// Records that are written and lost, once none waits.
async fn settled_counts(replica: &Replica) -> [u64; 2] {
    loop {
        let counts = ["made", "written", "lost"].map(|what| format!("bindery_journal_records_{what}_total"));
        let [made, written, lost] = [
            replica.metric(&counts[0]).await,
            replica.metric(&counts[1]).await,
            replica.metric(&counts[2]).await,
        ];
        if made > 0 && made == written + lost {
            return [written, lost];
        }
    }
}

#[tokio::test]
async fn an_endpoint_has_every_record_when_the_replica_has_ended() {
    let cluster = Cluster::start(Manager::WithoutBinder).await;
    let home = Home::new();
    let folder = home.path().join("journal");
    let endpoint = OciRegistry::start(RegistrySettings::default());
    endpoint.intercept(|_, path, _| (path == "/journal").then(|| Reply::Answer(Response::new(Bytes::new()))));
    let url = format!("http://{}/journal", endpoint.host());
    let flags = ["--journal", folder.to_str().unwrap(), "--journal-send", &url];
    for (name, pairs) in [("first", 5), ("second", 5)] {
        let mut replica = cluster.replica_with(name, &flags);
        replica.until_leading().await;
        cluster.bind_pairs(name, pairs).await;
        // What is not sent when the process ends has a few seconds.
        let is_sent = async |replica: &Replica| {
            let written = replica.metric("bindery_journal_records_written_total").await;
            let sent = replica.metric("bindery_journal_records_sent_total").await;
            (sent > 0 && sent == written).then_some(())
        };
        replica.until("all records are sent", is_sent).await;
        assert_eq!(replica.metric("bindery_journal_send_failures_total").await, 0, "{}", replica.log());
        replica.terminate().await;
    }
    let bodies = endpoint.bodies();
    let lines = bodies.iter().flat_map(|body| std::str::from_utf8(body).unwrap().lines());
    let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: BTreeSet<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    // None is missing, and none came twice.
    let recorded = Files::open(&folder).unwrap().count();
    assert_eq!((lines.len(), ids.len()), (recorded, recorded));
}
