//! Steered claims, through Bindery in mode steer and upstream's binder, against plain claims through
//! upstream's binder alone.
//!
//! Each round has a control plane of its own with all of upstream's controllers and free volumes of one
//! class. First come single claims, each after the one before is Bound; then many, as fast as the API server
//! takes them. A watcher of claims and volumes sees each step.
//!
//! A further control plane has a class that waits for a pod, upstream's scheduler, and one node. Single
//! claims are created there, each with a pod that needs it, after the claim before is Bound. Their rows
//! (`waiting`) have the time from the creation of the pod, which comes right after the claim. For a steered
//! one Bindery labels volumes once it sees the pod, and the scheduler takes one of them.

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bindery_cluster::{BY_HAND, ControlPlane, FREE_SIZE, Manager, Programs, Replica, Server, Stock};
use bindery_core::ClaimKey;
use bindery_core::steer::steering_key;
use bindery_kit::{json, percentiles};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::figures::{count, head, row};
use crate::load::{IN_FLIGHT, claim_object};
use crate::steps::{Step, Steps, Watch, waits};
use crate::usage::Usage;

/// The target: the least share of the rate of plain claims.
const SHARE_MIN: f64 = 0.8;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE", env = "BINDERY_BINDERY")]
    bindery: PathBuf,
    /// Claims that are created as fast as the API server takes them.
    #[arg(long, default_value_t = 1_000)]
    claims: usize,
    /// Free volumes before that: at least as many.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000])]
    volumes: Vec<usize>,
    /// Single claims, of either class.
    #[arg(long, default_value_t = 100)]
    singles: usize,
    /// Pairs of rounds, in alternating order.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Leave upstream its own limit of 20 requests a second.
    #[arg(long)]
    limited: bool,
}

/// The claims of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claims {
    Plain,
    Steered,
}

impl Claims {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Steered => "steered",
        }
    }
}

/// What a round has measured.
struct Figures {
    /// Those that were created as fast as the API server takes them.
    many: Vec<Steps>,
    /// Those that were created one after the other.
    singles: Vec<Steps>,
    /// Those whose class waits for a pod, since the creation of the pod.
    waiting: Vec<Steps>,
    /// Touches of claims whose class does not wait.
    touches: u64,
    /// CPU seconds of Bindery, upstream and the API server while many claims were bound.
    cpu: [f64; 3],
}

impl Figures {
    /// Claims per second, from the first creation to the last Bound.
    fn rate(&self) -> f64 {
        let first = self.many.iter().map(|steps| steps.sent).min();
        let last = self.many.iter().filter_map(Steps::bound).max();
        let span = first.zip(last).map_or(f64::NAN, |(first, last)| (last - first).as_secs_f64());
        count(self.many.len()) / span
    }

    fn cells(&self) -> String {
        let [p50, p99] = waits(&self.many, Step::Bound);
        let [bindery, upstream, server] = self.cpu;
        let rate = self.rate();
        format!(
            "{rate:.1} | {p50:.2} | {p99:.2} | {} | {bindery:.1} | {upstream:.1} | {server:.1}",
            self.touches
        )
    }
}

/// Both rounds of a pair.
struct Pair {
    plain: Figures,
    steered: Figures,
}

/// Prints a table with a row for each round as it ends, one with the time until each step, and the ratios.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    head(
        "volumes | <claims | claims per second | p50 s | p99 s | touches | Bindery CPU s | upstream CPU s | \
         API server CPU s",
    )?;
    let mut compared = Vec::new();
    for &volumes in &arguments.volumes {
        let mut pairs = Vec::new();
        for round in 0..arguments.rounds {
            pairs.push(arguments.pair(volumes, round % 2 == 0).await?);
        }
        compared.push((volumes, pairs));
    }
    writeln!(
        std::io::stdout(),
        "\nMilliseconds from the creation (of the pod, where claims wait for one) to each step, p50 and p99 \
         of all rounds:\n"
    )?;
    head(&format!("volumes | <claims | {}", Step::ALL.map(Step::name).join(" | ")))?;
    for (volumes, pairs) in &compared {
        until_steps(*volumes, pairs)?;
    }
    for (volumes, pairs) in &compared {
        let ratios = pairs.iter().map(|pair| 100.0 * pair.steered.rate() / pair.plain.rate());
        let [share] = percentiles(ratios, [500]);
        writeln!(
            std::io::stdout(),
            "\nWith {volumes} volumes: {share:.0}% of the rate of plain claims (median of the ratios within \
             each pair; target: at least {:.0}%).",
            SHARE_MIN * 100.0
        )?;
    }
    Ok(())
}

/// Prints the rows of the time until each step.
fn until_steps(volumes: usize, pairs: &[Pair]) -> Result<()> {
    let print = |claims: &str, of: fn(&Pair) -> &[Steps]| {
        let cell = |step| match waits(pairs.iter().flat_map(of), step).map(|seconds| seconds * 1000.0) {
            [p50, _] if p50.is_nan() => String::new(),
            [p50, p99] => format!("{p50:.0}, {p99:.0}"),
        };
        row(&format!("{volumes} | {claims} | {}", Step::ALL.map(cell).join(" | ")))
    };
    print("plain, many", |pair| &pair.plain.many)?;
    print("steered, many", |pair| &pair.steered.many)?;
    print("plain, single", |pair| &pair.plain.singles)?;
    print("steered, single", |pair| &pair.steered.singles)?;
    print("plain, waiting", |pair| &pair.plain.waiting)?;
    print("steered, waiting", |pair| &pair.steered.waiting)?;
    Ok(())
}

impl Arguments {
    /// Measures both, and prints a row for each.
    async fn pair(&self, volumes: usize, plain_first: bool) -> Result<Pair> {
        Ok(if plain_first {
            let plain = self.measure(Claims::Plain, volumes).await?;
            Pair { plain, steered: self.measure(Claims::Steered, volumes).await? }
        } else {
            let steered = self.measure(Claims::Steered, volumes).await?;
            Pair { plain: self.measure(Claims::Plain, volumes).await?, steered }
        })
    }

    /// Measures a round, and prints its row.
    async fn measure(&self, kind: Claims, volumes: usize) -> Result<Figures> {
        let mut round = self.begin(kind, volumes, false).await?;
        let manager = round.plane.manager().context("upstream runs")?.id();
        // Upstream has queued all volumes at its start.
        Usage::when_idle(manager).await?;
        let singles = round.singles(self.singles).await?;
        let bindery = round.bindery.as_ref().map(Replica::id);
        let ids = [bindery, Some(manager), Some(round.plane.api_server().id())];
        let cpu = || ids.map(|id| id.map_or(Ok(0.0), |id| Usage::of(id).map(|usage| usage.cpu)));
        let before = cpu();
        let many = round.claims.create(1 + self.singles..1 + self.singles + self.claims).await?;
        let many = round.watch.until_bound(many).await?;
        let mut used = [0.0; 3];
        for (used, (after, before)) in used.iter_mut().zip(cpu().into_iter().zip(before)) {
            *used = after? - before?;
        }
        let touches = match &round.bindery {
            Some(bindery) => bindery.metric("bindery_steer_touches_total").await,
            None => 0,
        };
        drop(round);
        let waiting = self.waiting(kind, volumes).await?;
        let figures = Figures { many, singles, waiting, touches, cpu: used };
        row(&format!("{volumes} | {} | {}", kind.name(), figures.cells()))?;
        Ok(figures)
    }

    /// Measures single claims of a class that waits for a pod.
    async fn waiting(&self, kind: Claims, volumes: usize) -> Result<Vec<Steps>> {
        let mut round = self.begin(kind, volumes, true).await?;
        Usage::when_idle(round.plane.manager().context("upstream runs")?.id()).await?;
        round.singles(self.singles).await
    }

    /// Starts a control plane, whose class may wait for a pod.
    async fn begin(&self, kind: Claims, volumes: usize, waits: bool) -> Result<Round> {
        let mut plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
        // One more binds a claim that shows that all programs are ready.
        Stock { pairs: 0, free: 1 + self.singles + volumes }.seed(&mut plane).await?;
        let client = plane.client().await?;
        let mode = if waits { "WaitForFirstConsumer" } else { "Immediate" };
        let mode = json!({"volumeBindingMode": mode});
        let class = serde_json::from_value(json::class(BY_HAND, "kubernetes.io/no-provisioner", mode))?;
        Api::<StorageClass>::all(client.clone()).create(&PostParams::default(), &class).await?;
        plane.set_manager(if self.limited { Manager::Untouched } else { Manager::Whole })?;
        let (mut scheduler, mut pods) = (None, None);
        if waits {
            let node = serde_json::from_value(json::node("node"))?;
            Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
            scheduler = Some(plane.start_scheduler()?);
            pods = Some(Api::default_namespaced(client.clone()));
        }
        let bindery = (kind == Claims::Steered)
            .then(|| Replica::on(&plane, &[&self.bindery], &["--mode=steer".to_owned()]));
        let watch = Watch::begin(&client).await?;
        let claims = NewClaims { api: Api::default_namespaced(client), kind, pods };
        let mut round = Round { claims, watch, bindery, _scheduler: scheduler, plane };
        round.one(0).await?;
        Ok(round)
    }
}

/// A control plane with free volumes of one class, and what runs beside it.
struct Round {
    claims: NewClaims,
    watch: Watch,
    /// It runs if claims are steered.
    bindery: Option<Replica>,
    /// It runs if the class waits for a pod.
    _scheduler: Option<Server>,
    plane: ControlPlane,
}

impl Round {
    /// Creates that many claims, each after the one before is Bound.
    async fn singles(&mut self, count: usize) -> Result<Vec<Steps>> {
        let mut singles = Vec::new();
        for number in 1..=count {
            singles.extend(self.one(number).await?);
        }
        Ok(singles)
    }

    /// Creates a claim, and waits until it is Bound.
    async fn one(&mut self, number: usize) -> Result<Vec<Steps>> {
        self.watch.until_bound(self.claims.create(number..number + 1).await?).await
    }
}

/// Creates the claims of a round.
struct NewClaims {
    api: Api<PersistentVolumeClaim>,
    kind: Claims,
    /// Where each claim gets a pod, if the class waits for one.
    pods: Option<Api<Pod>>,
}

impl NewClaims {
    /// Creates the claims of these numbers, and their pods. Returns when the last creation for each was sent.
    async fn create(&self, numbers: Range<usize>) -> Result<HashMap<String, Instant>> {
        let create = async |number: usize| {
            let name = format!("bench-{number:06}");
            let claim = serde_json::from_value(self.claim(&name)?)?;
            let mut sent = Instant::now();
            self.api.create(&PostParams::default(), &claim).await?;
            if let Some(pods) = &self.pods {
                let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
                let pod = json::pod(&name, json!({"spec": {"volumes": [volume]}}));
                let pod = serde_json::from_value(pod)?;
                sent = Instant::now();
                pods.create(&PostParams::default(), &pod).await?;
            }
            anyhow::Ok((name, sent))
        };
        stream::iter(numbers).map(create).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    fn claim(&self, name: &str) -> Result<Value> {
        let mut claim = claim_object(json!({"name": name}), BY_HAND, FREE_SIZE);
        if self.kind == Claims::Steered {
            let key = steering_key(&ClaimKey::new("default", name)).context("the names are short")?;
            let requirement = json!({"key": key, "operator": "Exists"});
            claim["spec"]["selector"] = json!({"matchExpressions": [requirement]});
        }
        Ok(claim)
    }
}
