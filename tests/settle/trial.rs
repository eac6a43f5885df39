//! One world, from its beginning until it has settled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_controller::{Binder, Facts, Key, Migrations, Parts, Plugin, Settings};
use bindery_core::{
    Claim, ClaimKey, Cluster, Decision, Engine, EngineFault, Request, Selector, Text, Uid, Volume,
};
use bindery_engine::DefaultEngine;
use bindery_store::{Delivery, Kind, Object, ObjectKey, Store};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::door;
use crate::genes::{Choices, Genes};
use crate::law::{is_pair, may_meet};
use crate::others;
use crate::plugin::MockPlugin;
use crate::server::{Inner, Server, Watches};
use crate::world::{self, CLAIMS, MIGRATED, VOLUMES};

/// After the last deed everything is tried once more within this time: it is longer than any backoff.
const SETTLES_WITHIN: Duration = Duration::from_secs(15 * 60);
/// And then nothing is written any more for this time.
const STAYS_SETTLED: Duration = Duration::from_secs(10 * 60);

/// What happened in a world that broke no law.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    /// Writes that were carried out.
    pub(crate) changes: usize,
    /// Pairs at the end that were none at the beginning.
    pub(crate) bound: usize,
    /// Volumes that were deleted or scrubbed.
    pub(crate) reclaimed: usize,
    /// Decisions that the guard refused.
    pub(crate) refusals: u64,
    /// What the door foretold of a calm world: [`door::Foretold::counts`].
    pub(crate) foretold: [usize; 4],
}

/// Decisions of one world; more show that it would never end.
const DECISIONS_MAX: usize = 3_000;

/// The default engine, which tires.
struct Tiring {
    server: Server,
    decisions: AtomicUsize,
}

impl Engine for Tiring {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        let before = self.decisions.fetch_add(1, Ordering::Relaxed);
        if before == DECISIONS_MAX {
            self.server.inner().accuse(format!("the binder decides without end, at last {request:?}"));
        }
        if before >= DECISIONS_MAX {
            return Err(EngineFault::Exhausted("tired"));
        }
        DefaultEngine.decide(request, cluster)
    }

    fn digest(&self) -> &str {
        DefaultEngine.digest()
    }
}

/// Lets a world settle.
///
/// # Errors
///
/// It breaks the law, does not settle, or settles though there is something to do: a report.
pub(crate) fn run(genes: &Genes) -> Result<Story, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without IO can be built").block_on(settle(genes))
}

async fn settle(genes: &Genes) -> Result<Story, String> {
    let (classes, weather) = world::surroundings(genes);
    let (server, mut watches) = Server::new(classes, weather, genes.deeds.is_empty());
    populate(&mut server.inner(), genes);
    let pairs = pairs(&server.inner());
    let beginning = {
        let inner = server.inner();
        (inner.volumes.clone(), inner.claims.clone())
    };
    let report = |what: &str, first: usize| {
        let inner = server.inner();
        let all = inner.requests();
        format!(
            "{what}\n--- writes, of which the first {first} changes came in time\n{all}--- at the beginning\n{beginning:#?}"
        )
    };

    let binder = binder(&server);
    while watches.volumes.try_recv().is_ok() {}
    while watches.claims.try_recv().is_ok() {}
    deliver_lists(&binder, &server);
    let foretold =
        if genes.deeds.is_empty() { door::ask(&binder, &server).await? } else { door::Foretold::default() };
    let mut leading = Leading::begin(&binder);
    let watching = tokio::spawn(watch(Arc::clone(&binder), server.clone(), watches, weather.lag));
    for deed in &genes.deeds {
        if others::act(&server, deed).await {
            leading.end().await.map_err(|error| report(&error, 0))?;
            leading = Leading::begin(&binder);
        }
    }
    server.inner().faults.clear();
    let settled =
        until_settled(&server).await.map_err(|settled| report("the world does not settle", settled))?;
    leading.end().await.map_err(|error| report(&error, settled))?;
    watching.abort();

    start_anew(&server).await;
    if server.inner().changes() != settled {
        return Err(report("something was left to do, which a binder that starts anew does", settled));
    }
    let inner = server.inner();
    let violations =
        [inner.violations().to_vec(), left_waiting(&inner), door::belied(&inner, &foretold)].concat();
    let (bound, reclaimed) = (
        self::pairs(&inner).difference(&pairs).count(),
        inner.assets.deleted.len() + inner.assets.recycled.len(),
    );
    drop(inner);
    if !violations.is_empty() {
        return Err(report(&violations.join("\n"), settled));
    }
    let refusals = binder.metrics().refusals.get();
    Ok(Story { changes: settled, bound, reclaimed, refusals, foretold: foretold.counts() })
}

/// The binder's loop, while it has the Lease.
struct Leading {
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

impl Leading {
    fn begin(binder: &Arc<Binder<Server>>) -> Self {
        let shutdown = CancellationToken::new();
        Self { running: tokio::spawn(Arc::clone(binder).run(shutdown.clone())), shutdown }
    }

    async fn end(self) -> Result<(), String> {
        self.shutdown.cancel();
        self.running.await.map_err(|error| format!("the loop ended: {error}"))
    }
}

/// Waits for [`SETTLES_WITHIN`] and then for [`STAYS_SETTLED`]: how many writes there were by then, or, as
/// soon as another one comes in the latter, how many there were before it.
async fn until_settled(server: &Server) -> Result<usize, usize> {
    let (began, mut settled) = (Instant::now(), server.inner().changes());
    let comes_late = async {
        loop {
            server.changed().await;
            if began.elapsed() > SETTLES_WITHIN {
                return;
            }
            settled = server.inner().changes();
        }
    };
    match timeout(SETTLES_WITHIN + STAYS_SETTLED, comes_late).await {
        Ok(()) => Err(settled),
        Err(_) => Ok(settled),
    }
}

/// The complete pairs, by the UIDs of claim and volume.
fn pairs(server: &Inner) -> BTreeSet<(Uid, Uid)> {
    let meets = |claim: &Arc<Claim>| {
        let volume = server.volumes.get(claim.volume_name.as_ref()?)?;
        is_pair(claim, volume).then(|| (claim.uid.clone(), volume.uid.clone()))
    };
    server.claims.values().filter_map(meets).collect()
}

/// Puts the objects of the beginning.
fn populate(server: &mut Inner, genes: &Genes) {
    let mut claims: Vec<_> =
        CLAIMS.iter().zip(&genes.claims).map(|(name, bytes)| world::claim(name, bytes)).collect();
    let mut volumes: Vec<_> =
        VOLUMES.iter().zip(&genes.volumes).map(|(name, bytes)| world::volume(name, bytes)).collect();
    for ((claim, volume), bytes) in claims.iter_mut().zip(&mut volumes).zip(&genes.volumes) {
        world::pair(&mut Choices::new(&bytes[22..]), claim, volume);
    }
    volumes.into_iter().for_each(|volume| _ = server.put_volume(volume));
    claims.into_iter().for_each(|claim| _ = server.put_claim(claim));
}

fn binder(server: &Server) -> Arc<Binder<Server>> {
    let plugin: Arc<dyn Plugin<Volume>> = Arc::new(MockPlugin::new(server));
    let migrated = (MIGRATED.0.into(), MIGRATED.1.into());
    let binder = Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: server.clone(),
        engine: Arc::new(Tiring { server: server.clone(), decisions: AtomicUsize::new(0) }),
        facts: Facts {
            plugins: Arc::new([plugin].into_iter().collect()),
            migrations: Migrations::Table([migrated].into()),
            dynamic_provisioning: true,
            offer_again: false,
        },
        settings: Settings::default(),
        journal: None,
    });
    Arc::new(binder)
}

/// Delivers a complete list of each kind.
fn deliver_lists(binder: &Binder<Server>, server: &Server) {
    for kind in Kind::ALL {
        let inner = server.inner();
        let objects: Vec<Object> = match kind {
            Kind::Volume => inner.volumes.values().cloned().map(Object::from).collect(),
            Kind::Claim => inner.claims.values().cloned().map(Object::from).collect(),
            Kind::Class => inner.classes.values().cloned().map(Object::from).collect(),
            Kind::Pod => Vec::new(),
            Kind::Node => vec![Object::Node("node".into())],
        };
        drop(inner);
        binder.intake().deliver(Delivery::listed(kind, objects, "1"));
    }
}

/// Delivers what changes, and the list of volumes where one is wanted, as late as the weather says.
async fn watch(binder: Arc<Binder<Server>>, server: Server, mut watches: Watches, lag: [u64; 2]) {
    let [volume_lag, claim_lag] = lag.map(Duration::from_millis);
    let freshness = binder.intake().freshness();
    let volumes = async {
        loop {
            tokio::select! {
                biased;
                () = freshness.until_list_wanted(Kind::Volume) => {
                    binder.intake().list_begins(Kind::Volume);
                    tokio::time::sleep(volume_lag).await;
                    // The list has what the watch would have told by now.
                    while watches.volumes.try_recv().is_ok() {}
                    let volumes = server.inner().volumes.clone();
                    binder.intake().deliver(Delivery::listed(Kind::Volume, volumes.into_values(), ""));
                }
                Some((name, volume)) = watches.volumes.recv() => {
                    tokio::time::sleep(volume_lag).await;
                    deliver_volume(&binder, name, volume);
                }
            }
        }
    };
    let claims = async {
        while let Some((key, claim)) = watches.claims.recv().await {
            tokio::time::sleep(claim_lag).await;
            deliver_claim(&binder, key, claim);
        }
    };
    tokio::join!(volumes, claims);
}

fn deliver_volume(binder: &Binder<Server>, name: Text, volume: Option<Arc<Volume>>) {
    binder.intake().deliver(match volume {
        Some(volume) => Delivery::applied(volume),
        None => Delivery::Gone(ObjectKey::Volume(name)),
    });
}

fn deliver_claim(binder: &Binder<Server>, key: ClaimKey, claim: Option<Arc<Claim>>) {
    binder.intake().deliver(match claim {
        Some(claim) => Delivery::applied(claim),
        None => Delivery::Gone(ObjectKey::Claim(key)),
    });
}

/// Has a binder that knows nothing of before decide every object once.
async fn start_anew(server: &Server) {
    let binder = binder(server);
    let keys: Vec<Key> = {
        let inner = server.inner();
        let volumes = inner.volumes.keys().cloned().map(Key::Volume);
        inner.claims.keys().cloned().map(Key::Claim).chain(volumes).collect()
    };
    deliver_lists(&binder, server);
    for key in keys {
        for operation in binder.sync(&key).await.operations {
            // It fails again where it failed before; what counts is that nothing is written.
            let _ = binder.perform(operation).await;
        }
    }
}

/// Claims that wait though there is a volume for them.
fn left_waiting(server: &Inner) -> Vec<String> {
    // Upstream reports an invalid selector, or a class without binding mode, before it looks at any volume.
    let is_faulty = |claim: &Claim| {
        let class = claim.class.as_ref().and_then(|name| server.classes.get(name));
        matches!(claim.selector, Some(Selector::Invalid(_)))
            || class.is_some_and(|class| class.binding_mode.is_none())
    };
    let waiting = server.claims.values().filter(|claim| {
        claim.volume_name.is_none() && !claim.annotations.bind_completed && !is_faulty(claim)
    });
    waiting
        .filter_map(|claim| {
            let fits = |volume: &&Arc<Volume>| may_meet(&server.classes, claim, volume);
            let volume = server.volumes.values().find(fits)?;
            Some(format!("{} waits though it may have {}", claim.key, volume.name))
        })
        .collect()
}
