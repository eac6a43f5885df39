//! A claim, a volume and a decision about them, to spoil one thing of.

use std::collections::BTreeMap;
use std::sync::Arc;

use bindery_core::guard::{self, Breach, Case, ObjectName, Objection, View};
use bindery_core::{
    AccessMode, Action, Answer, Claim, ClaimKey, ClaimPhase, ClaimRef, Class, Decision, Edit, Exchange,
    FinalizerEdit, Lookup, Migration, Operation, OperationKind, Outcome, Plugin, Point, Progress, Quantity,
    Question, ReclaimPolicy, Request, Returned, Source, Step, Subject, Text, Uid, Volume, VolumePhase,
};
pub(crate) use bindery_kit::class;

/// What the guard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Allowed,
    ProveClaim,
    ProveVolume,
    Stale,
    Contradicted,
    Unproven,
    Refused(Breach),
}

/// A decision and what the guard must say.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) case: TestCase,
    pub(crate) expected: Response,
}

/// A decision and all that it is judged by.
#[derive(Clone)]
pub(crate) struct TestCase {
    pub(crate) request: Request,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) decision: Decision,
    pub(crate) world: Plain,
}

/// A world of maps.
#[derive(Clone)]
pub(crate) struct Plain {
    pub(crate) synced: bool,
    pub(crate) offers_again: bool,
    pub(crate) volumes: BTreeMap<Text, Lookup<Arc<Volume>>>,
    pub(crate) claims: BTreeMap<ClaimKey, Lookup<Arc<Claim>>>,
    pub(crate) classes: BTreeMap<Text, Lookup<Arc<Class>>>,
    pub(crate) claim_proofs: BTreeMap<ClaimKey, Lookup<Arc<Claim>>>,
    pub(crate) volume_proofs: BTreeMap<Text, Lookup<Arc<Volume>>>,
}

impl TestCase {
    /// The decision that these actions make about a subject; the world has what is added to it.
    pub(crate) fn new(subject: Subject, actions: impl IntoIterator<Item = Action>) -> Self {
        let steps = actions.into_iter().map(Step::from).collect();
        Self {
            request: Request { now: 0, subject },
            exchanges: Vec::new(),
            decision: Decision::new(steps, Outcome::Done),
            world: Plain {
                synced: true,
                offers_again: false,
                volumes: BTreeMap::new(),
                claims: BTreeMap::new(),
                classes: BTreeMap::new(),
                claim_proofs: BTreeMap::new(),
                volume_proofs: BTreeMap::new(),
            },
        }
    }

    /// The engine was told this.
    pub(crate) fn told(mut self, question: Question, answer: Answer) -> Self {
        self.exchanges.push(Exchange { question, answer });
        self
    }

    /// The engine read the claim, and the world has it.
    pub(crate) fn with_claim(mut self, claim: &Claim) -> Self {
        self.world.claims.insert(claim.key.clone(), Lookup::Found(Arc::new(claim.clone())));
        let answer = Answer::Claim(Lookup::Found(Arc::new(claim.clone())));
        self.told(Question::Claim(Source::Overlay, claim.key.clone()), answer)
    }

    /// The engine read the volume, and the world has it.
    pub(crate) fn with_volume(mut self, volume: &Volume) -> Self {
        self.world.volumes.insert(volume.name.clone(), Lookup::Found(Arc::new(volume.clone())));
        let answer = Answer::Volume(Lookup::Found(Arc::new(volume.clone())));
        self.told(Question::Volume(Source::Overlay, volume.name.clone()), answer)
    }

    pub(crate) fn with_class(mut self, class: Class) -> Self {
        self.world.classes.insert(class.name.clone(), Lookup::Found(Arc::new(class)));
        self
    }

    /// The engine read the claim of `ns/c` live.
    pub(crate) fn live(self, found: Lookup<Arc<Claim>>) -> Self {
        self.told(Question::Claim(Source::Live, key()), Answer::Claim(found))
    }

    /// The guard had the claim of `ns/c` read live.
    pub(crate) fn proven(mut self, found: Lookup<Arc<Claim>>) -> Self {
        self.world.claim_proofs.insert(key(), found);
        self
    }

    /// The guard had the volume `v` read live.
    pub(crate) fn volume_proven(mut self, found: Lookup<Arc<Volume>>) -> Self {
        self.world.volume_proofs.insert("v".into(), found);
        self
    }

    pub(crate) fn migration(self, plugin: &str, migration: Migration) -> Self {
        self.told(Question::Migration(plugin.into()), Answer::Migration(migration))
    }

    pub(crate) fn outcome(mut self, outcome: Outcome) -> Self {
        self.decision.outcome = outcome;
        self
    }

    pub(crate) fn continues(self, point: Point) -> Self {
        self.outcome(Outcome::Continue(point))
    }

    pub(crate) fn check(&self) -> Result<(), Objection> {
        let Self { request, exchanges, decision, world } = self;
        guard::check(&Case { request, exchanges, decision, view: world })
    }

    pub(crate) fn response(&self) -> Response {
        match self.check() {
            Ok(()) => Response::Allowed,
            Err(Objection::Prove(ObjectName::Claim(_))) => Response::ProveClaim,
            Err(Objection::Prove(ObjectName::Volume(_))) => Response::ProveVolume,
            Err(Objection::Stale { .. }) => Response::Stale,
            Err(Objection::Contradicted { .. }) => Response::Contradicted,
            Err(Objection::Unproven { .. }) => Response::Unproven,
            Err(Objection::Refused(refusal)) => Response::Refused(refusal.breach),
        }
    }

    pub(crate) fn allowed(self, name: &'static str) -> Row {
        Row { name, case: self, expected: Response::Allowed }
    }

    pub(crate) fn refused(self, name: &'static str, breach: Breach) -> Row {
        Row { name, case: self, expected: Response::Refused(breach) }
    }

    pub(crate) fn is(self, name: &'static str, expected: Response) -> Row {
        Row { name, case: self, expected }
    }
}

impl View for Plain {
    fn synced(&self) -> bool {
        self.synced
    }

    fn volume(&self, name: &str) -> Lookup<Arc<Volume>> {
        self.volumes.get(name).cloned().unwrap_or(Lookup::Absent)
    }

    fn claim(&self, key: &ClaimKey) -> Lookup<Arc<Claim>> {
        self.claims.get(key).cloned().unwrap_or(Lookup::Absent)
    }

    fn class(&self, name: &str) -> Lookup<Arc<Class>> {
        self.classes.get(name).cloned().unwrap_or(Lookup::Absent)
    }

    fn claim_proof(&self, key: &ClaimKey) -> Option<&Lookup<Arc<Claim>>> {
        self.claim_proofs.get(key)
    }

    fn volume_proof(&self, name: &str) -> Option<&Lookup<Arc<Volume>>> {
        self.volume_proofs.get(name)
    }

    fn allows_offer_again(&self) -> bool {
        self.offers_again
    }
}

/// Key of the claim of these tests.
pub(crate) fn key() -> ClaimKey {
    ClaimKey::new("ns", "c")
}

/// An unbound claim of five bytes.
pub(crate) fn claim() -> Claim {
    Claim {
        uid: "u-c".into(),
        version: "c1".into(),
        request: Quantity::bytes(5),
        class: Some("".into()),
        ..bindery_kit::claim(key())
    }
}

/// A free volume that fits the claim.
pub(crate) fn volume() -> Volume {
    Volume {
        uid: "u-v".into(),
        version: "v1".into(),
        capacity: Some(Quantity::bytes(5)),
        access_modes: vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany],
        ..bindery_kit::volume("v")
    }
}

/// A claimRef of the claim, with this UID.
pub(crate) fn claim_ref(uid: Option<&str>) -> Option<ClaimRef> {
    Some(ClaimRef { namespace: "ns".into(), name: "c".into(), uid: uid.map(Uid::from) })
}

/// The claim and the volume as a complete pair.
pub(crate) fn pair() -> (Claim, Volume) {
    let (mut claim, mut volume) = (claim(), volume());
    claim.annotations.bind_completed = true;
    claim.volume_name = Some("v".into());
    claim.status.phase = ClaimPhase::Bound;
    volume.claim_ref = claim_ref(Some("u-c"));
    volume.phase = VolumePhase::Bound;
    (claim, volume)
}

/// The volume whose claim `u-c` is gone, in phase Released.
pub(crate) fn released(policy: ReclaimPolicy) -> Volume {
    Volume { claim_ref: claim_ref(Some("u-c")), phase: VolumePhase::Released, policy, ..volume() }
}

/// The claim as it is when it has another volume.
pub(crate) fn elsewhere() -> Lookup<Arc<Claim>> {
    Lookup::Found(Arc::new(Claim { volume_name: Some("other".into()), ..claim() }))
}

/// The claim, of class `gold`.
pub(crate) fn gold() -> Claim {
    Claim { class: Some("gold".into()), ..claim() }
}

/// A look-up that found the object.
pub(crate) fn found<T>(object: T) -> Lookup<Arc<T>> {
    Lookup::Found(Arc::new(object))
}

/// A look-up of an object that cannot be parsed.
pub(crate) fn broken<T>() -> Lookup<T> {
    Lookup::Unreadable("spec is no object".into())
}

/// A look-up that failed.
pub(crate) fn away<T>() -> Lookup<T> {
    Lookup::Failed("away".into())
}

/// The first write of a bind.
pub(crate) fn reserve(volume: &Volume, claim: &Claim, mark: bool) -> Action {
    Action::ReserveVolume { volume: volume.target(), claim: claim.target(), mark }
}

/// A write of the deletion finalizers.
pub(crate) fn edit_finalizers(volume: &Volume, in_tree: FinalizerEdit, external: FinalizerEdit) -> Action {
    annotate(volume, Edit::Keep, in_tree, external)
}

/// A write of migrated-to and of the deletion finalizers.
pub(crate) fn annotate(
    volume: &Volume,
    migrated_to: Edit<Text>,
    in_tree_finalizer: FinalizerEdit,
    external_finalizer: FinalizerEdit,
) -> Action {
    Action::AnnotateVolume { volume: volume.target(), migrated_to, in_tree_finalizer, external_finalizer }
}

/// A sync of a volume that was read, with these actions.
pub(crate) fn sync(volume: &Volume, actions: impl IntoIterator<Item = Action>) -> TestCase {
    TestCase::new(Subject::SyncVolume(volume.clone().into()), actions).with_volume(volume)
}

/// An operation that reclaims a volume starts.
pub(crate) fn start_reclaim(volume: &Volume, kind: OperationKind) -> TestCase {
    let operation = Operation { kind, plugin: "".into(), uid: volume.uid.clone() };
    sync(volume, [Action::StartOperation(operation)])
}

/// A plugin that can do everything.
pub(crate) fn plugin(name: &str) -> Plugin {
    Plugin { name: name.into(), provisions: true, deletes: true, recycles: true, mount_options: false }
}

/// An operation on a claim, at a point.
pub(crate) fn on_claim(
    kind: OperationKind,
    plugin: &str,
    claim: &Claim,
    point: Point,
    returned: Returned,
) -> Subject {
    let operation = Operation { kind, plugin: plugin.into(), uid: claim.uid.clone() };
    Subject::SyncClaimOperation(Progress { operation, object: claim.clone(), fresh: None, point, returned })
}

/// An operation on a volume, at a point.
pub(crate) fn on_volume(kind: OperationKind, volume: &Volume, point: Point, returned: Returned) -> Subject {
    let operation = Operation { kind, plugin: "".into(), uid: volume.uid.clone() };
    Subject::SyncVolumeOperation(Progress { operation, object: volume.clone(), fresh: None, point, returned })
}
