//! What changed, and what decisions depend on.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bindery_core::{
    AccessModes, Answer, BindingMode, Claim, ClaimKey, Exchange, Handle, Lookup, Narrowed, Quantity, Query,
    Question, Selector, Siblings, Slot, Source, Text, Uid, Version, Volume,
};

use crate::delivery::{Identified, LazyAuthors, Observed};

/// Counts the changes of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// A fact that a decision depends on, and that a [`Change`] changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// A volume, in the overlay or in the watch cache. An own write changes the first; its echo in the watch
    /// only the second. A live read depends on the second.
    Volume(Source, Text),
    /// A claim; see [`Fact::Volume`].
    Claim(Source, ClaimKey),
    /// A class.
    Class(Text),
    /// Which classes are default classes, and their order.
    DefaultClasses,
    /// The pods that reference a claim, of those that can be read.
    Pods(ClaimKey),
    /// Whether all pods of a namespace can be read.
    UnreadablePods(Text),
    /// Whether a node is known.
    Node(Text),
    /// A namespace's labels.
    Namespace(Text),
    /// The volumes whose claimRef names a claim.
    ReservedFor(ClaimKey),
    /// A decision in flight has picked the volume. Changed: it has ended, and the volume is not free.
    Reservation(Text),
    /// How many volumes with this value siblings have.
    Siblings(Arc<Siblings>, Option<Text>),
    /// Depended on: the access-mode sets that contain this one. Changed: exactly this set exists now, or no
    /// longer exists.
    AccessSets(AccessModes),
    /// Depended on: the free volumes that are wanted. Changes name the volumes instead ([`Change::offers`]).
    Candidates(Wanted),
}

/// The free volumes that a decision asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What was asked.
    pub query: Arc<Query>,
    /// Which access-mode sets count.
    pub sets: WantedSets,
    /// What policies require, beyond the query.
    pub narrowed: Option<Arc<Narrowed>>,
}

/// Which access-mode sets count for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WantedSets {
    /// Exactly the query's, for pages of candidates.
    Exact,
    /// Every set that contains the query's, for tallies: a free volume of such a set is a reason to decide
    /// again, changed numbers are not.
    Containing,
}

impl Wanted {
    /// Whether the volume would be a candidate, if it were free.
    pub fn is_met_by(&self, volume: &Volume) -> bool {
        let query = &*self.query;
        let set = volume.access_set();
        let set_counts = match self.sets {
            WantedSets::Exact => set == query.access_set,
            WantedSets::Containing => set.contains(query.access_set),
        };
        set_counts
            && query.class == volume.class
            && query.mode == volume.mode
            && *query.attributes_class == *volume.attributes_class_or_empty()
            && volume.capacity.unwrap_or(Quantity::ZERO) >= query.at_least
            && query.labels.iter().all(|r| r.matches(volume.labels.get(&r.key).map(|value| &**value)))
            && self.narrowed.as_ref().is_none_or(|narrowed| narrowed.is_met_by(volume))
    }

    /// Whether it is met by every volume that meets the other, where policies require the same.
    fn includes(&self, other: &Self) -> bool {
        let (query, others) = (&*self.query, &*other.query);
        let sets_count = match self.sets {
            WantedSets::Exact => other.sets == WantedSets::Exact && query.access_set == others.access_set,
            WantedSets::Containing => others.access_set.contains(query.access_set),
        };
        sets_count
            && query.class == others.class
            && query.mode == others.mode
            && query.attributes_class == others.attributes_class
            && query.at_least <= others.at_least
            && query.labels == others.labels
    }
}

impl Fact {
    /// Leaves free volumes out that the policies of the claim would reject without judging them.
    pub fn narrow(&mut self, narrowed: &Arc<Narrowed>) {
        if let Self::Candidates(wanted) = self {
            wanted.narrowed = Some(Arc::clone(narrowed));
        }
    }
}

/// By the parts that tell queries apart most; labels and operators are left to the comparison.
impl Hash for Wanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let query = &*self.query;
        (&query.class, query.mode, &query.attributes_class, query.access_set, self.sets).hash(state);
        (query.at_least.whole, query.at_least.nanos).hash(state);
        for needed in self.narrowed.iter().flat_map(|narrowed| &narrowed.columns) {
            (&needed.column, &needed.values).hash(state);
        }
    }
}

/// What one call to the store changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Revision of the store after the change.
    pub revision: Revision,
    /// Whether the delivery was taken: `false` where it was older than what is known. A delivery that was
    /// taken and changed nothing has no objects, facts or offers.
    pub fresh: bool,
    /// The volumes and claims that changed, in the cache or in the overlay.
    pub objects: Vec<ObjectChange>,
    /// The facts that changed, beside those of [`Change::objects`].
    pub facts: Vec<Fact>,
    /// The volumes that are free now and that no decision in flight has picked, of those that were not so
    /// before or were different.
    pub offers: Vec<Arc<Volume>>,
    /// The known and the listed version of an object that a list has in an older state than the watch has
    /// delivered: etcd was restored, even if the list's own version is higher than all known versions. No
    /// kind counts as synced any more.
    pub regression: Option<(Version, Version)>,
}

/// A change of a volume or claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange {
    /// Of the volume of that name.
    Volume(Text, Changed<Volume>),
    /// Of the claim of that key.
    Claim(ClaimKey, Changed<Claim>),
}

/// How an object changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<T> {
    /// The object as the watch cache had it; `None` where it was not known.
    pub before: Option<Observed<T>>,
    /// The object as the watch cache has it; `None` where it is gone.
    pub after: Option<Observed<T>>,
    /// Whether the object of the watch cache changed.
    pub cache: bool,
    /// Whether the object of the overlay changed.
    pub overlay: bool,
    /// Whether the watch has delivered what an own write returned.
    pub is_echo: bool,
    /// As the watch delivered them ([`crate::Delivered::authors`]).
    pub authors: Option<LazyAuthors>,
}

impl Change {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.facts.is_empty() && self.offers.is_empty()
    }

    /// Every fact that changed.
    pub fn all_facts(&self) -> impl Iterator<Item = Fact> {
        self.objects.iter().flat_map(ObjectChange::all_facts).chain(self.facts.iter().cloned())
    }

    /// Adds the change of an object, unless nothing of it changed.
    pub(crate) fn push(&mut self, object: ObjectChange) {
        if object.all_facts().next().is_some() {
            self.objects.push(object);
        }
    }
}

impl ObjectChange {
    /// The UID of an object that is gone: deleted, or replaced by another one of its name.
    pub fn gone(&self) -> Option<&Uid> {
        match self {
            Self::Volume(_, changed) => gone(changed),
            Self::Claim(_, changed) => gone(changed),
        }
    }

    fn all_facts(&self) -> impl Iterator<Item = Fact> {
        let of = |is_changed: bool, source| {
            is_changed.then(|| match self {
                Self::Volume(name, _) => Fact::Volume(source, name.clone()),
                Self::Claim(key, _) => Fact::Claim(source, key.clone()),
            })
        };
        let (overlay, cache) = match self {
            Self::Volume(_, changed) => (changed.overlay, changed.cache),
            Self::Claim(_, changed) => (changed.overlay, changed.cache),
        };
        of(overlay, Source::Overlay).into_iter().chain(of(cache, Source::Cache))
    }
}

impl<T> Changed<T> {
    /// From one object of the watch cache to another, which the overlay has too.
    pub(crate) fn new(before: Option<Observed<T>>, after: Option<Observed<T>>) -> Self {
        Self { before, after, cache: true, overlay: true, is_echo: false, authors: None }
    }
}

fn gone<T: Identified>(changed: &Changed<T>) -> Option<&Uid> {
    let before = changed.before.as_ref()?.uid();
    (changed.after.as_ref().map(Identified::uid) != Some(before)).then_some(before)
}

/// The facts that a decision depends on, by what its engine asked; each once.
pub fn facts_of(exchanges: &[Exchange]) -> Vec<Fact> {
    let mut facts = Vec::with_capacity(exchanges.len());
    for exchange in exchanges {
        facts_of_exchange(exchange, &mut facts);
    }
    facts
}

/// As [`facts_of`], of a decision about a claim, which depends on the volumes that it may take instead of all
/// that it asked to find them:
///
/// - A new access-mode set concerns it only if a free volume of that set fits it, or if a volume is reserved
///   for it. So 10,000 claims are not woken because the first volume has appeared.
/// - No free volume concerns it where its class waits for the first consumer.
/// - Volumes that decisions in flight have picked do not concern it as long as these last
///   ([`Fact::Reservation`]), though it has asked for their names.
pub fn facts_of_claim(claim: &Claim, exchanges: &[Exchange]) -> Vec<Fact> {
    let mut facts = Vec::with_capacity(exchanges.len());
    let in_flight = handles_in_flight(exchanges);
    for exchange in exchanges {
        if !matches!(exchange.question, Question::Identify(handle) if in_flight.contains(&handle)) {
            facts_of_exchange(exchange, &mut facts);
        }
    }
    if let Some(Selector::Invalid(_)) = &claim.selector {
        // Whether there are sets decides whether the selector is looked at.
        return facts;
    }
    let sets: Vec<AccessModes> = facts.iter().filter_map(access_sets).collect();
    if sets.is_empty() {
        return facts;
    }
    facts.retain(|fact| access_sets(fact).is_none());
    push(&mut facts, Fact::ReservedFor(claim.key.clone()));
    if waits_for_consumer(claim, exchanges) {
        return facts;
    }
    for access_set in sets {
        let query = Arc::new(Query::of_claim(claim, access_set));
        let wanted = Wanted { query, sets: WantedSets::Containing, narrowed: None };
        facts.retain(|fact| !matches!(fact, Fact::Candidates(other) if wanted.includes(other)));
        facts.push(Fact::Candidates(wanted));
    }
    facts
}

fn access_sets(fact: &Fact) -> Option<AccessModes> {
    if let Fact::AccessSets(containing) = fact { Some(*containing) } else { None }
}

/// The handles of volumes that were picked by other decisions in flight.
fn handles_in_flight(exchanges: &[Exchange]) -> BTreeSet<Handle> {
    let pages = exchanges.iter().filter_map(|exchange| match &exchange.answer {
        Answer::Page(page) => Some(page),
        _ => None,
    });
    let rows = pages.flat_map(|page| page.handles.iter().zip(&page.slots));
    rows.filter(|(_, slot)| **slot == Slot::InFlight).map(|(handle, _)| *handle).collect()
}

/// Whether the decision has learnt that the scheduler chooses among free volumes.
fn waits_for_consumer(claim: &Claim, exchanges: &[Exchange]) -> bool {
    exchanges.iter().any(|exchange| match (&exchange.question, &exchange.answer) {
        (Question::Class(name), Answer::Class(Lookup::Found(class))) => {
            claim.class.as_ref() == Some(name)
                && class.binding_mode == Some(BindingMode::WaitForFirstConsumer)
        }
        _ => false,
    })
}

fn facts_of_exchange(Exchange { question, answer }: &Exchange, facts: &mut Vec<Fact>) {
    let fact = match question {
        Question::Claim(source, key) => Fact::Claim(watched(*source), key.clone()),
        Question::Volume(source, name) => Fact::Volume(watched(*source), name.clone()),
        Question::Pods(key) => {
            push(facts, Fact::UnreadablePods(key.namespace.clone()));
            Fact::Pods(key.clone())
        }
        Question::Node(name) => Fact::Node(name.clone()),
        Question::Class(name) => Fact::Class(name.clone()),
        Question::DefaultClasses => Fact::DefaultClasses,
        Question::PluginForVolume(name) | Question::Verdict(name) | Question::Reclaim(name) => {
            Fact::Volume(Source::Overlay, name.clone())
        }
        // Plugins and configuration do not change while a binder runs. A running operation wakes its object
        // itself when it ends.
        Question::Plugin(_)
        | Question::PluginReady(..)
        | Question::Migration(_)
        | Question::DynamicProvisioning
        | Question::Operation(..) => return,
        Question::AccessSets(containing) => Fact::AccessSets(*containing),
        Question::Candidates { query, .. } => wanted(query, WantedSets::Exact),
        Question::Tallies(query) => wanted(query, WantedSets::Containing),
        Question::ReservedFor { key, .. } => Fact::ReservedFor(key.clone()),
        Question::Identify(_) | Question::Describe(_) => match answer {
            Answer::Identity(target) => Fact::Volume(Source::Overlay, target.name.clone()),
            Answer::Described(volume) => Fact::Volume(Source::Overlay, volume.name.clone()),
            _ => return,
        },
    };
    push(facts, fact);
}

/// The facts of one decision are few, and some are asked for again and again.
fn push(facts: &mut Vec<Fact>, fact: Fact) {
    if !facts.contains(&fact) {
        facts.push(fact);
    }
}

fn wanted(query: &Query, sets: WantedSets) -> Fact {
    Fact::Candidates(Wanted { query: Arc::new(query.clone()), sets, narrowed: None })
}

/// The source whose change makes an answer obsolete: sooner or later the watch delivers what a live read saw.
fn watched(source: Source) -> Source {
    match source {
        Source::Overlay => Source::Overlay,
        Source::Cache | Source::Live => Source::Cache,
    }
}
