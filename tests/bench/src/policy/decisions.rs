//! Decisions about claims that policies apply to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use bindery_core::{
    Claim, ClaimFact, ClaimKey, Decision, DecisionLimits, Engine, EngineFault, Quantity, Recorder, Request,
    Stop, Subject, Text, Uid, Volume, VolumeFact,
};
use bindery_host::ComponentMatcher;
use bindery_kit::{NoEnvironment, ZONE};
use bindery_policy::{
    AnswerCache, Candidates, Chain, ClaimView, Filtered, Matcher, Metadata, Narrowing, Policy, PolicyFault,
    Rounds, Verdicts,
};
use bindery_store::{Delivery, Kind, LiveReads, Store};

use super::Arguments;
use super::calls::TIERS;
use crate::decide::picked;
use crate::measure::{self, Figures};
use crate::scenario;

/// Label that the rejecting policy reads.
const TIER: &str = "bindery.dev/tier";
/// Candidates of the chain of five.
const CANDIDATES: u32 = 1_000;
/// The classes of the volumes, in equal parts.
const CLASSES: u32 = 5;

/// A store full of volumes, and policies of a claim.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) volumes: u32,
    /// How many times as long as the shortest decision one takes.
    times: u32,
    store: Store,
    chain: Chain,
    /// The volume that the claim gets.
    expected: String,
}

/// The scenarios.
pub(super) fn scenarios(
    zone: ComponentMatcher,
    prefer: ComponentMatcher,
    volumes: u32,
) -> Result<[Scenario; 3]> {
    let (zone, prefer): (Arc<dyn Matcher>, Arc<dyn Matcher>) = (Arc::new(zone), Arc::new(prefer));
    let last = format!("volume-{}", volumes - CLASSES);
    // Only the largest volume of the class is in the claim's zone.
    let zoned = |name, setting: &str, times, place: fn(&mut Volume, &'static str)| {
        let settings = format!(r#"{{"zone":"{setting}"}}"#);
        let per_class = volumes / CLASSES;
        let store = filled(volumes, |number, volume| {
            place(volume, if number / CLASSES + 1 == per_class { "a" } else { "b" });
        });
        let chain = kept_by(&store, vec![policy("zone", &zone, &settings)]);
        Scenario { name, volumes, times, store, chain, expected: last.clone() }
    };
    let by_label = zoned("`narrow` alone by label, the last of its class", "Label", 1, |volume, zone| {
        volume.labels.insert(ZONE.into(), zone.into());
    });
    let by_affinity =
        zoned("`narrow` alone by node affinity, the same", "NodeAffinity", 50, |volume, zone| {
            volume.facts.set(VolumeFact::Topology(ZONE.into()), Some(zone.into()));
        });
    let five = (0..5).map(|number| {
        let settings = format!(r#"{{"scores":{{"{number}":100}},"otherwise":10}}"#);
        policy(&format!("prefer-{number}"), &prefer, &settings)
    });
    let store = filled(CANDIDATES * CLASSES, |_, _| ());
    let chain = kept_by(&store, five.collect());
    let (name, volumes, expected) =
        ("a chain of five in Rust, each scores all", CANDIDATES, "volume-0".into());
    Ok([by_label, by_affinity, Scenario { name, volumes, times: 10, store, chain, expected }])
}

fn policy(name: &str, matcher: &Arc<dyn Matcher>, settings: &str) -> Policy {
    let (matcher, settings) = (Ok(Arc::clone(matcher)), settings.to_owned());
    Policy { matcher, settings, ..bindery_kit::policy(name, bindery_kit::SameZone) }
}

/// A chain of policies, whose columns the store keeps.
fn kept_by(store: &Store, policies: Vec<Policy>) -> Chain {
    let chain = Chain::new(policies);
    store.keep_columns(Arc::clone(chain.columns()));
    chain
}

/// A store with volumes as [`scenario::volume`] makes them, changed.
fn filled(volumes: u32, change: impl Fn(u32, &mut Volume)) -> Store {
    let store = Store::new();
    let made = (0..volumes).map(|number| {
        let mut volume = scenario::volume(number, volumes / CLASSES);
        change(number, &mut volume);
        Arc::new(volume)
    });
    store.deliver(Delivery::listed(Kind::Volume, made, "1"));
    store
}

/// Claims of zone a; a policy sees each as another one, because they request other sizes.
fn requests(count: usize) -> Vec<Request> {
    let claim = |number: u64| Claim {
        uid: Uid(format!("11111111-1111-1111-1111-{number:012}").into()),
        version: "2".into(),
        request: Quantity::bytes(number + 1),
        class: Some("".into()),
        facts: [(ClaimFact::Label(ZONE.into()), Text::from("a"))].into_iter().collect(),
        ..bindery_kit::claim(ClaimKey::new("default", format!("claim-{number}")))
    };
    (0..count as u64).map(|number| scenario::request(claim(number))).collect()
}

impl Scenario {
    /// Measures decisions for which the policies are asked, and the same again with their answers kept.
    pub(super) fn measure(&self, engine: &dyn Engine, arguments: &Arguments) -> Result<[Figures; 2]> {
        let requests = requests(arguments.calls(self.times));
        let kept = AnswerCache::default();
        for request in &requests {
            let decision = decide(engine, &self.store, &self.chain, &kept, request)?;
            let picked = picked(&decision);
            ensure!(picked.as_deref() == Some(&*self.expected), "{}: it picks {picked:?}", self.name);
        }
        let mut rounds = [const { Vec::new() }; 2];
        for _ in 0..arguments.rounds {
            let kept = AnswerCache::default();
            for rounds in &mut rounds {
                rounds.push(measure::round(requests.len(), &requests, |request| {
                    decide(engine, &self.store, &self.chain, &kept, request).is_ok()
                }));
            }
        }
        Ok(rounds.map(|rounds| Figures::of(&rounds)))
    }
}

/// Volumes that a policy rejects, all of one class.
pub(super) struct Rejected {
    store: Store,
    chain: Chain,
    judged: Arc<AtomicUsize>,
    volumes: u32,
}

impl Rejected {
    pub(super) fn new(matcher: ComponentMatcher, volumes: u32) -> Self {
        let judged = Arc::<AtomicUsize>::default();
        let matcher: Arc<dyn Matcher> = Arc::new(Counting { matcher, judged: Arc::clone(&judged) });
        let store = filled(volumes, |number, volume| *volume = rejected(number, "no such tier"));
        let chain = kept_by(&store, vec![policy("tier", &matcher, TIERS)]);
        Self { store, chain, judged, volumes }
    }

    /// A name, figures and the number of rows that were judged in one decision: of the first decision about a
    /// claim, and of the next, after one volume has changed.
    pub(super) fn measure(
        &self,
        engine: &dyn Engine,
        arguments: &Arguments,
    ) -> Result<[(&'static str, Figures, usize); 2]> {
        let request = &requests(1)[0];
        let decide = |kept: &AnswerCache| -> Result<usize> {
            let before = self.judged.load(Ordering::Relaxed);
            let decision = decide(engine, &self.store, &self.chain, kept, request)?;
            ensure!(picked(&decision).is_none(), "a volume is not rejected");
            Ok(self.judged.load(Ordering::Relaxed) - before)
        };
        let change = |number: usize| {
            let volume = rejected(0, &format!("no such tier, {number}"));
            self.store.deliver(Delivery::applied(volume));
        };
        let all = decide(&AnswerCache::default())?;
        ensure!(all == self.volumes as usize, "{all} rows are judged of {} volumes", self.volumes);
        let mut rounds = [const { Vec::new() }; 2];
        for round in 0..arguments.rounds {
            let calls = arguments.calls(500);
            rounds[0].push(measure::round(calls, &[()], |()| decide(&AnswerCache::default()).is_ok()));
            let kept = AnswerCache::default();
            decide(&kept)?;
            let changes: Vec<usize> = (0..calls).map(|call| usize::from(round) * calls + call).collect();
            rounds[1].push(measure::round(calls, &changes, |number| {
                change(*number);
                decide(&kept).is_ok_and(|rows| rows == 1)
            }));
            change(usize::MAX - usize::from(round));
            let rows = decide(&kept)?;
            ensure!(rows == 1, "{rows} rows are judged after one volume has changed");
        }
        let [first, next] = rounds.map(|rounds| Figures::of(&rounds));
        Ok([
            ("the first decision about a claim", first, all),
            ("the next, after one volume changed", next, 1),
        ])
    }
}

/// A volume of the claims' class, with that tier. All differ in capacity, because volumes that a policy sees
/// alike are judged once.
fn rejected(number: u32, tier: &str) -> Volume {
    let mut volume = scenario::volume(number, 1);
    volume.capacity = Some(Quantity::bytes(u64::from(number + 1) << 30));
    volume.class = "".into();
    volume.labels.insert(TIER.into(), tier.into());
    volume
}

/// A matcher that counts the rows that it judges.
struct Counting {
    matcher: ComponentMatcher,
    judged: Arc<AtomicUsize>,
}

impl Matcher for Counting {
    fn metadata(&self) -> &Metadata {
        self.matcher.metadata()
    }

    fn digest(&self) -> &str {
        self.matcher.digest()
    }

    fn check(&self, settings: &str) -> Result<Result<(), String>, PolicyFault> {
        self.matcher.check(settings)
    }

    fn narrow(&self, settings: &str, claim: &ClaimView) -> Result<Narrowing, PolicyFault> {
        self.matcher.narrow(settings, claim)
    }

    fn judge(&self, settings: &str, claim: &ClaimView, rows: &Candidates) -> Result<Verdicts, PolicyFault> {
        self.judged.fetch_add(rows.whole.len(), Ordering::Relaxed);
        self.matcher.judge(settings, claim, rows)
    }
}

/// One decision, with the rounds of questions to the policies.
fn decide(
    engine: &dyn Engine,
    store: &Store,
    chain: &Chain,
    kept: &AnswerCache,
    request: &Request,
) -> Result<Decision> {
    let Subject::SyncClaim(claim) = &request.subject else { unreachable!("every request syncs a claim") };
    let live = LiveReads::default();
    let mut rounds = Rounds::default();
    loop {
        let mut session = store
            .session(&NoEnvironment, &live, DecisionLimits::default())
            .for_claim(claim.key.clone(), claim.uid.clone());
        let filtered = Filtered::new(&mut session, claim, chain, kept, &mut rounds);
        let mut filtered = filtered.context("no policy applies")?;
        let mut recorder = Recorder::new(&mut filtered);
        let decision = engine.decide(request, &mut recorder);
        std::hint::black_box(recorder.into_exchanges());
        match decision {
            Ok(decision) => return Ok(decision),
            Err(EngineFault::Stopped(Stop::Judge)) => {}
            Err(fault) => return Err(fault.into()),
        }
        // The store is locked until here.
        drop(filtered);
        drop(session);
        rounds.perform(chain, kept)?;
    }
}
