//! The points of a run, and the disturbances that begin at them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::Mode;
use bindery_sim::{Sim, SimOptions, Snapshot};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::delay::{pass, pass_until};
use crate::link::{Link, WatchFault};
use crate::replica::Replica;
use crate::scenario::Scenario;
use crate::script::{Effect, Perturbation, REPLICAS, UPSTREAM, delays, restores};

/// How long a replica is isolated: longer than its Lease lasts, and longer than its requests may take.
const ISOLATED: Duration = Duration::from_secs(150);

/// How long the API server is down for a restore of etcd.
const DOWN: Duration = Duration::from_secs(5);
/// How long the replicas take after that to open their watches again.
const NOTICED: Duration = Duration::from_secs(10);

/// A request, or a frame of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The replica that sent or received it, or upstream's binder.
    pub(crate) replica: usize,
    /// The method and path of a request, or the resource of a frame.
    pub(crate) what: String,
    /// Whether it is a request to write something other than the Lease or an event.
    pub(crate) is_write: bool,
    /// The kind of a frame: index of [`KINDS`](crate::script::KINDS). `None` for a request.
    pub(crate) frame: Option<usize>,
}

impl Point {
    /// Whether a replica asks whether it has a right.
    pub(crate) fn is_review(&self) -> bool {
        self.what.ends_with("/selfsubjectaccessreviews")
    }
}

/// The points of a run, and what is disturbed.
pub(crate) struct Timeline {
    /// The API server.
    pub(crate) sim: Sim,
    pub(crate) scenario: &'static Scenario,
    /// What a later restore brings back, by the number of the point at which it was saved.
    saved: Mutex<BTreeMap<usize, Snapshot>>,
    perturbations: Vec<Perturbation>,
    points: Mutex<Vec<Point>>,
    /// The number of points.
    reached: watch::Sender<usize>,
    links: [Link; UPSTREAM + 1],
    /// The API server answers nothing until then.
    down_until: Mutex<Option<Instant>>,
    /// The replicas that run, and their modes.
    running: Mutex<[Option<(Replica, Mode)>; REPLICAS]>,
    /// Told when a replica was killed.
    kills: [Notify; REPLICAS],
    /// The mode in which replicas start.
    mode: Mutex<Mode>,
    /// How often a replica has begun to lead.
    terms: AtomicUsize,
    /// Whether upstream's binder is on.
    pub(crate) upstream: watch::Sender<bool>,
    /// Names of all volumes that there ever were.
    volumes: Mutex<BTreeSet<String>>,
    /// Volumes that were scrubbed, with the UID of the claim that had left them.
    scrubbed: Mutex<BTreeSet<(String, String)>>,
    violations: Mutex<Vec<String>>,
}

impl Timeline {
    pub(crate) fn new(scenario: &'static Scenario, perturbations: &[Perturbation]) -> Self {
        Self {
            sim: Sim::new(SimOptions::default()),
            scenario,
            saved: Mutex::default(),
            perturbations: perturbations.to_vec(),
            points: Mutex::default(),
            reached: watch::Sender::new(0),
            links: std::array::from_fn(|_| Link::new()),
            down_until: Mutex::default(),
            running: Mutex::default(),
            kills: Default::default(),
            mode: Mutex::new(scenario.mode),
            terms: AtomicUsize::default(),
            upstream: watch::Sender::new(scenario.mode != Mode::Own),
            volumes: Mutex::default(),
            scrubbed: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// Adds a point. Returns its number, and the disturbance of that request.
    pub(crate) fn add(&self, point: Point) -> (usize, Option<Effect>) {
        let number = {
            let mut points = self.points.lock();
            points.push(point);
            points.len() - 1
        };
        self.save(number);
        let effects = self.perturbations.iter().filter(|perturbation| perturbation.at == number);
        let (of_request, others): (Vec<Effect>, Vec<Effect>) =
            effects.map(|perturbation| perturbation.effect).partition(|effect| effect.is_of_request());
        others.into_iter().for_each(|effect| self.begin(effect, number));
        self.reached.send_replace(number + 1);
        (number, of_request.first().copied())
    }

    /// Saves what a later restore brings back.
    fn save(&self, number: usize) {
        let is_restored = |perturbation: &Perturbation| match perturbation.effect {
            Effect::Restore { points } => perturbation.at.saturating_sub(points) == number,
            _ => false,
        };
        if self.perturbations.iter().any(is_restored) {
            self.saved.lock().insert(number, self.sim.snapshot());
        }
    }

    fn restore(&self, number: usize) {
        let saved = self.saved.lock();
        let snapshot = saved.get(&number).expect("it was saved when the point came");
        self.sim.restore(snapshot);
        *self.down_until.lock() = Some(Instant::now() + DOWN);
        self.links.iter().for_each(|link| link.restored(self.sim.revision()));
    }

    /// Notes the versions of a frame that a replica receives.
    pub(crate) fn received(&self, replica: usize, kind: usize, frame: &[u8]) {
        if self.is_restored() {
            self.links[replica].received(kind, frame);
        }
    }

    /// Notes a version that the answer to a request has told a replica.
    pub(crate) fn answered(&self, replica: usize, kind: usize, version: u64) {
        self.links[replica].answered(kind, version, self.sim.revision());
    }

    /// Notes that a replica lists a kind, so that it learns the current version.
    pub(crate) fn listed(&self, replica: usize, kind: usize) {
        self.links[replica].listed(kind, self.sim.revision());
    }

    /// Whether a replica has not noticed a restore that took back a version which it had received.
    pub(crate) fn misses_restore(&self, replica: usize) -> bool {
        self.links[replica].misses_restore()
    }

    /// Whether every replica has noticed a restore, or had received nothing that it took back.
    pub(crate) fn is_restore_noticed(&self) -> bool {
        !(0..REPLICAS).any(|replica| self.misses_restore(replica))
    }

    fn begin(&self, effect: Effect, number: usize) {
        match effect {
            Effect::Hold { replica, kind, points } => {
                *self.links[replica].kinds[kind].held_until.lock() = number + points;
            }
            Effect::Cut { replica, kind } => self.links[replica].kinds[kind].cut(),
            Effect::Expire { replica, kind } => self.links[replica].kinds[kind].fail(WatchFault::Expired),
            Effect::Mute { replica, kind } => self.links[replica].kinds[kind].fail(WatchFault::Silent),
            Effect::Crash { replica } => self.kill(replica),
            Effect::Restore { points } => self.restore(number.saturating_sub(points)),
            Effect::Isolate { replica } => {
                *self.links[replica].isolated_until.lock() = Some(Instant::now() + ISOLATED);
            }
            // The network acts on them.
            effect => debug_assert!(effect.is_of_request()),
        }
    }

    /// Waits until a number of points has come.
    pub(crate) async fn until(&self, points: usize) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as this, so waiting cannot fail.
        let _ = reached.wait_for(|reached| *reached >= points).await;
    }

    /// Waits for the next point.
    pub(crate) async fn until_next_point(&self) {
        let points = *self.reached.borrow();
        self.until(points + 1).await;
    }

    /// Whether a restore takes back what the user does.
    pub(crate) fn is_restored(&self) -> bool {
        restores(&self.perturbations)
    }

    /// Whether a replica may learn late of objects of a resource.
    pub(crate) fn delays(&self, resource: &str) -> bool {
        delays(&self.perturbations, resource)
    }

    /// Whether the API server is down.
    pub(crate) fn is_down(&self) -> bool {
        self.down_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Whether something is down, isolated or held.
    pub(crate) fn is_disturbed(&self) -> bool {
        let (points, now) = (self.points.lock().len(), Instant::now());
        let is_isolated = |link: &Link| link.isolated_until.lock().is_some_and(|until| now < until);
        let is_held = |link: &Link| link.kinds.iter().any(|kind| points < *kind.held_until.lock());
        self.is_down() || self.links.iter().any(|link| is_isolated(link) || is_held(link))
    }

    /// Waits until the API server is up, and the replicas have noticed the restore. They cannot notice it if
    /// more versions are given out before than it took back.
    pub(crate) async fn until_up(&self) {
        let until = *self.down_until.lock();
        if let Some(until) = until {
            pass_until(until + NOTICED).await;
        }
    }

    /// Waits until something can pass to or from a replica.
    pub(crate) async fn until_connected(&self, replica: usize) {
        let until = *self.links[replica].isolated_until.lock();
        if let Some(until) = until {
            pass_until(until).await;
        }
    }

    /// Waits until a frame of a kind can pass to a replica.
    pub(crate) async fn until_passed(&self, replica: usize, kind: usize) {
        self.until_connected(replica).await;
        let until = *self.links[replica].kinds[kind].held_until.lock();
        self.until(until).await;
    }

    /// Tells when the watches of a kind end.
    pub(crate) fn cuts(&self, replica: usize, kind: usize) -> watch::Receiver<usize> {
        self.links[replica].kinds[kind].cuts.subscribe()
    }

    /// What happens to a watch that is opened. It happens once.
    pub(crate) fn take_fault(
        &self,
        replica: usize,
        kind: usize,
        is_from_version: bool,
    ) -> Option<WatchFault> {
        let mut fault = self.links[replica].kinds[kind].fault.lock();
        fault.take_if(|fault| is_from_version || *fault == WatchFault::Silent)
    }

    /// Kills a replica, if it runs. What it has sent arrives.
    fn kill(&self, replica: usize) {
        if self.running.lock()[replica].take().is_some() {
            self.kills[replica].notify_one();
        }
    }

    /// Waits until a replica is killed.
    pub(crate) async fn until_killed(&self, replica: usize) {
        self.kills[replica].notified().await;
    }

    /// The mode in which replicas start.
    pub(crate) fn mode(&self) -> Mode {
        *self.mode.lock()
    }

    /// Notes that a replica runs.
    pub(crate) fn runs(&self, number: usize, replica: Replica, mode: Mode) {
        self.links[number].forget();
        self.running.lock()[number] = Some((replica, mode));
    }

    /// Has replicas start in a mode from now on, and those that run in another one start anew, one after the
    /// other.
    pub(crate) async fn switch(&self, mode: Mode) {
        *self.mode.lock() = mode;
        for replica in 0..REPLICAS {
            let running = || self.running.lock()[replica].as_ref().map(|(_, mode)| *mode);
            while running() != Some(mode) {
                self.kill(replica);
                pass(Duration::from_secs(1)).await;
            }
        }
    }

    /// Notes that a replica begins to lead.
    pub(crate) fn begins_term(&self) {
        self.terms.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a replica has begun to lead.
    pub(crate) fn terms(&self) -> usize {
        self.terms.load(Ordering::Relaxed)
    }

    /// The points that have come.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.points.lock().clone()
    }

    /// The number of writes among the points.
    pub(crate) fn writes(&self) -> usize {
        self.points.lock().iter().filter(|point| point.is_write).count()
    }

    /// Notes the names of all volumes, after a write.
    pub(crate) fn note_volumes(&self) {
        let name = |volume: &Value| volume["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.volumes.lock().extend(self.sim.map_objects("persistentvolumes", name));
    }

    /// Whether there ever was a volume of that name.
    pub(crate) fn had_volume(&self, name: &str) -> bool {
        self.volumes.lock().contains(name)
    }

    /// Notes that a volume was scrubbed.
    pub(crate) fn note_scrub(&self, volume: &Value) {
        self.scrubbed.lock().insert(tenure(volume));
    }

    /// Whether a volume was scrubbed while it had its present claimRef.
    pub(crate) fn is_scrubbed(&self, volume: &Value) -> bool {
        self.scrubbed.lock().contains(&tenure(volume))
    }

    /// Notes that a law is broken, by the write that breaks it.
    pub(crate) fn violated(&self, write: &str, violation: &str) {
        let mut violations = self.violations.lock();
        // What one write breaks stays broken at the next ones.
        if !violations.iter().any(|known| known.ends_with(violation)) {
            violations.push(format!("{write}: {violation}"));
        }
    }

    /// The violations that were noted.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }
}

/// The name of a volume, and the UID of the claim that has it or has left it.
fn tenure(volume: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&volume["metadata"]["name"]), text(&volume["spec"]["claimRef"]["uid"]))
}
