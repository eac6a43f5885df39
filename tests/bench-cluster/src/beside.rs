//! Binds per second of claims that no policy applies to, alone and beside other claims.
//!
//! The other claims come at a steady rate. A class without a policy shows what they cost the API server; a
//! class with a policy, what the policy costs too. Each of them requests another size, so no verdict that is
//! kept serves two of them, and the policy judges every volume of the class for each.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bindery_cluster::{ControlPlane, Manager, Programs, Replica, is_bound};
use bindery_kit::percentiles;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::figures::{count, head, row};
use crate::load::{IN_FLIGHT, Load, Shape, Size, claim_object, volume_object};
use crate::round::times;
use crate::usage::Usage;

/// The target: the least share of the rate alone that is left beside the claims of a policy.
const SHARE_MIN: f64 = 0.9;
/// The class and the namespace of the claims beside.
const POLICY_CLASS: &str = "policy";
const OTHER_CLASS: &str = "other";
const NAMESPACE: &str = "beside";
/// The metric of the volumes that the policy has judged.
const ROWS: &str = "bindery_policy_rows_total{policy=\"beside\"}";
/// The size of the smallest volume, in KiB. All differ, because volumes that the policy sees alike are judged
/// once. The claims beside request less and less.
const VOLUME_KIB: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program `bindery`.
    #[arg(long, value_name = "FILE", env = "BINDERY_BINDERY")]
    bindery: PathBuf,
    /// A policy that scores volumes by their annotation `bindery.dev/wear`.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Claims of a round without a policy, created as fast as the API server takes them.
    #[arg(long, default_value_t = 5_000)]
    claims: usize,
    /// Claims beside them in a second.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Volumes of the class of the claims beside.
    #[arg(long, default_value_t = 1_000)]
    volumes: usize,
    /// Rounds, in which the three cases take turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What is beside the claims that are measured.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    /// Claims of a class without a policy.
    Claims,
    /// Claims of a class with the policy.
    Policy,
}

impl Beside {
    const ALL: [Self; 3] = [Self::Nothing, Self::Claims, Self::Policy];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Claims => "claims without a policy",
            Self::Policy => "claims with the policy",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Nothing | Self::Policy => POLICY_CLASS,
            Self::Claims => OTHER_CLASS,
        }
    }
}

/// Prints a table with a row for each round as it ends, and the shares of the rates.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    head(
        "<beside | binds per second | p50 s | p99 s | others per second | of these bound | rows judged | \
         binder CPU s",
    )?;
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let mut rates = [0.0; Beside::ALL.len()];
        for (rate, beside) in rates.iter_mut().zip(Beside::ALL) {
            *rate = arguments.measure(beside).await?;
        }
        rounds.push(rates);
    }
    let share = |of: fn(&[f64; 3]) -> f64| 100.0 * percentiles(rounds.iter().map(of), [500])[0];
    let claims = share(|[alone, claims, _]| claims / alone);
    let policy = share(|[alone, _, policy]| policy / alone);
    let of_claims = share(|[_, claims, policy]| policy / claims);
    writeln!(
        std::io::stdout(),
        "\nMedians of the ratios within each round. Beside {} claims a second without a policy: {claims:.0}% \
         of the rate alone. Beside as many with the policy: {policy:.0}% of the rate alone (target: at least \
         {:.0}%), {of_claims:.0}% of the rate beside those without.",
        arguments.rate,
        SHARE_MIN * 100.0
    )?;
    Ok(())
}

impl Arguments {
    /// Measures a case on a control plane of its own; returns the binds per second.
    async fn measure(&self, beside: Beside) -> Result<f64> {
        let plane = ControlPlane::start(Programs::from_env()?, Manager::Off).await?;
        let client = plane.client().await?;
        let load = Arc::new(Load::new(&client, Shape::Plain, Size { claims: self.claims, classes: 1 }));
        load.create_volumes().await?;
        let others = Others::create(&client, beside.class(), self).await?;
        let folder = TempDir::new()?;
        let document = folder.path().join("policy.yaml");
        fs::write(&document, self.document()?.to_string())?;
        let policy = format!("--policy={}", document.display());
        let replica = Replica::on(&plane, &[&self.bindery], &[policy]);
        load.until_volumes_settle(self.claims + self.volumes).await?;

        let (begun, bound) = load.watch_claims();
        begun.await.context("the watch of claims could not begin")?;
        let cpu = || Usage::of(replica.id()).map(|usage| usage.cpu);
        let cpu_before = cpu()?;
        let measured = async {
            let created = load.create_claims(None).await?;
            anyhow::Ok((created, bound.await??))
        };
        let (created, bound) = match beside {
            Beside::Nothing => measured.await?,
            Beside::Claims | Beside::Policy => tokio::select! {
                measured = measured => measured?,
                created = others.create_claims(self.rate) => {
                    created?;
                    bail!("the {} volumes beside are used up: give more with --volumes", self.volumes)
                }
            },
        };
        let cpu = cpu()? - cpu_before;
        let (rate, [p50, p99]) = times(&created, &bound);
        let span = count(self.claims) / rate;
        let [created, bound] = others.counts().await?.map(|claims| count(claims) / span);
        let (name, rows) = (beside.name(), replica.metric(ROWS).await);
        let others = format!("{created:.1} | {bound:.1} | {rows}");
        row(&format!("{name} | {rate:.0} | {p50:.2} | {p99:.2} | {others} | {cpu:.1}"))?;
        Ok(rate)
    }

    fn document(&self) -> Result<Value> {
        let module = fs::canonicalize(&self.policy)?;
        let spec = json!({"module": module, "match": {"classNames": [POLICY_CLASS]}});
        Ok(bindery_kit::json::policy("MatchPolicy", "beside", &spec))
    }
}

/// The volumes and claims beside.
struct Others {
    claims: Api<PersistentVolumeClaim>,
    class: &'static str,
    volumes: usize,
}

impl Others {
    /// Creates the volumes, and the namespace of the claims.
    async fn create(client: &kube::Client, class: &'static str, arguments: &Arguments) -> Result<Self> {
        let namespace = serde_json::from_value::<Namespace>(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let volumes = Api::<PersistentVolume>::all(client.clone());
        let volumes = &volumes;
        let create = async |i: usize| {
            let annotations = json!({"bindery.dev/wear": (i % 80).to_string()});
            let metadata = json!({"name": format!("beside-{i:06}"), "annotations": annotations});
            let volume =
                serde_json::from_value(volume_object(metadata, class, &format!("{}Ki", VOLUME_KIB + i)))?;
            volumes.create(&PostParams::default(), &volume).await?;
            anyhow::Ok(())
        };
        let creations = stream::iter(0..arguments.volumes).map(create).buffer_unordered(IN_FLIGHT);
        creations.try_collect::<()>().await?;
        let claims = Api::namespaced(client.clone(), NAMESPACE);
        Ok(Self { claims, class, volumes: arguments.volumes })
    }

    /// Creates that many claims a second, until there is one for each volume.
    async fn create_claims(&self, rate: u32) -> Result<()> {
        let ticks = tokio::time::interval(Duration::from_secs(1) / rate);
        let ticks = stream::unfold(ticks, async |mut ticks| {
            ticks.tick().await;
            Some(((), ticks))
        });
        let create = async |(i, ()): (usize, ())| {
            let metadata = json!({"name": format!("beside-{i:06}"), "namespace": NAMESPACE});
            let size = VOLUME_KIB - i;
            let claim = serde_json::from_value(claim_object(metadata, self.class, &format!("{size}Ki")))?;
            self.claims.create(&PostParams::default(), &claim).await?;
            anyhow::Ok(())
        };
        let creations = ticks.take(self.volumes).enumerate().map(create).buffer_unordered(IN_FLIGHT);
        creations.try_collect().await
    }

    /// How many claims there are, and how many of these are bound.
    async fn counts(&self) -> Result<[usize; 2]> {
        let claims = self.claims.list(&ListParams::default()).await?.items;
        Ok([claims.len(), claims.iter().filter(|claim| is_bound(claim)).count()])
    }
}
