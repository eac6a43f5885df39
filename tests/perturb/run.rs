//! One run of a scenario.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bindery_sim::{Sim, SimOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, interval, timeout};

use crate::law;
use crate::network::Network;
use crate::plugin::Assets;
use crate::replica::Replica;
use crate::scenario::Scenario;
use crate::script::{Perturbation, REPLICAS};
use crate::timeline::{Point, Timeline};
use crate::user::User;

/// The second replica starts this much later, so that the first one leads.
const SECOND: Duration = Duration::from_secs(1);
/// A killed replica starts again after this time.
const RESTART: Duration = Duration::from_secs(5);
/// Longest time for the scenario: longer than anything that is disturbed lasts.
const SCENARIO_MAX: Duration = Duration::from_secs(3_600);
/// Without a write for this time, which is longer than any backoff, the cluster is at rest.
const STILL: Duration = Duration::from_secs(600);
/// The cluster rests within this time.
const REST_MAX: Duration = Duration::from_secs(7_200);

/// A run that broke no law and came to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Every request and frame, in order.
    pub(crate) points: Vec<Point>,
    /// How many points came until the last write.
    pub(crate) active: usize,
    /// How many objects are in each phase.
    pub(crate) end: BTreeMap<String, usize>,
}

/// Whether the state at rest is checked after a restore of etcd.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRestore {
    /// The replicas must notice the restore.
    Noticed,
    /// The replicas may miss the restore: it took back a few versions, and as many may have been written
    /// before a replica was connected again.
    Missed,
}

/// Runs a scenario.
///
/// # Errors
///
/// What was broken, and the points of the run.
pub(crate) fn run(
    scenario: &Scenario,
    perturbations: &[Perturbation],
    after_restore: AfterRestore,
) -> Result<Outcome, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without IO can be built").block_on(disturbed(
        scenario,
        perturbations,
        after_restore,
    ))
}

async fn disturbed(
    scenario: &Scenario,
    perturbations: &[Perturbation],
    after_restore: AfterRestore,
) -> Result<Outcome, String> {
    let sim = Sim::new(SimOptions::default());
    let (timeline, crashes) = Timeline::new(&sim, perturbations);
    let timeline = Arc::new(timeline);
    let cluster = Cluster {
        assets: Assets::new(&sim, &timeline),
        sim: sim.clone(),
        timeline: Arc::clone(&timeline),
        began: Instant::now(),
    };
    let replicas = tokio::spawn(cluster.clone().keep_replicas(crashes));
    let is_restored = perturbations.iter().any(|perturbation| perturbation.effect.is_restore());
    let user = User::new(&sim, &cluster.assets, &timeline, is_restored);
    let acted = timeout(SCENARIO_MAX, (scenario.act)(&user)).await;
    let rested = timeout(REST_MAX, cluster.rest()).await;
    replicas.abort();
    let mut violations = timeline.violations();
    if acted.is_err() && !is_restored {
        violations.push(format!("the scenario waits in vain: {}", user.waits_for()));
    }
    if rested.is_err() {
        violations.push("writes do not end".to_owned());
    }
    if !is_restored || after_restore == AfterRestore::Noticed {
        violations.extend(law::at_rest(&sim));
    }
    // A restore forgets volumes whose assets were made.
    let orphans = if is_restored { Vec::new() } else { cluster.assets.orphans() };
    violations.extend(orphans.into_iter().map(|name| format!("asset {name} has no volume")));
    violations.retain(|violation| !law::is_of(violation, scenario.broken_by_user));
    let points = timeline.points();
    if !violations.is_empty() {
        let points = points.iter().enumerate().take(400);
        let points: Vec<String> =
            points.map(|(number, point)| format!("{number} {} {}", point.replica, point.what)).collect();
        return Err(format!("{}\n--- points\n{}", violations.join("\n"), points.join("\n")));
    }
    let active = points.iter().rposition(|point| point.is_write).map_or(0, |last| last + 1);
    Ok(Outcome { active, end: end(&sim), points })
}

/// Objects by kind and phase.
fn end(sim: &Sim) -> BTreeMap<String, usize> {
    let mut end = BTreeMap::new();
    for resource in ["persistentvolumes", "persistentvolumeclaims"] {
        for object in sim.objects(resource) {
            let phase = object["status"]["phase"].as_str().unwrap_or("-").to_owned();
            *end.entry(format!("{resource} {phase}")).or_default() += 1;
        }
    }
    end
}

/// The parts of a run.
#[derive(Clone)]
struct Cluster {
    sim: Sim,
    timeline: Arc<Timeline>,
    assets: Assets,
    began: Instant,
}

impl Cluster {
    /// Keeps the replicas running; those that crash start again.
    async fn keep_replicas(self, mut crashes: UnboundedReceiver<usize>) {
        let mut starts = 0;
        let mut start = |replica| {
            let network = Network { replica, timeline: Arc::clone(&self.timeline), sim: self.sim.clone() };
            starts += 1;
            Some(Replica::start(&network, &self.assets, format!("replica-{replica}-{starts}"), self.began))
        };
        let mut replicas: [Option<Replica>; REPLICAS] = [None, None];
        for (replica, running) in replicas.iter_mut().enumerate() {
            *running = start(replica);
            crate::delay::pass(SECOND).await;
        }
        while let Some(replica) = crashes.recv().await {
            replicas[replica] = None;
            crate::delay::pass(RESTART).await;
            replicas[replica] = start(replica);
        }
    }

    /// Waits until nothing has been written for [`STILL`].
    async fn rest(&self) {
        let mut seconds = interval(Duration::from_secs(5));
        let (mut writes, mut since) = (self.timeline.writes(), Instant::now());
        while since.elapsed() < STILL {
            seconds.tick().await;
            let now = self.timeline.writes();
            if now != writes {
                (writes, since) = (now, Instant::now());
            }
        }
    }
}
