//! One run of a scenario.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use bindery_controller::Mode;
use bindery_policy::Chain;
use bindery_sim::Sim;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::delay::pass;
use crate::kubelet;
use crate::law;
use crate::network::Network;
use crate::plugin::Assets;
use crate::replica::Replica;
use crate::scenario::Scenario;
use crate::script::{self, Perturbation, REPLICAS, Script, may_leave_pods, replaces_a_leader, restores};
use crate::timeline::{Point, Timeline};
use crate::upstream;
use crate::user::User;

/// A killed replica starts again after this time.
const RESTART: Duration = Duration::from_secs(5);
/// Longest time for the scenario: longer than anything that is disturbed lasts.
const SCENARIO_MAX: Duration = Duration::from_secs(3_600);
/// Without a write for this time since nothing is down, isolated or held any more, the cluster is at rest. It
/// is longer than any pause: mode steer pauses for 300 s at most where another program undoes its writes.
const STILL: Duration = Duration::from_secs(330);
/// Points that a failure lists.
const LISTED_MAX: usize = 400;
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
    /// How often a replica has begun to lead.
    pub(crate) terms: usize,
}

/// What a run has broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The first law that was broken, without the write that broke it.
    pub(crate) law: String,
    /// All that was broken, and the points of the run.
    pub(crate) report: String,
}

impl Failure {
    fn new(violations: &[String], points: &[Point]) -> Self {
        let law = violations[0].rsplit(": ").next().unwrap_or_default().to_owned();
        Self { law, report: format!("{}\n--- points\n{}", violations.join("\n"), listed(points)) }
    }
}

/// Runs a scenario.
///
/// # Errors
///
/// A law is broken, or something panics: the user because the API server refuses what it does, or a replica.
pub(crate) fn run(scenario: &'static Scenario, perturbations: &[Perturbation]) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without IO can be built");
    note_panics();
    let disturbed = || runtime.block_on(disturbed(scenario, perturbations));
    let outcome = catch_unwind(AssertUnwindSafe(disturbed));
    outcome.ok().filter(|_| !PANICS.get()).unwrap_or_else(|| {
        let report = "the message of the panic is above".to_owned();
        Err(Failure { law: "it panics".to_owned(), report })
    })
}

thread_local! {
    /// Whether a task of the run on this thread has panicked. A task of a replica that panics ends without a
    /// word, and the other replica may do its work.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Notes panics on this thread from now on.
fn note_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.set(true);
            print(panic);
        }));
    });
    PANICS.set(false);
}

/// A script with a second disturbance, chosen by a number from the run with the first one. It may hit a
/// request by which a new leader goes on with what the earlier one had begun.
pub(crate) fn with_second(scenario: &'static Scenario, first: Perturbation, number: usize) -> Script {
    let mut perturbations = vec![first];
    // A run that fails by the first one alone is reported by its script.
    if let Ok(outcome) = run(scenario, &perturbations) {
        let seconds = script::all(&outcome.points, outcome.active);
        let second = seconds.get(number % seconds.len().max(1));
        perturbations.extend(second.map(|second| second.of_any_length(number)));
    }
    Script { scenario: scenario.name.to_owned(), perturbations }
}

async fn disturbed(scenario: &'static Scenario, perturbations: &[Perturbation]) -> Result<Outcome, Failure> {
    let timeline = Arc::new(Timeline::new(scenario, perturbations));
    let assets = Assets::new(&timeline);
    let cluster = Cluster {
        assets: assets.clone(),
        timeline: Arc::clone(&timeline),
        policies: Arc::new((scenario.policies)()),
        began: Instant::now(),
    };
    let mut tasks = JoinSet::new();
    for replica in 0..REPLICAS {
        tasks.spawn(cluster.clone().keep(replica));
    }
    tasks.spawn(upstream::keep(Arc::clone(&timeline), cluster.began));
    if scenario.has_recycler() {
        tasks.spawn(kubelet::keep(Arc::clone(&timeline)));
    }
    let is_restored = restores(perturbations);
    let user = User::new(&assets, &timeline);
    let acted = timeout(SCENARIO_MAX, (scenario.act)(&user)).await;
    let rested = timeout(REST_MAX, cluster.rest()).await;
    tasks.abort_all();
    let mut violations = timeline.violations();
    if acted.is_err() && !is_restored {
        violations.push(format!("the scenario waits in vain: {}", user.waits_for()));
    }
    if rested.is_err() {
        violations.push("writes do not end".to_owned());
    }
    // Replicas that cannot see a restore keep objects that it has taken back. In the other modes nothing
    // binds if the restore has ended the scenario while upstream's binder is off.
    let is_own = [scenario.mode, timeline.mode()] == [Mode::Own; 2];
    if !is_restored || is_own && timeline.is_restore_noticed() {
        violations.extend(law::at_rest(&timeline));
    }
    let mut orphans = assets.orphans();
    // A restore forgets volumes whose assets were made. A leader that dies leaves the asset of a claim that
    // needs it no more, and that had no volume yet, as upstream does.
    let may_leave = replaces_a_leader(perturbations);
    let is_needless = |name: &str| !timeline.had_volume(name) && !is_awaited(&timeline.sim, name);
    let may_stay = |name: &str| is_restored || may_leave && is_needless(name);
    orphans.retain(|name| !may_stay(name));
    violations.extend(orphans.into_iter().map(|name| format!("asset {name} has no volume")));
    if !is_restored {
        let emptied = assets.emptied().into_iter();
        violations.extend(emptied.map(|name| format!("volume {name} has lost its asset")));
        violations.extend(law::left_volumes(&timeline.sim));
    }
    if !is_restored && !may_leave_pods(perturbations, &timeline.points()) {
        violations.extend(law::left_pods(&timeline.sim));
    }
    let points = timeline.points();
    if !violations.is_empty() {
        return Err(Failure::new(&violations, &points));
    }
    let active = points.iter().rposition(|point| point.is_write).map_or(0, |last| last + 1);
    Ok(Outcome { active, end: end(&timeline.sim), terms: timeline.terms(), points })
}

/// The first points, numbered.
pub(crate) fn listed(points: &[Point]) -> String {
    let line = |(number, point): (usize, &Point)| format!("{number} {} {}\n", point.replica, point.what);
    points.iter().enumerate().take(LISTED_MAX).map(line).collect()
}

/// Whether a claim waits for the volume of that name, which its UID makes.
fn is_awaited(sim: &Sim, volume: &str) -> bool {
    let waits = |claim: &Value| {
        let uid = claim["metadata"]["uid"].as_str();
        uid.is_some_and(|uid| volume.ends_with(uid)) && claim["spec"]["volumeName"].is_null()
    };
    sim.map_objects("persistentvolumeclaims", waits).contains(&true)
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
    timeline: Arc<Timeline>,
    assets: Assets,
    policies: Arc<Chain>,
    began: Instant,
}

impl Cluster {
    /// Keeps a replica running: where it was killed, it starts again.
    async fn keep(self, replica: usize) {
        for start in 1.. {
            let mode = self.timeline.mode();
            let (timeline, is_killed) = (Arc::clone(&self.timeline), Arc::default());
            let network = Network { replica, mode, timeline, is_killed };
            let identity = format!("replica-{replica}-{start}");
            let running = Replica::start(&network, &self.assets, &self.policies, identity, self.began);
            self.timeline.runs(replica, running, mode);
            self.timeline.until_killed(replica).await;
            pass(RESTART).await;
        }
    }

    /// Waits until nothing has been disturbed or written for [`STILL`].
    async fn rest(&self) {
        let mut seconds = interval(Duration::from_secs(5));
        let (mut writes, mut since) = (self.timeline.writes(), Instant::now());
        while since.elapsed() < STILL {
            seconds.tick().await;
            let now = self.timeline.writes();
            if now != writes || self.timeline.is_disturbed() {
                (writes, since) = (now, Instant::now());
            }
        }
    }
}
