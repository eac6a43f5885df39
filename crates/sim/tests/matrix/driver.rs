//! Sends the requests of `requests.jsonl` to an API server, and makes the answers comparable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, interval};

/// The entry in `requests.jsonl` for [`Server::compact`].
const COMPACT: &str = "COMPACT";

/// Resources whose UIDs, versions and tokens later requests can use.
const KNOWN: [&str; 3] = ["persistentvolumes", "persistentvolumeclaims", "storageclasses"];

/// The interval and the longest time of repeating a request whose answer is not complete.
const AGAIN_EVERY: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(120);

pub(crate) trait Server {
    /// A client for the current server process.
    async fn client(&self) -> Client;

    async fn compact(&mut self);
}

/// One request. `@uid(RESOURCE/NAME)` and `@rv(RESOURCE/NAME)` stand for the last UID and version of an
/// object, `@rv(RESOURCE)` for the version of the last list, `@continue(RESOURCE)` for the last continue
/// token.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) id: String,
    #[serde(rename = "do")]
    pub(crate) request: String,
    /// The media type of the body; JSON by default.
    #[serde(rename = "type")]
    pub(crate) content_type: Option<String>,
    /// The accepted media types; JSON by default.
    pub(crate) accept: Option<String>,
    /// A JSON pointer into the body of a complete answer. The plugins of a real server see earlier writes
    /// with a delay, and a watch may end before it has sent all events. Only for requests that write nothing.
    pub(crate) until: Option<String>,
    /// The body: a text is sent verbatim, other values as JSON.
    pub(crate) body: Option<Value>,
}

pub(crate) fn steps() -> Vec<Step> {
    let lines = include_str!("requests.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a step is JSON of its form")).collect()
}

/// Sends all requests, and returns the lines of `answers.jsonl`.
pub(crate) async fn answers(server: &mut impl Server) -> Vec<Value> {
    let mut memory = Memory::default();
    let mut client = server.client().await;
    let mut answers = Vec::new();
    for step in steps() {
        let answer = if step.request == COMPACT {
            server.compact().await;
            client = server.client().await;
            Value::Null
        } else {
            send_until(&client, &step, &mut memory).await
        };
        answers.push(json!({"id": step.id, "answer": answer}));
    }
    answers
}

/// The values for the placeholders of a [`Step`].
#[derive(Default)]
struct Memory {
    values: BTreeMap<String, String>,
}

impl Memory {
    fn fill_in(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (place, value) in &self.values {
            filled = filled.replace(place, value);
        }
        filled
    }

    fn learn(&mut self, path: &str, body: &Value) {
        let parts: Vec<&str> = path.split(['/', '?']).filter(|part| !part.is_empty()).collect();
        let Some(resource) = KNOWN.iter().find(|resource| parts.contains(resource)) else { return };
        let metadata = &body["metadata"];
        let object = metadata["name"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        for (word, field) in [("uid", "uid"), ("rv", "resourceVersion"), ("continue", "continue")] {
            if let Some(value) = metadata[field].as_str().filter(|value| !value.is_empty()) {
                self.values.insert(format!("@{word}({resource}{object})"), value.to_owned());
            }
        }
    }
}

/// Sends one request until its answer is complete.
async fn send_until(client: &Client, step: &Step, memory: &mut Memory) -> Value {
    let give_up = Instant::now() + AGAIN_MAX;
    let mut ticks = interval(AGAIN_EVERY);
    loop {
        ticks.tick().await;
        let answer = send(client, step, memory).await;
        let is_there = |pointer: &String| answer["body"].pointer(pointer).is_some();
        if step.until.as_ref().is_none_or(is_there) || Instant::now() > give_up {
            return answer;
        }
    }
}

/// Sends one request. The answer is `{code, warnings, body}`, normalised.
async fn send(client: &Client, step: &Step, memory: &mut Memory) -> Value {
    let request = memory.fill_in(&step.request);
    let (method, path) = request.split_once(' ').expect("a request has a method and a path");
    let body = match &step.body {
        None => Vec::new(),
        Some(Value::String(text)) => text.clone().into_bytes(),
        Some(value) => memory.fill_in(&value.to_string()).into_bytes(),
    };
    let content_type = step.content_type.as_deref().unwrap_or("application/json");
    let mut builder = Request::builder().method(method).uri(path);
    builder = builder.header("accept", step.accept.as_deref().unwrap_or("application/json"));
    if !body.is_empty() {
        builder = builder.header("content-type", content_type);
    }
    let request = builder.body(Body::from(body)).expect("a request is well-formed");
    let response = client.send(request).await.expect("the server answers");
    let code = response.status().as_u16();
    let warnings: Vec<String> = response
        .headers()
        .get_all("warning")
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    let bytes = response.into_body().collect_bytes().await.expect("the answer is complete");
    let text = String::from_utf8_lossy(&bytes);
    let body = match serde_json::from_str::<Value>(&text) {
        Ok(body) => body,
        Err(_) => {
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect()
        }
    };
    // An expired page has a token.
    if code < 300 || code == 410 {
        memory.learn(path, &body);
    }
    let mut answer = json!({"code": code, "body": body});
    // The simulator has managers from the first apply on.
    if !content_type.starts_with("application/apply-patch") {
        drop_managers(&mut answer);
    }
    if !warnings.is_empty() {
        answer["warnings"] = json!(warnings);
    }
    normalise(&mut answer);
    answer
}

fn drop_managers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("managedFields");
            fields.values_mut().for_each(drop_managers);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_managers),
        _ => {}
    }
}

/// Replaces the parts of an answer that differ from run to run: generated names, versions and
/// times; also fields of bookmarks that the API does not promise.
pub(crate) fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => normalise_fields(fields),
        Value::Array(items) => {
            for item in items.iter_mut() {
                normalise(item);
                // Cells of tables.
                if item.as_str().is_some_and(is_age) {
                    *item = "AGE".into();
                }
            }
        }
        _ => {}
    }
}

fn normalise_fields(fields: &mut Map<String, Value>) {
    if fields.get("type").is_some_and(|kind| kind == "BOOKMARK")
        && let Some(object) = fields.get_mut("object").and_then(Value::as_object_mut)
    {
        object.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    }
    for (name, value) in fields.iter_mut() {
        let stand_in = match name.as_str() {
            "uid" => "UID",
            "resourceVersion" => "VERSION",
            "continue" => "CONTINUE",
            "creationTimestamp" | "deletionTimestamp" | "lastPhaseTransitionTime" | "startTime" | "time" => {
                "TIME"
            }
            _ => "",
        };
        if let Value::String(text) = value {
            if name == "name" && text.len() == 9 && text.to_lowercase().starts_with("gen") {
                *value = "GENERATED".into();
            } else if !stand_in.is_empty() && !text.is_empty() {
                *value = stand_in.into();
            } else if name == "message" {
                // Further lines of a message show a difference between Go values.
                *value = without_patch(&without_uids(text.lines().next().unwrap_or(""))).into();
            }
        } else {
            normalise(value);
        }
    }
    // The real server orders managers by the second of their writes, and a busy machine begins another one.
    if let Some(Value::Array(managers)) = fields.get_mut("managedFields") {
        managers.sort_by_key(Value::to_string);
    }
    order_causes(fields);
}

/// Sorts consecutive causes of one field, and orders the message accordingly: the real server lists errors of
/// the keys of a map in the random order of Go's maps.
fn order_causes(status: &mut Map<String, Value>) {
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or("").to_owned();
    let joined = |causes: &[Value]| {
        let mut parts: Vec<_> =
            causes.iter().map(|it| text(it, "field") + ": " + &text(it, "message")).collect();
        // The message has each sentence once.
        let mut known = BTreeSet::new();
        parts.retain(|part| known.insert(part.clone()));
        parts.join(", ")
    };
    let Some(mut message) = status.get("message").and_then(Value::as_str).map(str::to_owned) else { return };
    let causes = status.get_mut("details").and_then(|details| details.get_mut("causes"));
    let Some(Value::Array(causes)) = causes else { return };
    for run in causes.chunk_by_mut(|one, next| one["field"] == next["field"]) {
        let before = joined(run);
        run.sort_by_key(|cause| text(cause, "message"));
        message = message.replace(&before, &joined(run));
    }
    status.insert("message".to_owned(), message.into());
}

/// `7s` or `5m12s`.
fn is_age(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_suffix('s').is_some_and(|rest| rest.split('m').all(number))
}

fn without_patch(text: &str) -> String {
    let Some((before, rest)) = text.split_once("Invalid value: \"{") else {
        return text.to_owned();
    };
    let after = rest.rsplit_once("}\": ").map_or("", |(_, after)| after);
    format!("{before}Invalid value: \"{{…}}\": {after}")
}

/// Replaces UIDs, versions and generated names in a sentence.
fn without_uids(text: &str) -> String {
    let words = text.split_inclusive([' ', ',', ')', '(', '"']);
    let mut previous_is_version = false;
    let mut clean = String::new();
    for word in words {
        let core = word.trim_end_matches([' ', ',', ')', '(', '"', '.']);
        let is_uid = core.len() == 36 && core.bytes().filter(|byte| *byte == b'-').count() == 4;
        let number = !core.is_empty() && core.bytes().all(|byte| byte.is_ascii_digit());
        let generated =
            ["gen-", "Gen_"].iter().any(|base| core.trim_matches('"').starts_with(base) && core.len() == 9);
        if generated {
            clean.push_str(&word.replace(core, "GENERATED"));
        } else if is_uid {
            clean.push_str(&word.replace(core, "UID"));
        } else if number && previous_is_version {
            clean.push_str(&word.replace(core, "VERSION"));
        } else {
            clean.push_str(word);
        }
        let lower = word.to_lowercase();
        // Words between "version" and the number.
        let is_between = matches!(core, "in" | "record" | "the" | "precondition" | "current:" | "")
            || lower.trim().is_empty();
        let is_version = number && previous_is_version;
        if !is_between && !is_version {
            previous_is_version = lower.contains("version");
        }
    }
    clean
}
