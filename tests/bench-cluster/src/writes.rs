//! The API server's CPU for one write, by the kind of request.
//!
//! The write is the first one of a bind: a volume's claimRef and annotation, with the UID and version of the
//! last read.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs};
use bindery_kit::percentiles;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::figures::{count, head, row};
use crate::load::{Load, Shape, Size, volume_name};
use crate::usage::Usage;

/// Concurrent requests.
const IN_FLIGHT: usize = 32;
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Writes of each kind in a round.
    #[arg(long, default_value_t = 1_000)]
    writes: usize,
    /// Rounds, in each of which every kind of request takes its turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

struct RequestKind {
    name: &'static str,
    body: BodyKind,
    /// Whether the API server checks for unknown fields.
    checked: bool,
    accept: &'static str,
}

#[derive(Clone, Copy)]
enum BodyKind {
    /// RFC 7386.
    MergePatch,
    StrategicMergePatch,
    /// RFC 6902.
    JsonPatch,
    /// The whole object in JSON.
    Json,
    /// The whole object in protobuf, as upstream sends it.
    Protobuf,
}

const fn checked(name: &'static str, body: BodyKind, accept: &'static str) -> RequestKind {
    RequestKind { name, body, checked: true, accept }
}

const fn unchecked(name: &'static str, body: BodyKind, accept: &'static str) -> RequestKind {
    RequestKind { name, body, checked: false, accept }
}

/// All kinds. Bindery's is the merge patch that is answered in protobuf.
const KINDS: [RequestKind; 10] = [
    checked("merge patch", BodyKind::MergePatch, JSON),
    unchecked("merge patch, fieldValidation=Ignore", BodyKind::MergePatch, JSON),
    unchecked("merge patch, fieldValidation=Ignore, metadata answered", BodyKind::MergePatch, METADATA),
    checked("merge patch, answered in protobuf", BodyKind::MergePatch, PROTOBUF),
    checked("strategic merge patch, answered in protobuf", BodyKind::StrategicMergePatch, PROTOBUF),
    checked("strategic merge patch", BodyKind::StrategicMergePatch, JSON),
    checked("JSON patch", BodyKind::JsonPatch, JSON),
    checked("update in JSON", BodyKind::Json, JSON),
    unchecked("update in JSON, fieldValidation=Ignore", BodyKind::Json, JSON),
    checked("update in protobuf", BodyKind::Protobuf, PROTOBUF),
];

impl RequestKind {
    fn request(&self, read: &Read) -> Result<http::Request<Body>> {
        let (name, metadata) = (&read.name, &read.json["metadata"]);
        let (uid, version) = (&metadata["uid"], &metadata["resourceVersion"]);
        let kind = "PersistentVolumeClaim";
        let claim_ref =
            json!({"apiVersion": "v1", "kind": kind, "namespace": "default", "name": name, "uid": uid});
        let annotations = json!({BOUND_BY_CONTROLLER: "yes"});
        let change = json!({
            "metadata": {"annotations": annotations, "uid": uid, "resourceVersion": version},
            "spec": {"claimRef": claim_ref},
        });
        let (method, content_type, body) = match self.body {
            BodyKind::MergePatch => ("PATCH", "application/merge-patch+json", change.to_string().into()),
            BodyKind::StrategicMergePatch => {
                ("PATCH", "application/strategic-merge-patch+json", change.to_string().into())
            }
            BodyKind::JsonPatch => {
                let operations = json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "add", "path": "/metadata/annotations", "value": annotations},
                    {"op": "add", "path": "/spec/claimRef", "value": claim_ref},
                ]);
                ("PATCH", "application/json-patch+json", operations.to_string().into())
            }
            BodyKind::Json => {
                let mut object = read.json.clone();
                object["metadata"]["annotations"] = annotations;
                object["spec"]["claimRef"] = claim_ref;
                ("PUT", JSON, object.to_string().into())
            }
            BodyKind::Protobuf => ("PUT", PROTOBUF, with_claim_ref(&read.protobuf, name)?),
        };
        let validation = if self.checked { "" } else { "&fieldValidation=Ignore" };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}?fieldManager=bench{validation}", path(name)))
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, self.accept);
        Ok(request.body(Body::from(body.to_vec()))?)
    }
}

struct Read {
    name: String,
    json: Value,
    protobuf: Bytes,
}

/// Prints a table: for each kind of request the median of the rounds, with the least and the most in
/// brackets.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let client = plane.client().await?;
    let mut costs = vec![Vec::new(); KINDS.len()];
    for round in 0..arguments.rounds {
        for turn in 0..KINDS.len() {
            // The order rotates, because the garbage of one kind burdens the next one.
            let at = (round + turn) % KINDS.len();
            let from = (round * KINDS.len() + turn) * arguments.writes;
            let read = prepare(&client, from..from + arguments.writes).await?;
            costs[at].push(measure(&mut plane, &client, &KINDS[at], &read).await?);
        }
    }
    head("<write | API server CPU us | etcd CPU us | writes per second")?;
    for (kind, costs) in KINDS.iter().zip(&costs) {
        let [server, etcd, rate] = [0, 1, 2].map(|figure| {
            let figures = costs.iter().map(|cost: &[f64; 3]| cost[figure]);
            let [median, least, most] = percentiles(figures, [500, 0, 1_000]);
            format!("{median:.0} ({least:.0} to {most:.0})")
        });
        row(&format!("{} | {server} | {etcd} | {rate}", kind.name))?;
    }
    Ok(())
}

async fn prepare(client: &kube::Client, numbers: Range<usize>) -> Result<Vec<Read>> {
    let load = Load::new(client, Shape::Plain, Size { claims: numbers.end, classes: 1 });
    let load = &load;
    let create = |i: usize| async move {
        load.create_volume(i).await?;
        let name = volume_name(i);
        let json = serde_json::from_slice(&get(client, &name, "application/json").await?)?;
        let protobuf = get(client, &name, PROTOBUF).await?;
        anyhow::Ok(Read { name, json, protobuf })
    };
    stream::iter(numbers).map(create).buffer_unordered(IN_FLIGHT).try_collect().await
}

async fn get(client: &kube::Client, name: &str, accept: &str) -> Result<Bytes> {
    let request = http::Request::get(path(name)).header(http::header::ACCEPT, accept).body(Body::empty())?;
    send(client, request).await
}

async fn send(client: &kube::Client, request: http::Request<Body>) -> Result<Bytes> {
    let response = client.send(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}

/// Microseconds of the API server's CPU and of etcd's for a write, and writes per second.
async fn measure(
    plane: &mut ControlPlane,
    client: &kube::Client,
    kind: &RequestKind,
    read: &[Read],
) -> Result<[f64; 3]> {
    let (server, etcd) = (plane.api_server().id(), plane.etcd().id());
    let cpu = || anyhow::Ok([Usage::of(server)?.cpu, Usage::of(etcd)?.cpu]);
    let before = cpu()?;
    let began = Instant::now();
    let requests = read.iter().map(|read| kind.request(read)).collect::<Result<Vec<_>>>()?;
    let sent = stream::iter(requests).map(|request| send(client, request));
    sent.buffer_unordered(IN_FLIGHT).try_collect::<Vec<_>>().await.with_context(|| kind.name)?;
    let time = began.elapsed().as_secs_f64();
    let after = cpu()?;
    let writes = count(read.len());
    let micros = |at: usize| (after[at] - before[at]) * 1e6 / writes;
    Ok([micros(0), micros(1), writes / time])
}

fn path(name: &str) -> String {
    format!("/api/v1/persistentvolumes/{name}")
}

/// Adds a claimRef and the annotation to the protobuf of a volume. A decoder merges a message with a later
/// one of the same field, so this appends the changed fields (core/v1 generated.proto; the envelope is
/// runtime.Unknown).
fn with_claim_ref(object: &[u8], claim: &str) -> Result<Bytes> {
    let mut envelope = object.strip_prefix(b"k8s\0").context("the API server's answer is not protobuf")?;
    // ObjectReference: kind 1, namespace 2, name 3, apiVersion 5. PersistentVolumeSpec: claimRef 4.
    let reference = texts(&[(1, "PersistentVolumeClaim"), (2, "default"), (3, claim), (5, "v1")]);
    // ObjectMeta: annotations 12. PersistentVolume: metadata 1, spec 2.
    let metadata = field(1, &field(12, &texts(&[(1, BOUND_BY_CONTROLLER), (2, "yes")])));
    let spec = field(2, &field(4, &reference));
    let mut out = b"k8s\0".to_vec();
    while let Some((number, body, rest)) = next_field(envelope) {
        // Unknown: raw 2.
        let body = if number == 2 { &[body, &metadata, &spec].concat() } else { body };
        out.extend(field(number, body));
        envelope = rest;
    }
    Ok(out.into())
}

fn texts(fields: &[(u8, &str)]) -> Vec<u8> {
    fields.iter().flat_map(|(number, text)| field(*number, text.as_bytes())).collect()
}

/// Encodes a length-delimited field.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = body.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or_default());
    out.extend(body);
    out
}

/// The number and body of the first field, and the rest.
fn next_field(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, mut rest) = bytes.split_first()?;
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((tag >> 3, rest.get(..length)?, rest.get(length..)?))
}
