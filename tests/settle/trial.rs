//! One world, from its beginning until it has settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{Binder, Configuration, Migrations, Parts, Plugin, Settings};
use bindery_core::{Claim, Cluster, Decision, Engine, EngineFault, Key, Request, Stop, Uid, Volume};
use bindery_engine::DefaultEngine;
use bindery_kit::Choices;
use bindery_store::{Delivery, Kind, Object, Store};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::bytes::WorldBytes;
use crate::law::{self, Api, Assets, State, is_pair};
use crate::others;
use crate::plugin::MockPlugin;
use crate::policies;
use crate::reviews::{self, Predictions};
use crate::waiting;
use crate::world::{self, CLAIMS, Conditions, MIGRATED, NAMESPACES, VOLUMES};

/// After the last action everything is tried once more within this time, which is longer than any backoff.
const SETTLES_WITHIN: Duration = Duration::from_secs(15 * 60);
/// After that nothing is written for this time.
const STAYS_SETTLED: Duration = Duration::from_secs(10 * 60);

/// The result of a world that broke no law.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many writes were carried out.
    pub(crate) changes: usize,
    /// How many pairs were bound.
    pub(crate) bound: usize,
    /// How many volumes were deleted or scrubbed.
    pub(crate) reclaimed: usize,
    /// How many claims wait although they could have a volume without policies.
    pub(crate) held_back: usize,
    /// How many claims wait for a volume that only a policy that spreads rejects.
    pub(crate) crowded_out: usize,
    /// How many reclaim policies were set.
    pub(crate) policies_set: usize,
    /// How many decisions the guard refused.
    pub(crate) refusals: u64,
    /// The predictions of reviews for a calm world: [`Predictions::counts`].
    pub(crate) predicted: [usize; 5],
}

/// The most decisions in one world; a world that needs more would never end.
const DECISIONS_MAX: usize = 3_000;

/// The most decisions of a calm world that are made again because another one has changed something.
const AGAIN_MAX: u64 = 40;

/// The default engine, for a limited number of decisions.
struct LimitedEngine {
    api: Api,
    decisions: AtomicUsize,
}

impl Engine for LimitedEngine {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        if self.decisions.load(Ordering::Relaxed) > DECISIONS_MAX {
            return Err(EngineFault::Exhausted("decisions"));
        }
        let decided = DefaultEngine.decide(request, cluster);
        // The binder answers such a question, and has the engine decide again.
        let asks = matches!(&decided, Err(EngineFault::Stopped(Stop::LiveRead(_) | Stop::Judge)));
        if !asks && self.decisions.fetch_add(1, Ordering::Relaxed) == DECISIONS_MAX {
            let violation = format!("the binder decides without end, at last {request:?}");
            self.api.objects().extra.violations.push(violation);
        }
        decided
    }

    fn digest(&self) -> &str {
        DefaultEngine.digest()
    }
}

/// Lets a world settle.
///
/// # Errors
///
/// It breaks the law, does not settle, or settles with something left to do. The text reports it.
pub(crate) fn run(bytes: &WorldBytes) -> Result<Outcome, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without IO can be built").block_on(settle(bytes))
}

async fn settle(bytes: &WorldBytes) -> Result<Outcome, String> {
    let is_calm = bytes.actions.is_empty();
    let (classes, conditions) = world::conditions(bytes);
    let api = Api::with(law::Facts {
        classes: classes.into_iter().map(|class| (class.name.clone(), class)).collect(),
        calm: is_calm,
        assets: Assets::default(),
        policies: policies::policies(&bytes.policies),
        namespaces: Vec::new(),
        class_tiers: Vec::new(),
        violations: Vec::new(),
    });
    api.set_yields(conditions.yields);
    api.change(|state| populate(state, bytes));
    let watches = Watches::of(&api);
    let pairs = pairs(&api.objects());
    let beginning = {
        let state = api.objects();
        (state.volumes.clone(), state.claims.clone())
    };
    let report = |what: &str, settled: usize| {
        let state = api.objects();
        let (requests, policies) = (law::requests(&state), &state.extra.policies);
        format!(
            "{what}\n--- writes, of which the first {settled} changes came in time\n{requests}\
             --- policies\n{policies:#?}\n--- at the beginning\n{beginning:#?}"
        )
    };

    let binder = binder(&api, conditions, false);
    deliver_lists(&binder, &api);
    let predictions = foretold(&binder, &api, conditions).await?;
    let mut leading = Leading::begin(&binder);
    let watching = tokio::spawn(watch(Arc::clone(&binder), api.clone(), watches, conditions.lag));
    for action in &bytes.actions {
        if others::act(&api, action).await {
            leading.end().await.map_err(|error| report(&error, 0))?;
            leading = Leading::begin(&binder);
        }
    }
    api.objects().faults.clear();
    let settled =
        until_settled(&api).await.map_err(|settled| report("the world does not settle", settled))?;
    leading.end().await.map_err(|error| report(&error, settled))?;
    watching.abort();

    if !api.objects().extra.policies.skips_at_times() {
        start_anew(&api, conditions).await;
    }
    let state = api.objects();
    let mut violations =
        [state.extra.violations.clone(), waiting::left_waiting(&state), law::left_exposed(&state)].concat();
    violations.extend(reviews::refuted(&state, &predictions));
    if law::changes(&state) != settled {
        violations.insert(0, "something was left to do, which a binder that starts anew does".to_owned());
    }
    violations.extend(disagreement(&binder, &state));
    let outcome = Outcome {
        changes: settled,
        bound: self::pairs(&state).difference(&pairs).count(),
        reclaimed: state.extra.assets.deleted.len() + state.extra.assets.recycled.len(),
        held_back: waiting::held_back(&state),
        crowded_out: waiting::crowded_out(&state),
        policies_set: law::policies_set(&state),
        refusals: binder.metrics().refusals.get(),
        predicted: predictions.counts(),
    };
    drop(state);
    if violations.is_empty() { Ok(outcome) } else { Err(report(&violations.join("\n"), settled)) }
}

/// Engine and guard are told the same in a calm world, unless a policy fails in between: nothing is refused,
/// and no decision is made again for ever.
fn disagreement(binder: &Binder<Api>, state: &State) -> Option<String> {
    let (refusals, again) = (binder.metrics().refusals.get(), binder.metrics().stale.get());
    let must_agree = state.extra.calm && !state.extra.policies.skips_at_times();
    let disagree = must_agree && (refusals > 0 || again > AGAIN_MAX);
    disagree.then(|| format!("{refusals} decisions are refused, and {again} are made again"))
}

/// What reviews foretell of a calm world. Another binder makes them where policies may fail, so that they
/// fail in decisions.
async fn foretold(
    binder: &Arc<Binder<Api>>,
    api: &Api,
    conditions: Conditions,
) -> Result<Predictions, String> {
    let (is_calm, may_fail) = {
        let facts = &api.objects().extra;
        (facts.calm, !facts.policies.matchers.is_empty())
    };
    if !is_calm {
        return Ok(Predictions::default());
    }
    if !may_fail {
        return reviews::predict(binder, api).await;
    }
    let reviewer = self::binder(api, conditions, true);
    deliver_lists(&reviewer, api);
    reviews::predict(&reviewer, api).await
}

/// Events for each watch, in order.
struct Watches {
    volumes: UnboundedReceiver<Delivery>,
    claims: UnboundedReceiver<Delivery>,
}

impl Watches {
    fn of(api: &Api) -> Self {
        let (to_volumes, volumes) = unbounded_channel();
        let (to_claims, claims) = unbounded_channel();
        api.on_event(move |event| {
            // The receivers are gone once the world has ended.
            let _ = match event.kind() {
                Kind::Volume => to_volumes.send(event),
                _ => to_claims.send(event),
            };
        });
        Self { volumes, claims }
    }
}

/// The binder's loop, while it has the Lease.
struct Leading {
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

impl Leading {
    fn begin(binder: &Arc<Binder<Api>>) -> Self {
        let shutdown = CancellationToken::new();
        Self { running: tokio::spawn(Arc::clone(binder).run(shutdown.clone())), shutdown }
    }

    async fn end(self) -> Result<(), String> {
        self.shutdown.cancel();
        self.running.await.map_err(|error| format!("the loop ended: {error}"))
    }
}

/// Waits for [`SETTLES_WITHIN`] and then for [`STAYS_SETTLED`]. Returns the number of writes, or an error if
/// another one follows within the latter.
async fn until_settled(api: &Api) -> Result<usize, usize> {
    let (began, mut settled) = (Instant::now(), law::changes(&api.objects()));
    let late_write = async {
        loop {
            api.written().await;
            if began.elapsed() > SETTLES_WITHIN {
                return;
            }
            settled = law::changes(&api.objects());
        }
    };
    match timeout(SETTLES_WITHIN + STAYS_SETTLED, late_write).await {
        Ok(()) => Err(settled),
        Err(_) => Ok(settled),
    }
}

/// The complete pairs, by the UIDs of claim and volume.
fn pairs(state: &State) -> BTreeSet<(Uid, Uid)> {
    let meets = |claim: &Arc<Claim>| {
        let volume = state.volumes.get(claim.volume_name.as_ref()?)?;
        is_pair(claim, volume).then(|| (claim.uid.clone(), volume.uid.clone()))
    };
    state.claims.values().filter_map(meets).collect()
}

/// Creates the objects of the beginning.
fn populate(state: &mut State, bytes: &WorldBytes) {
    state.protection_lasts = Duration::ZERO;
    state.inspect = law::inspect;
    let mut claims: Vec<_> =
        CLAIMS.iter().zip(&bytes.claims).map(|(name, bytes)| world::claim(name, bytes)).collect();
    let mut volumes: Vec<_> =
        VOLUMES.iter().zip(&bytes.volumes).map(|(name, bytes)| world::volume(name, bytes)).collect();
    for ((claim, volume), bytes) in claims.iter_mut().zip(&mut volumes).zip(&bytes.volumes) {
        world::pair(&mut Choices::new(&bytes[22..]), claim, volume);
    }
    let c = &mut Choices::new(&bytes.labels);
    for name in NAMESPACES {
        state.extra.namespaces.push((name.into(), world::labels(c)));
    }
    let classes = state.extra.classes.values();
    state.extra.class_tiers =
        classes.map(|class| (class.name.clone(), world::tier_of_class(class))).collect();
    if !bytes.policies.is_empty() {
        claims.iter_mut().for_each(|claim| world::label(c, claim));
        volumes.iter_mut().for_each(|volume| world::note(c, volume));
    }
    volumes.into_iter().for_each(|volume| _ = state.put_volume(volume));
    claims.into_iter().for_each(|claim| _ = state.put_claim(claim));
}

fn binder(api: &Api, conditions: Conditions, is_mended: bool) -> Arc<Binder<Api>> {
    let plugin: Arc<dyn Plugin<Volume>> = Arc::new(MockPlugin::new(api, conditions.plugin_failures));
    let migrated = (MIGRATED.0.into(), MIGRATED.1.into());
    let binder = Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: api.clone(),
        engine: Arc::new(LimitedEngine { api: api.clone(), decisions: AtomicUsize::new(0) }),
        configuration: Configuration {
            plugins: Arc::new([plugin].into_iter().collect()),
            migrations: Migrations::Table([migrated].into()),
            dynamic_provisioning: true,
            offer_again: false,
            policies: Arc::new(api.objects().extra.policies.chain(is_mended)),
            shadows: Vec::new(),
        },
        settings: Settings::default(),
        journal: None,
    });
    Arc::new(binder)
}

/// Delivers a complete list of each kind.
fn deliver_lists(binder: &Binder<Api>, api: &Api) {
    for kind in Kind::ALL {
        let state = api.objects();
        let objects: Vec<Object> = match kind {
            Kind::Volume => state.volumes.values().cloned().map(Object::from).collect(),
            Kind::Claim => state.claims.values().cloned().map(Object::from).collect(),
            Kind::Class => state.extra.classes.values().cloned().map(Object::from).collect(),
            Kind::Pod => Vec::new(),
            Kind::Namespace => {
                let namespaces: BTreeMap<_, _> = state.extra.namespaces.iter().cloned().collect();
                namespaces.into_iter().map(|(name, labels)| Object::Namespace(name, labels)).collect()
            }
            Kind::Node => vec![Object::Node("node".into())],
        };
        drop(state);
        binder.intake().deliver(Delivery::listed(kind, objects, "1"));
    }
}

/// Delivers events, and lists of volumes that the binder requests, each after its lag.
async fn watch(binder: Arc<Binder<Api>>, api: Api, mut watches: Watches, lag: [u64; 2]) {
    let [volume_lag, claim_lag] = lag.map(Duration::from_millis);
    let freshness = binder.intake().freshness();
    let volumes = async {
        loop {
            tokio::select! {
                biased;
                () = freshness.until_list_wanted(Kind::Volume) => {
                    binder.intake().list_begins(Kind::Volume);
                    tokio::time::sleep(volume_lag).await;
                    // The list has what these events report.
                    while watches.volumes.try_recv().is_ok() {}
                    let volumes = api.objects().volumes.clone();
                    binder.intake().deliver(Delivery::listed(Kind::Volume, volumes.into_values(), ""));
                }
                Some(event) = watches.volumes.recv() => {
                    tokio::time::sleep(volume_lag).await;
                    binder.intake().deliver(event);
                }
            }
        }
    };
    let claims = async {
        while let Some(event) = watches.claims.recv().await {
            tokio::time::sleep(claim_lag).await;
            binder.intake().deliver(event);
        }
    };
    tokio::join!(volumes, claims);
}

/// Has a new binder, whose policies do not fail, decide every object once.
async fn start_anew(api: &Api, conditions: Conditions) {
    let binder = binder(api, conditions, true);
    let keys: Vec<Key> = {
        let state = api.objects();
        let volumes = state.volumes.keys().cloned().map(Key::Volume);
        state.claims.keys().cloned().map(Key::Claim).chain(volumes).collect()
    };
    deliver_lists(&binder, api);
    for key in keys {
        for operation in binder.sync(&key).await.operations {
            // An operation that failed before fails again; only the writes matter.
            let _ = binder.perform(operation).await;
        }
    }
}
