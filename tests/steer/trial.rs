//! One world, from its beginning until everything rests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bindery_controller::{Binder, Port, WriteError};
use bindery_kit::upstream::{Plain, plain_object, resync, translated};
use bindery_kit::{Choices, Fault};
use bindery_store::{Delivery, Kind, Object, Observed};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::law::{self, Api, Counts, Facts};
use crate::scheduler;
use crate::steerer::{self, Slow};
use crate::upstream;
use crate::world::{self, CLAIMS, VOLUMES};

/// Upstream's resync.
const RESYNC: Duration = Duration::from_secs(15);
/// A world rests if nothing was written during so many resyncs: longer than any backoff.
const QUIET: usize = 4;
/// Most resyncs after the last action.
const RESYNCS_MAX: usize = 40;

/// The watches of a binder: volumes, and claims.
type Watches = [UnboundedSender<(Instant, Delivery)>; 2];

/// A steering binder that runs.
struct Running {
    end: CancellationToken,
}

struct Trial {
    api: Api,
    /// The watches of upstream and of the two steering binders.
    watches: Arc<Mutex<Vec<Watches>>>,
    lags: [[u64; 2]; 3],
    delays: [u64; 4],
}

/// Lets a world come to rest.
///
/// # Errors
///
/// It breaks a law, or does not come to rest. The text reports it.
pub(crate) fn run(objects: &[u8], actions: &[[u8; 4]]) -> Result<Counts, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without IO can be built").block_on(settle(objects, actions))
}

async fn settle(objects: &[u8], actions: &[[u8; 4]]) -> Result<Counts, String> {
    let c = &mut Choices::new(objects);
    let mut ms = |all: &[u64]| c.pick(all);
    let lags = [(); 3].map(|()| [ms(&[0, 1, 30, 2_000]), ms(&[0, 1, 30, 2_000])]);
    let delays = [(); 4].map(|()| ms(&[0, 0, 1, 40, 900]));
    let api = Api::with(Facts::default());
    let trial = Trial { api: api.clone(), watches: Arc::default(), lags, delays };
    trial.report();
    let volumes = 1 + c.below(VOLUMES.len());
    let claims = 1 + c.below(CLAIMS.len());
    api.change(|objects| {
        objects.protection_lasts = Duration::ZERO;
        VOLUMES[..volumes].iter().for_each(|name| world::create_volume(c, objects, name));
        CLAIMS[..claims].iter().for_each(|name| world::create_claim(c, objects, name));
    });
    let upstream = trial.start_upstream();
    let mut running = [trial.start_steerer(1), trial.start_steerer(2)];
    for action in actions {
        let c = &mut Choices::new(action);
        pass(c.pick(&[0, 1, 20, 400, 3_000])).await;
        match c.below(8) {
            0..5 => world::act(c, &api),
            5 => {
                let fault = c.pick(&[Fault::AnswerLost, Fault::Refused(WriteError::Failed("broken".into()))]);
                api.objects().faults.append(c.below(3), fault);
            }
            6 => {
                let which = c.below(2);
                running[which].end.cancel();
                running[which] = trial.start_steerer(1 + which);
            }
            _ => resync(&upstream).await,
        }
        scheduler::schedule(&api);
    }
    api.objects().faults.clear();
    let rests = trial.until_rest(&upstream).await;
    let objects = api.objects();
    let mut wrong = objects.extra.violations.clone();
    wrong.extend((!rests).then(|| "the world does not come to rest".to_owned()));
    wrong.extend(law::left(&objects));
    if wrong.is_empty() {
        return Ok(objects.extra.counts.clone());
    }
    let writes: Vec<_> = objects.steered.iter().take(100).map(|write| format!("{write:?}")).collect();
    let (volumes, claims) = (&objects.volumes, &objects.claims);
    Err(format!(
        "{}\n--- writes\n{}\n--- at the end\n{volumes:#?}\n{claims:#?}\nlags {lags:?}, delays {delays:?}",
        wrong.join("\n"),
        writes.join("\n")
    ))
}

impl Trial {
    /// Has each change checked, and given to the watches.
    fn report(&self) {
        let (api, watches) = (self.api.clone(), Arc::clone(&self.watches));
        self.api.on_event(move |event| {
            if let Delivery::Applied(delivered) = &event
                && let Object::Volume(_, Observed::Readable(volume)) = &delivered.object
            {
                law::look_at(&mut api.objects(), volume);
            }
            let kind = usize::from(event.kind() == Kind::Claim);
            for watch in watches.lock().expect("no test panics with this lock").iter() {
                // The receiver of a binder that has ended is gone.
                let _ = watch[kind].send((Instant::now(), event.clone()));
            }
        });
    }

    /// New watches in the place of those of the binder of that number.
    fn watch(&self, number: usize) -> [UnboundedReceiver<(Instant, Delivery)>; 2] {
        let ((volumes, to_volumes), (claims, to_claims)) = (unbounded_channel(), unbounded_channel());
        let mut watches = self.watches.lock().expect("no test panics with this lock");
        if number == watches.len() {
            watches.push([volumes, claims]);
        } else {
            watches[number] = [volumes, claims];
        }
        [to_volumes, to_claims]
    }

    fn start_upstream(&self) -> Arc<Binder<Plain<Api>>> {
        let binder = upstream::binder(&self.api);
        let watches = self.watch(0);
        self.list(&binder, plain_object);
        for (mut watch, lag) in watches.into_iter().zip(self.lags[0]) {
            let binder = Arc::clone(&binder);
            tokio::spawn(async move {
                while let Some((sent, event)) = watch.recv().await {
                    tokio::time::sleep_until(sent + Duration::from_millis(lag)).await;
                    let (event, key) = translated(event);
                    binder.intake().deliver(event);
                    if let Some(key) = key {
                        drop(binder.sync(&key).await);
                    }
                }
            });
        }
        binder
    }

    fn start_steerer(&self, number: usize) -> Running {
        let binder: Arc<Binder<Slow>> = steerer::binder(&self.api, self.delays);
        let watches = self.watch(number);
        self.list(&binder, |object| object);
        for (mut watch, lag) in watches.into_iter().zip(self.lags[number]) {
            let binder = Arc::clone(&binder);
            tokio::spawn(async move {
                while let Some((sent, event)) = watch.recv().await {
                    tokio::time::sleep_until(sent + Duration::from_millis(lag)).await;
                    binder.intake().deliver(event);
                }
            });
        }
        let end = CancellationToken::new();
        tokio::spawn(binder.run(end.clone()));
        Running { end }
    }

    /// Delivers a list of each kind, and further ones that the binder asks for.
    fn list<P: Port>(&self, binder: &Arc<Binder<P>>, translate: fn(Object) -> Object) {
        for kind in Kind::ALL {
            deliver_list(&self.api, binder, kind, translate);
            let (api, binder) = (self.api.clone(), Arc::clone(binder));
            tokio::spawn(async move {
                loop {
                    binder.intake().freshness().until_list_wanted(kind).await;
                    pass(1).await;
                    deliver_list(&api, &binder, kind, translate);
                }
            });
        }
    }

    /// Lets upstream resync until nothing is written any more; returns whether that comes.
    async fn until_rest(&self, upstream: &Binder<Plain<Api>>) -> bool {
        let writes = || {
            let objects = self.api.objects();
            objects.writes.len() + objects.steered.len()
        };
        let (mut quiet, mut last) = (0, writes());
        for _ in 0..RESYNCS_MAX {
            tokio::time::sleep(RESYNC).await;
            scheduler::schedule(&self.api);
            resync(upstream).await;
            let now = writes();
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            if quiet == QUIET {
                return true;
            }
        }
        false
    }
}

fn deliver_list<P: Port>(api: &Api, binder: &Binder<P>, kind: Kind, translate: fn(Object) -> Object) {
    let objects = api.objects();
    let listed: Vec<Object> = match kind {
        Kind::Volume => objects.volumes.values().cloned().map(Object::from).collect(),
        Kind::Claim => objects.claims.values().cloned().map(Object::from).collect(),
        Kind::Class => vec![world::class().into()],
        Kind::Pod => world::pods().into_iter().map(Object::Pod).collect(),
        _ => Vec::new(),
    };
    drop(objects);
    binder.intake().list_begins(kind);
    let listed = listed.into_iter().map(translate);
    binder.intake().deliver(Delivery::listed(kind, listed, ""));
}

async fn pass(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
