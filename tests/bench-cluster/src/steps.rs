//! What a watcher sees of claims from their creation to Bound.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bindery_core::steer::{CHOICE, RESERVED_FOR, TOUCHED};
use bindery_kit::percentiles;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A step of a claim. Plain claims, and those whose class waits for a pod, have only the last two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Bindery has annotated the claim with its choice.
    Chosen,
    /// Bindery has reserved a volume.
    Reserved,
    /// Bindery has touched the claim for the first time.
    Touched,
    /// Upstream's binder or scheduler has written the claim's UID into the volume's claimRef.
    Taken,
    /// The claim is Bound.
    Bound,
}

impl Step {
    pub(crate) const ALL: [Self; 5] = [Self::Chosen, Self::Reserved, Self::Touched, Self::Taken, Self::Bound];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chosen => "choice annotated",
            Self::Reserved => "volume reserved",
            Self::Touched => "claim touched",
            Self::Taken => "upstream writes volume",
            Self::Bound => "Bound",
        }
    }
}

/// When a claim's creation was sent, or that of its pod, and when each step was seen.
pub(crate) struct Steps {
    pub(crate) sent: Instant,
    seen: [Option<Instant>; Step::ALL.len()],
}

impl Steps {
    /// Seconds from the creation to a step.
    pub(crate) fn until(&self, step: Step) -> Option<f64> {
        self.seen[step as usize].map(|seen| seen.saturating_duration_since(self.sent).as_secs_f64())
    }

    /// When the claim was seen Bound.
    pub(crate) fn bound(&self) -> Option<Instant> {
        self.seen[Step::Bound as usize]
    }
}

/// Median and 99th percentile of the seconds to a step; NaN if no claim has it.
pub(crate) fn waits<'a>(steps: impl IntoIterator<Item = &'a Steps>, step: Step) -> [f64; 2] {
    percentiles(steps.into_iter().filter_map(|steps| steps.until(step)), [500, 990])
}

/// A claim's name, and the steps that an object shows.
type Shown = (String, Vec<Step>);
/// A step of a claim of that name, and when it was seen.
type Seen = (String, Step, Instant);

/// Watches of all volumes and claims. They end when this is dropped.
pub(crate) struct Watch {
    seen: UnboundedReceiver<Seen>,
    tasks: JoinSet<Result<()>>,
}

impl Watch {
    /// Returns when the watches have begun.
    pub(crate) async fn begin(client: &kube::Client) -> Result<Self> {
        let (sender, seen) = unbounded_channel();
        let mut tasks = JoinSet::new();
        let claims = watcher(Api::<PersistentVolumeClaim>::all(client.clone()), Config::default());
        let (begun, claims_begun) = oneshot::channel();
        tasks.spawn(forward(claims, of_claim, sender.clone(), begun));
        let volumes = watcher(Api::<PersistentVolume>::all(client.clone()), Config::default());
        let (begun, volumes_begun) = oneshot::channel();
        tasks.spawn(forward(volumes, of_volume, sender, begun));
        for begun in [claims_begun, volumes_begun] {
            begun.await.context("a watch could not begin")?;
        }
        Ok(Self { seen, tasks })
    }

    /// Waits until each of these claims is Bound. The instants are those of their creation.
    pub(crate) async fn until_bound(&mut self, sent: HashMap<String, Instant>) -> Result<Vec<Steps>> {
        let begin = |(name, sent)| (name, Steps { sent, seen: Default::default() });
        let mut claims: HashMap<String, Steps> = sent.into_iter().map(begin).collect();
        let mut waiting = claims.len();
        while waiting > 0 {
            let (claim, step, at) = tokio::select! {
                Some(seen) = self.seen.recv() => seen,
                Some(ended) = self.tasks.join_next() => bail!("a watch has ended: {ended:?}"),
            };
            let Some(steps) = claims.get_mut(&claim) else { continue };
            let is_first = steps.seen[step as usize].is_none();
            waiting -= usize::from(is_first && matches!(step, Step::Bound));
            steps.seen[step as usize].get_or_insert(at);
        }
        Ok(claims.into_values().collect())
    }
}

/// Sends what the events of a watch show.
async fn forward<K>(
    changes: impl Stream<Item = Result<Event<K>, kube::runtime::watcher::Error>>,
    steps: fn(&K) -> Option<Shown>,
    sender: UnboundedSender<Seen>,
    begun: oneshot::Sender<()>,
) -> Result<()> {
    let (mut changes, mut begun) = (std::pin::pin!(changes.fuse()), Some(begun));
    while let Some(change) = changes.try_next().await? {
        match change {
            Event::Apply(object) | Event::InitApply(object) => {
                let Some((claim, steps)) = steps(&object) else { continue };
                for step in steps {
                    sender.send((claim.clone(), step, Instant::now()))?;
                }
            }
            // Without a receiver, the round has failed elsewhere.
            Event::InitDone => drop(begun.take().map(|begun| begun.send(()))),
            Event::Init | Event::Delete(_) => {}
        }
    }
    Ok(())
}

fn of_claim(claim: &PersistentVolumeClaim) -> Option<Shown> {
    let steps = [
        (Step::Chosen, claim.annotations().contains_key(CHOICE)),
        (Step::Touched, claim.annotations().contains_key(TOUCHED)),
        (Step::Bound, bindery_cluster::is_bound(claim)),
    ];
    Some((claim.name_any(), seen(steps)))
}

fn of_volume(volume: &PersistentVolume) -> Option<Shown> {
    let claim_ref = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let steps = [
        (Step::Reserved, volume.annotations().contains_key(RESERVED_FOR)),
        (Step::Taken, claim_ref.uid.is_some()),
    ];
    Some((claim_ref.name.clone()?, seen(steps)))
}

fn seen(steps: impl IntoIterator<Item = (Step, bool)>) -> Vec<Step> {
    steps.into_iter().filter(|(_, is_seen)| *is_seen).map(|(step, _)| step).collect()
}
