//! What a decision has matchers asked, between its tries.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bindery_core::{Request, Stop, Text, VolumeRow};
use rustc_hash::FxBuildHasher;

use crate::calls::JudgedCalls;
use crate::chain::{Applied, Asked};
use crate::kept::{Context, RowHash, RowKey};
use crate::row::Shown;
use crate::{
    AnswerCache, Candidates, Chain, CollectedEvidence, Fueled, Judged, PolicyFault, ReclaimRule, Released,
    Waits,
};

/// How many rows are judged in each round. The first row that is allowed decides
/// where no policy scores, so rounds begin small; a row that is known is looked up again in each round, so
/// they grow fast.
const BATCHES: [usize; 5] = [8, 64, 512, 4_096, ROWS_MAX];
/// The most rows that are judged for one decision.
const ROWS_MAX: usize = 131_072;
/// The most rounds of one decision. Kept answers may be forgotten between two rounds, so rows alone are not
/// a bound.
const ROUNDS_MAX: usize = 64;
/// The most rows of one call, after which the time is looked at.
const CALL_ROWS_MAX: usize = 512;
/// The longest time of all calls of matchers for one decision, by default: eight calls at their own limit,
/// and several times what a Python matcher needs for all rows.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(2);

/// What matchers have been asked for one decision, which is tried again after each round.
#[derive(Default)]
pub struct Rounds {
    /// The namespace of a sync, whose calls count for the probation of policies.
    synced_namespace: Option<Text>,
    /// The policies that have failed, by their place in the chain.
    pub(crate) failed: BTreeMap<usize, PolicyFault>,
    work: Vec<Work>,
    /// What a reclaimer is to be asked.
    reclaim_work: Option<ReclaimWork>,
    /// What reclaimers have answered, with their places and what they were shown.
    reclaimed: HashMap<ReclaimWork, Fueled<Judged>>,
    /// The calls that have judged rows, where fuel is counted.
    pub(crate) judged: JudgedCalls,
    /// What the last answer about a volume rests on that reclaimers have said.
    pub(crate) collected: CollectedEvidence,
    /// How often matchers have been asked.
    rounds: usize,
    /// How often they have been asked to judge.
    batches: usize,
    /// Rows that have been judged.
    rows: usize,
    /// How long the calls of each policy have taken, by its place in the chain.
    took: BTreeMap<usize, Duration>,
}

/// What a matcher is to be asked.
pub(crate) struct Work {
    place: usize,
    context: Arc<Context>,
    /// The rows of each call; `None` where the matcher is to narrow.
    calls: Vec<Option<Batch>>,
}

/// The rows of one call, each once.
struct Batch {
    keys: Vec<RowKey>,
    rows: Candidates,
    /// The place of each text in [`Candidates::texts`], by its hash, counted from 1.
    places: HashMap<u128, u32, FxBuildHasher>,
}

/// What a reclaimer is to be asked: its place among the reclaimers, and what it is shown.
#[derive(PartialEq, Eq)]
pub(crate) struct ReclaimWork {
    pub(crate) place: usize,
    pub(crate) shown: Released,
}

impl Hash for ReclaimWork {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Released { capacity, columns, claim } = &self.shown;
        (self.place, capacity.whole, capacity.nanos, columns, claim).hash(state);
    }
}

impl Work {
    pub(crate) fn narrow(asked: &Asked<'_>) -> Self {
        let context = Arc::clone(&asked.context);
        Self { place: asked.place, context, calls: vec![None] }
    }

    /// How many rows are to be judged.
    fn rows(&self) -> usize {
        self.calls.iter().flatten().map(|batch| batch.keys.len()).sum()
    }
}

impl Batch {
    fn new(columns: usize) -> Self {
        let rows = Candidates { columns: vec![Vec::new(); columns], ..Candidates::default() };
        Self { keys: Vec::new(), rows, places: HashMap::default() }
    }

    fn add(&mut self, key: RowKey, shown: &Shown, row: &VolumeRow<'_>) {
        let Self { keys, rows, places } = self;
        keys.push(key);
        rows.whole.push(row.capacity.whole);
        rows.nanos.push(row.capacity.nanos);
        rows.spread.extend(shown.count(row));
        for (column, cell) in rows.columns.iter_mut().zip(shown.cells(row)) {
            let place = |text: &Text| {
                *places.entry(cell.hash).or_insert_with(|| {
                    rows.texts.push(text.clone());
                    u32::try_from(rows.texts.len()).unwrap_or(u32::MAX)
                })
            };
            column.push(cell.value.as_ref().map_or(0, place));
        }
    }
}

impl Rounds {
    /// Nothing was asked yet for this request.
    pub fn of(request: &Request) -> Self {
        Self { synced_namespace: request.subject.synced_namespace(), ..Self::default() }
    }

    /// The policies that have failed in this decision, by their place in the chain.
    pub fn failed(&self) -> &BTreeMap<usize, PolicyFault> {
        &self.failed
    }

    /// How many volumes without a verdict end the next try.
    pub(crate) fn batch(&self) -> usize {
        BATCHES.get(self.batches).copied().unwrap_or(ROWS_MAX)
    }

    /// Ends the call of the engine until the work is done.
    pub(crate) fn stop(&mut self, work: Vec<Work>) -> Stop {
        self.work = work;
        Stop::Judge
    }

    /// Ends the call of the engine until a reclaimer was asked.
    pub(crate) fn stop_reclaim(&mut self, work: ReclaimWork) -> Stop {
        self.reclaim_work = Some(work);
        Stop::Judge
    }

    /// How many answers of reclaimers it has.
    pub fn answers(&self) -> usize {
        self.reclaimed.len()
    }

    /// What a reclaimer has answered in this decision.
    pub(crate) fn reclaimed(&self, work: &ReclaimWork) -> Option<&Fueled<Judged>> {
        self.reclaimed.get(work)
    }

    /// Has every policy narrow the volumes of a claim before any is judged.
    pub(crate) fn narrowed(&mut self, applied: &Applied<'_>) -> Result<(), Stop> {
        let missing: Vec<Work> = applied.without_narrowing().map(Work::narrow).collect();
        if missing.is_empty() { Ok(()) } else { Err(self.stop(missing)) }
    }

    /// Asks the matchers what the last try has left open. It takes milliseconds for a matcher that contains
    /// an interpreter, so it is not called where others wait.
    ///
    /// # Errors
    ///
    /// The claim waits: too many volumes would have to be judged, or the calls have taken too long.
    pub fn perform(&mut self, chain: &Chain, kept: &AnswerCache) -> Result<(), Waits> {
        if let Some(work) = self.reclaim_work.take() {
            let rule = &chain.reclaimers()[work.place];
            let answered = rule.ask(&work.shown);
            rule.metrics.on_probation(self.synced_namespace.as_ref(), &answered.0);
            self.reclaimed.insert(work, answered);
        }
        let works = std::mem::take(&mut self.work);
        self.batches += usize::from(works.iter().any(|work| work.rows() > 0));
        for work in works {
            let policy = &chain.policies()[work.place];
            self.rows += work.rows();
            if self.rows > ROWS_MAX || self.rounds > ROUNDS_MAX {
                let why = format!(
                    "more than {ROWS_MAX} volumes would have to be judged, or in more than {ROUNDS_MAX} \
                     rounds; narrow them by requirements first"
                );
                return Err(Waits { policy: policy.name.clone(), why });
            }
            for call in work.calls {
                self.in_time(chain)?;
                let begun = (chain.clock)();
                let (answer, fuel) = policy.ask(&work.context, call.as_ref());
                *self.took.entry(work.place).or_default() += (chain.clock)().duration_since(begun);
                policy.metrics.on_probation(self.synced_namespace.as_ref(), &answer);
                match answer {
                    Ok(verdicts) => {
                        kept.added(work.place, &work.context, verdicts);
                        if let (Some(Batch { rows, .. }), Some(fuel)) = (call, fuel) {
                            self.judged.add(work.place, &work.context, rows, fuel);
                        }
                    }
                    Err(fault) => {
                        policy.metrics.failed(&fault);
                        self.failed.insert(work.place, fault);
                        break;
                    }
                }
            }
        }
        self.rounds += 1;
        Ok(())
    }

    /// Whether another call may begin. If not, the claim waits for the policy that has taken the most time.
    fn in_time(&self, chain: &Chain) -> Result<(), Waits> {
        if self.took.values().sum::<Duration>() <= chain.time_max {
            return Ok(());
        }
        let slowest = self.took.iter().max_by_key(|(_, took)| **took);
        let policy = slowest.map(|(place, _)| chain.policies()[*place].name.clone()).unwrap_or_default();
        let why = format!(
            "the policies have taken more than {:?} for one decision, and most of it this one; narrow the \
             volumes by requirements first",
            chain.time_max
        );
        Err(Waits { policy, why })
    }
}

impl ReclaimRule {
    /// Asks the reclaimer.
    fn ask(&self, shown: &Released) -> Fueled<Judged> {
        let reclaimer = match &self.reclaimer {
            Ok(reclaimer) => reclaimer,
            Err(why) => return (Err(PolicyFault::Unavailable(why.clone())), None),
        };
        let begun = Instant::now();
        let (answer, fuel) = reclaimer.judge_with_fuel(&self.settings, shown);
        self.metrics.took(begun.elapsed());
        let answer = answer.and_then(|judged| judged.check(reclaimer.metadata()));
        match &answer {
            Ok(judged) => self.metrics.judged_released(judged),
            Err(fault) => self.metrics.failed(fault),
        }
        (answer, fuel)
    }
}

impl crate::Policy {
    /// Asks the matcher about these rows, or to narrow if there are none, and keeps the answer. Returns how
    /// many verdicts were not kept before.
    fn ask(&self, context: &Context, rows: Option<&Batch>) -> Fueled<usize> {
        let matcher = match &self.matcher {
            Ok(matcher) => matcher,
            Err(why) => return (Err(PolicyFault::Unavailable(why.clone())), None),
        };
        let begun = Instant::now();
        let Some(Batch { keys, rows, .. }) = rows else {
            let (narrowing, fuel) = matcher.narrow_with_fuel(&self.settings, &context.view);
            self.metrics.took(begun.elapsed());
            return (narrowing.map(|narrowing| context.keep_narrowing(narrowing, fuel)).map(|()| 0), fuel);
        };
        let (answer, fuel) = matcher.judge_with_fuel(&self.settings, &context.view, rows);
        self.metrics.took(begun.elapsed());
        let verdicts = answer.and_then(|answer| answer.verdicts(matcher.metadata(), keys.len()));
        let kept = verdicts.map(|verdicts| {
            self.metrics.judged(&verdicts);
            context.keep(keys, verdicts)
        });
        (kept, fuel)
    }
}

/// Collects the rows that each policy has to judge in this round.
pub(crate) struct Judging<'a> {
    applied: &'a Applied<'a>,
    /// By the policy's place in [`Applied`].
    open: BTreeMap<usize, Open>,
    room: usize,
}

/// What one policy has to judge.
#[derive(Default)]
struct Open {
    added: HashSet<RowKey, RowHash>,
    calls: Vec<Batch>,
}

impl<'a> Judging<'a> {
    pub(crate) fn new(applied: &'a Applied<'a>, room: usize) -> Self {
        Self { applied, open: BTreeMap::new(), room }
    }

    /// Adds a row for the policy of that place in [`Applied`], unless one that looks the same was added.
    pub(crate) fn add(&mut self, at: usize, key: RowKey, row: &VolumeRow<'_>) {
        self.room = self.room.saturating_sub(1);
        let Open { added, calls } = self.open.entry(at).or_default();
        if !added.insert(key) {
            return;
        }
        let asked = &self.applied.asked[at];
        if calls.last().is_none_or(|batch| batch.keys.len() == CALL_ROWS_MAX) {
            calls.push(Batch::new(asked.matcher.metadata().columns.len()));
        }
        if let Some(batch) = calls.last_mut() {
            batch.add(key, &asked.shown, row);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.room == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn into_work(self) -> Vec<Work> {
        let work = |(at, Open { calls, .. }): (usize, Open)| {
            let Asked { place, context, .. } = &self.applied.asked[at];
            let calls = calls.into_iter().map(Some).collect();
            Work { place: *place, context: Arc::clone(context), calls }
        };
        self.open.into_iter().map(work).collect()
    }
}
