//! What one write costs the API server, by how it is asked for.
//!
//! The write is the first one of a bind: a volume's claimRef and the mark, with the UID and the version that
//! were read.

use std::io::Write as _;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bindery_cluster::{ControlPlane, Manager, Programs};
use bytes::Bytes;
use clap::ValueEnum;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::load::{Load, Shape, Size, volume_name};
use crate::percentile::percentile;
use crate::usage::Usage;

/// As many as Bindery has under way.
const IN_FLIGHT: usize = 32;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MARK: &str = "pv.kubernetes.io/bound-by-controller";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Writes of each kind in a round.
    #[arg(long, default_value_t = 1_000)]
    writes: usize,
    /// Rounds, in each of which every kind takes its turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// How a write is asked for.
#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// JSON merge patch (RFC 7386).
    Merge,
    /// The same, without the API server's search for unknown fields.
    MergeUnchecked,
    /// The same, answered with the metadata only.
    MergeUncheckedBrief,
    /// A merge patch that is answered in protobuf: Bindery's.
    MergeProtobuf,
    /// Strategic merge patch, answered in protobuf.
    StrategicProtobuf,
    /// Strategic merge patch.
    Strategic,
    /// JSON patch (RFC 6902).
    JsonPatch,
    /// The whole object, in JSON.
    Put,
    /// The same, without the search for unknown fields.
    PutUnchecked,
    /// The whole object, in protobuf, as upstream sends it.
    PutProtobuf,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge patch",
            Self::MergeUnchecked => "merge patch, fieldValidation=Ignore",
            Self::MergeUncheckedBrief => "merge patch, fieldValidation=Ignore, metadata answered",
            Self::MergeProtobuf => "merge patch, answered in protobuf",
            Self::StrategicProtobuf => "strategic merge patch, answered in protobuf",
            Self::Strategic => "strategic merge patch",
            Self::JsonPatch => "JSON patch",
            Self::Put => "update in JSON",
            Self::PutUnchecked => "update in JSON, fieldValidation=Ignore",
            Self::PutProtobuf => "update in protobuf",
        }
    }

    fn request(self, read: &Read) -> Result<http::Request<Body>> {
        let (name, metadata) = (&read.name, &read.json["metadata"]);
        let (uid, version) = (&metadata["uid"], &metadata["resourceVersion"]);
        let claim_ref = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": uid,
        });
        let change = json!({
            "metadata": {"annotations": {MARK: "yes"}, "uid": uid, "resourceVersion": version},
            "spec": {"claimRef": claim_ref},
        });
        let (method, content_type, body) = match self {
            Self::Merge | Self::MergeUnchecked | Self::MergeUncheckedBrief | Self::MergeProtobuf => {
                ("PATCH", "application/merge-patch+json", change.to_string().into())
            }
            Self::Strategic | Self::StrategicProtobuf => {
                ("PATCH", "application/strategic-merge-patch+json", change.to_string().into())
            }
            Self::JsonPatch => {
                let steps = json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "add", "path": "/metadata/annotations", "value": {MARK: "yes"}},
                    {"op": "add", "path": "/spec/claimRef", "value": claim_ref},
                ]);
                ("PATCH", "application/json-patch+json", steps.to_string().into())
            }
            Self::Put | Self::PutUnchecked => {
                let mut object = read.json.clone();
                object["metadata"]["annotations"] = json!({MARK: "yes"});
                object["spec"]["claimRef"] = claim_ref;
                ("PUT", "application/json", object.to_string().into())
            }
            Self::PutProtobuf => ("PUT", PROTOBUF, with_claim_ref(&read.protobuf, name)?),
        };
        let query = match self {
            Self::MergeUnchecked | Self::MergeUncheckedBrief | Self::PutUnchecked => {
                "?fieldManager=bench&fieldValidation=Ignore"
            }
            _ => "?fieldManager=bench",
        };
        let accept = match self {
            Self::MergeUncheckedBrief => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Self::PutProtobuf | Self::MergeProtobuf | Self::StrategicProtobuf => PROTOBUF,
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{query}", path(name)))
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, accept);
        Ok(request.body(Body::from(body.to_vec()))?)
    }
}

/// A volume as it was read.
struct Read {
    name: String,
    json: Value,
    protobuf: Bytes,
}

/// Prints a table: of each way the medians of its rounds, and in brackets the least and the most.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
    let client = plane.client().await?;
    let ways = Way::value_variants();
    let mut costs = vec![Vec::new(); ways.len()];
    for round in 0..arguments.rounds {
        for turn in 0..ways.len() {
            // Each way comes first in some round: what the one before left to the API server's garbage
            // collector counts.
            let at = (round + turn) % ways.len();
            let from = (round * ways.len() + turn) * arguments.writes;
            let read = prepare(&client, from..from + arguments.writes).await?;
            costs[at].push(measure(&mut plane, &client, ways[at], &read).await?);
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "| write | API server CPU us | etcd CPU us | writes/s |")?;
    writeln!(out, "|---|--:|--:|--:|")?;
    for (way, costs) in ways.iter().zip(&costs) {
        let server = spread(costs.iter().map(|cost| cost.server));
        let etcd = spread(costs.iter().map(|cost| cost.etcd));
        let rate = spread(costs.iter().map(|cost| cost.rate));
        writeln!(out, "| {} | {server} | {etcd} | {rate} |", way.name())?;
    }
    Ok(())
}

/// The median, the least and the most.
fn spread(figures: impl Iterator<Item = f64>) -> String {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let [middle, least, most] = [500, 0, 1_000].map(|per_mille| percentile(&figures, per_mille));
    format!("{middle:.0} ({least:.0} to {most:.0})")
}

/// What the writes of one round came to.
#[derive(Clone, Copy)]
struct Cost {
    /// Microseconds of the API server's CPU for a write.
    server: f64,
    /// Of etcd's.
    etcd: f64,
    /// Writes a second.
    rate: f64,
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

async fn measure(plane: &mut ControlPlane, client: &kube::Client, way: Way, read: &[Read]) -> Result<Cost> {
    let ids = [plane.api_server().id(), plane.etcd().id()];
    let cpu = || ids.map(|id| Usage::of(id).map(|usage| usage.cpu));
    let [server_before, etcd_before] = cpu();
    let began = Instant::now();
    let requests = read.iter().map(|read| way.request(read)).collect::<Result<Vec<_>>>()?;
    let sent = stream::iter(requests).map(|request| send(client, request));
    sent.buffer_unordered(IN_FLIGHT).try_collect::<Vec<_>>().await.with_context(|| way.name())?;
    let time = began.elapsed().as_secs_f64();
    let [server, etcd] = cpu();
    #[expect(clippy::cast_precision_loss, reason = "numbers of writes are small")]
    let writes = read.len() as f64;
    let micros = |seconds: f64| seconds * 1e6 / writes;
    Ok(Cost {
        server: micros(server? - server_before?),
        etcd: micros(etcd? - etcd_before?),
        rate: writes / time,
    })
}

fn path(name: &str) -> String {
    format!("/api/v1/persistentvolumes/{name}")
}

/// The protobuf of a volume that has a claimRef as well. A message that is written behind another one is
/// merged into it, so only what changes is encoded here (core/v1 generated.proto; the envelope is
/// runtime.Unknown).
fn with_claim_ref(object: &[u8], claim: &str) -> Result<Bytes> {
    let envelope = object.strip_prefix(b"k8s\0").context("the API server's answer is no protobuf")?;
    // ObjectReference: kind 1, namespace 2, name 3, apiVersion 5. PersistentVolumeSpec: claimRef 4.
    // PersistentVolume: spec 2.
    let reference: Vec<u8> = [(1, "PersistentVolumeClaim"), (2, "default"), (3, claim), (5, "v1")]
        .into_iter()
        .flat_map(|(number, text)| field(number, text.as_bytes()))
        .collect();
    let entry: Vec<u8> =
        [(1, MARK), (2, "yes")].into_iter().flat_map(|(n, text)| field(n, text.as_bytes())).collect();
    // ObjectMeta: annotations 12. PersistentVolume: metadata 1.
    let metadata = field(1, &field(12, &entry));
    let spec = field(2, &field(4, &reference));
    // Unknown: raw 2.
    let mut out = b"k8s\0".to_vec();
    let mut rest = envelope;
    while let Some((number, body, after)) = next_field(rest) {
        if number == 2 {
            out.extend(field(2, &[body, &metadata, &spec].concat()));
        } else {
            out.extend(field(number, body));
        }
        rest = after;
    }
    Ok(out.into())
}

/// A field of length-delimited wire type.
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

/// Number and body of the first field, and what follows it.
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
