//! Upstream's own controller does what `docs/admission.md` says of a cluster without Bindery: for the
//! examples of the document and those of `upstream.md`, on a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod examples;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bindery_cluster::{ControlPlane, Manager, Programs};
use kube::Client;
use serde_json::{Value, json};

use examples::{Example, document, examples};

/// How long a slow machine may take. Upstream's controller resyncs every 15 s.
const PATIENCE: Duration = Duration::from_secs(180);

const API: &str = "/api/v1";

/// Examples for what a row says beyond its own example.
const BESIDE: &str = include_str!("upstream.md");

/// The expected state of an object.
#[derive(Debug)]
struct Expected {
    kind: String,
    name: String,
    phase: String,
    /// Reason and words of an event; `None` expects no event.
    event: Option<(String, String)>,
}

impl Expected {
    /// Reads `KIND NAME: PHASE`, and `, REASON` or `, REASON: WORDS` after it.
    fn parse(line: &str) -> Self {
        let (object, rest) = line.split_once(": ").unwrap();
        let (kind, name) = object.split_once(' ').unwrap();
        let (phase, event) =
            rest.split_once(", ").map_or((rest, None), |(phase, event)| (phase, Some(event)));
        let event = event.map(|event| {
            let (reason, words) = event.split_once(": ").unwrap_or((event, ""));
            (reason.to_owned(), words.to_owned())
        });
        let [kind, name, phase] = [kind, name, phase].map(str::to_owned);
        Self { kind, name, phase, event }
    }
}

/// An example with a namespace and names of its own, so that all share one cluster.
struct Story {
    place: String,
    example: Example,
}

impl Story {
    fn expected(&self) -> impl Iterator<Item = Expected> {
        self.example.upstream.iter().map(|line| Expected::parse(line))
    }

    /// An object of the example, with the names of this run.
    fn placed(&self, mut object: Value, uids: &BTreeMap<String, String>) -> Value {
        let own = |name: &mut Value| {
            if let Some(text) = name.as_str().filter(|text| !text.is_empty()) {
                *name = format!("{}-{text}", self.place).into();
            }
        };
        if object["kind"] == "PersistentVolumeClaim" {
            object["metadata"]["namespace"] = self.place.clone().into();
        } else {
            own(&mut object["metadata"]["name"]);
        }
        for field in ["volumeName", "storageClassName"] {
            if let Some(name) = object["spec"].get_mut(field) {
                own(name);
            }
        }
        if let Some(claim_ref) = object["spec"].get_mut("claimRef") {
            claim_ref["namespace"] = self.place.clone().into();
            let uid = claim_ref["uid"].as_str().and_then(|_| uids.get(claim_ref["name"].as_str()?));
            if let Some(uid) = uid {
                claim_ref["uid"] = uid.clone().into();
            }
        }
        object
    }
}

/// The API server.
struct Cluster(Client);

impl Cluster {
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.0.request::<Value>(request.body(body).unwrap()).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).await
    }

    /// Creates an object. One with a deletionTimestamp is then deleted, and stays because of its finalizer.
    async fn create(&self, object: &Value) -> Value {
        let path = collection(object);
        let created = self.ask("POST", &path, object).await;
        if object["metadata"].get("deletionTimestamp").is_some() {
            let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
            self.ask("DELETE", &path, &Value::Null).await;
        }
        created
    }

    /// Creates the objects before the request. Volumes come last, because they name the UIDs of claims.
    async fn set_up(&self, story: &Story) -> BTreeMap<String, String> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": story.place}});
        self.create(&namespace).await;
        let mut uids = BTreeMap::new();
        let objects = || story.example.cluster.iter().chain(&story.example.before);
        let (volumes, others): (Vec<_>, Vec<_>) =
            objects().partition(|object| object["kind"] == "PersistentVolume");
        for object in others.into_iter().chain(volumes) {
            let created = self.create(&story.placed(object.clone(), &uids)).await;
            let text = |field: &str| created["metadata"][field].as_str().unwrap().to_owned();
            if object["kind"] == "PersistentVolumeClaim" {
                uids.insert(text("name"), text("uid"));
            }
        }
        uids
    }

    /// Sends the request of the example.
    async fn request(&self, story: &Story, uids: &BTreeMap<String, String>) {
        for object in &story.example.request {
            let object = story.placed(object.clone(), uids);
            if story.example.before.is_empty() {
                self.create(&object).await;
                continue;
            }
            let path = format!("{}/{}", collection(&object), object["metadata"]["name"].as_str().unwrap());
            let mut changed = self.get(&path).await;
            changed["spec"] = object["spec"].clone();
            self.ask("PUT", &path, &changed).await;
        }
    }

    /// The expected states that are not reached yet.
    async fn missing(&self, stories: &[Story]) -> Vec<String> {
        let events = self.get(&format!("{API}/events")).await;
        let objects = [
            self.get(&format!("{API}/persistentvolumes")).await,
            self.get(&format!("{API}/persistentvolumeclaims")).await,
        ];
        let mut missing = Vec::new();
        for story in stories {
            for Expected { kind, name, phase, event } in story.expected() {
                let is_claim = kind == "PersistentVolumeClaim";
                let name = if is_claim { name } else { format!("{}-{name}", story.place) };
                let is_it = |name_of: &Value, namespace: &Value| {
                    *name_of == name.as_str() && (!is_claim || *namespace == story.place.as_str())
                };
                let items = objects[usize::from(is_claim)]["items"].as_array().unwrap();
                let found = items.iter().find(|o| is_it(&o["metadata"]["name"], &o["metadata"]["namespace"]));
                let now = &found.unwrap_or(&Value::Null)["status"]["phase"];
                if *now != phase.as_str() {
                    missing.push(format!("{}: {kind} {name} is {now} and not {phase}", story.place));
                }
                let told = events["items"].as_array().unwrap().iter().filter(|event| {
                    let about = &event["involvedObject"];
                    about["kind"] == kind.as_str() && is_it(&about["name"], &about["namespace"])
                });
                let told: Vec<_> =
                    told.map(|event| (event["reason"].clone(), event["message"].clone())).collect();
                let is_told = match &event {
                    None => phase == "Bound" || told.is_empty(),
                    Some((reason, words)) => told.iter().any(|(found, message)| {
                        *found == reason.as_str() && message.as_str().unwrap().contains(words.as_str())
                    }),
                };
                if !is_told {
                    missing.push(format!("{}: {kind} {name}: {told:?} and not {event:?}", story.place));
                }
            }
        }
        missing
    }

    async fn until_nothing_is_missing(&self, stories: &[Story]) {
        let mut missing = Vec::new();
        let all = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(200));
            loop {
                ticks.tick().await;
                missing = self.missing(stories).await;
                if missing.is_empty() {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            panic!("{missing:#?}");
        }
    }
}

/// The path of the objects of this kind.
fn collection(object: &Value) -> String {
    match object["kind"].as_str().unwrap() {
        "Namespace" => format!("{API}/namespaces"),
        "PersistentVolume" => format!("{API}/persistentvolumes"),
        "StorageClass" => "/apis/storage.k8s.io/v1/storageclasses".to_owned(),
        "PersistentVolumeClaim" => {
            format!(
                "{API}/namespaces/{}/persistentvolumeclaims",
                object["metadata"]["namespace"].as_str().unwrap()
            )
        }
        kind => panic!("no example has a {kind}"),
    }
}

fn stories() -> Vec<Story> {
    let all = [document(), BESIDE.to_owned()].into_iter().flat_map(|text| examples(&text));
    let all = all.enumerate();
    all.map(|(at, example)| Story { place: format!("e{at}-{}", example.rule), example }).collect()
}

/// What the table says happens without Bindery, by rule.
fn rows() -> BTreeMap<String, String> {
    let document = document();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| [`")?.split_once("`]"));
    rows.map(|(rule, rest)| (rule.to_owned(), rest.split(" | ").nth(3).unwrap().to_owned())).collect()
}

#[test]
fn a_row_says_what_its_examples_show_and_no_more() {
    for (rule, row) in rows() {
        // Phases and reasons are quoted and begin with a capital.
        let quoted = row.split('`').skip(1).step_by(2).filter(|word| word.starts_with(char::is_uppercase));
        let said: BTreeSet<String> = quoted.map(str::to_owned).collect();
        let mut shown = BTreeSet::new();
        for story in stories().into_iter().filter(|story| story.example.rule == rule) {
            for Expected { phase, event, .. } in story.expected() {
                shown.insert(phase);
                if let Some((reason, words)) = event {
                    assert!(row.contains(&words), "{rule}: {words:?} is not in {row:?}");
                    shown.insert(reason);
                }
            }
        }
        assert_eq!(said, shown, "{rule}");
    }
}

#[tokio::test]
async fn upstreams_controller_does_what_the_document_says() {
    let stories = stories();
    let mut plane = ControlPlane::start(Programs::from_env().unwrap(), Manager::Off).await.unwrap();
    let cluster = Cluster(plane.client().await.unwrap());
    let mut uids = Vec::new();
    for story in &stories {
        uids.push(cluster.set_up(story).await);
    }
    plane.set_manager(Manager::BinderAlone).unwrap();
    // Pairs of updates have to be bound before the request.
    let before = stories.iter().filter(|story| !story.example.before.is_empty()).map(|story| Story {
        place: story.place.clone(),
        example: Example { upstream: vec!["PersistentVolume db-0: Bound".to_owned()], ..Example::default() },
    });
    cluster.until_nothing_is_missing(&before.collect::<Vec<_>>()).await;
    for (story, uids) in stories.iter().zip(&uids) {
        cluster.request(story, uids).await;
    }
    cluster.until_nothing_is_missing(&stories).await;
}
