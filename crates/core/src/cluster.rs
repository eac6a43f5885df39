//! What an engine may ask while it decides.
//!
//! The contract has one function, [`Cluster::ask`]: a closed set of questions with typed answers. So
//! recording, replaying, limiting and converting a question are each written once, and an engine knows
//! nothing that is not in the evidence.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    AccessModes, Claim, ClaimKey, Class, Decision, Handle, Lookup, MatchVerdict, OperationKind,
    OperationState, Quantity, ReclaimVerdict, Request, Requirement, Tally, Text, Uid, Volume, VolumeMode,
    VolumeTarget,
};

/// A question about the cluster. Each doc names the [`Answer`] variant that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The claim of that key → [`Answer::Claim`].
    Claim(Source, ClaimKey),
    /// The volume of that name → [`Answer::Volume`].
    Volume(Source, Text),
    /// The pods that reference the claim → [`Answer::Pods`].
    Pods(ClaimKey),
    /// Whether the node is known → [`Answer::Node`].
    Node(Text),
    /// The class of that name → [`Answer::Class`].
    Class(Text),
    /// The default classes, newest first, then by name → [`Answer::DefaultClasses`].
    DefaultClasses,
    /// The in-tree plugin of that name → [`Answer::Plugin`].
    Plugin(Text),
    /// The in-tree plugins that support the source of the volume of that name → [`Answer::PluginMatch`].
    PluginForVolume(Text),
    /// Whether the plugin constructs that operation → [`Answer::Ready`].
    PluginReady(Text, PluginOperation),
    /// The CSI migration of the plugin of that name → [`Answer::Migration`].
    Migration(Text),
    /// Whether dynamic provisioning is on → [`Answer::DynamicProvisioning`].
    DynamicProvisioning,
    /// Whether the operation of that kind on the object of that UID may start → [`Answer::Operation`].
    Operation(OperationKind, Uid),
    /// The access-mode sets that exist among all volumes and contain this one, fewest modes first, then by
    /// bits → [`Answer::AccessSets`].
    AccessSets(AccessModes),
    /// The free volumes that meet the query, in ascending (capacity, name), those after `after` and at most
    /// `limit` of them → [`Answer::Page`].
    Candidates {
        /// What is asked for.
        query: Query,
        /// Last handle of the page before.
        after: Option<Handle>,
        /// Most rows to answer; the host may answer fewer.
        limit: u32,
    },
    /// The volumes of any class, phase and access modes whose claimRef names the claim that is asked about,
    /// by its UID or by its name alone, in ascending (capacity, name) → [`Answer::Reserved`].
    ReservedFor {
        /// The claim.
        key: ClaimKey,
        /// Its UID.
        uid: Uid,
    },
    /// Name, UID and version of a handle → [`Answer::Identity`].
    Identify(Handle),
    /// The whole volume of a handle → [`Answer::Described`].
    Describe(Handle),
    /// Why volumes do not meet the query, in numbers, with the nearest of them → [`Answer::Tallies`].
    Tallies(Query),
    /// What the policies say about giving the claim that is decided the free volume of that name, which it
    /// names → [`Answer::Verdict`].
    Verdict(Text),
    /// What the reclaimers say about the volume that is decided, by its name → [`Answer::Reclaim`].
    Reclaim(Text),
}

/// An answer; see [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Claim`].
    Claim(Lookup<Arc<Claim>>),
    /// To [`Question::Volume`].
    Volume(Lookup<Arc<Volume>>),
    /// To [`Question::Pods`]; an error is that of the pod index.
    Pods(Result<Vec<Pod>, Text>),
    /// To [`Question::Node`].
    Node(Lookup<()>),
    /// To [`Question::Class`].
    Class(Lookup<Arc<Class>>),
    /// To [`Question::DefaultClasses`]; an error is that of the list.
    DefaultClasses(Result<Vec<Text>, Text>),
    /// To [`Question::Plugin`].
    Plugin(Option<Plugin>),
    /// To [`Question::PluginForVolume`].
    PluginMatch(PluginMatch),
    /// To [`Question::PluginReady`]; the error is the plugin's.
    Ready(Result<(), Text>),
    /// To [`Question::Migration`].
    Migration(Migration),
    /// To [`Question::DynamicProvisioning`].
    DynamicProvisioning(bool),
    /// To [`Question::Operation`].
    Operation(OperationState),
    /// To [`Question::AccessSets`].
    AccessSets(Vec<AccessModes>),
    /// To [`Question::Candidates`].
    Page(Page),
    /// To [`Question::ReservedFor`].
    Reserved(Vec<Handle>),
    /// To [`Question::Identify`].
    Identity(VolumeTarget),
    /// To [`Question::Describe`].
    Described(Arc<Volume>),
    /// To [`Question::Tallies`].
    Tallies(Vec<Tally>),
    /// To [`Question::Verdict`].
    Verdict(MatchVerdict),
    /// To [`Question::Reclaim`].
    Reclaim(ReclaimVerdict),
}

/// Where an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// The watch cache with the binder's own writes laid over it (upstream's local cache).
    Overlay,
    /// The watch cache alone (upstream's lister).
    Cache,
    /// The API server, now.
    Live,
}

/// A pod that references a claim, directly or through a generic ephemeral volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// `metadata.name`; it is in the namespace of the claim.
    pub name: Text,
    /// Whether `spec.nodeName` is set.
    pub scheduled: bool,
    /// Whether it has ended (upstream's `IsPodTerminated`).
    pub terminated: bool,
}

/// What an in-tree plugin can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugin {
    /// Its name, such as `kubernetes.io/host-path`.
    pub name: Text,
    /// Whether it provisions volumes.
    pub provisions: bool,
    /// Whether it deletes volumes.
    pub deletes: bool,
    /// Whether it recycles volumes.
    pub recycles: bool,
    /// Whether volumes of it support mount options.
    pub mount_options: bool,
}

/// Which in-tree plugins support the source of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PluginMatch {
    /// None.
    None,
    /// Exactly one.
    One(Plugin),
    /// Several, by name.
    Several(Vec<Text>),
}

/// What a plugin is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PluginOperation {
    /// Make an asset and describe it as a volume.
    Provision,
    /// Delete the asset of a volume.
    Delete,
    /// Scrub the asset of a volume.
    Recycle,
}

/// CSI migration of an in-tree plugin (`CSIMigratedPluginManager`, KEP-625).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Migration {
    /// The plugin is not migrated.
    Off,
    /// It is migrated to this CSI driver.
    On(Text),
    /// It counts as migrated, but no translation names its driver.
    Untranslatable,
}

/// What a claim needs of a volume that is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// The class, `""` for none.
    pub class: Text,
    /// The volume mode.
    pub mode: VolumeMode,
    /// The attributes class, `""` for none.
    pub attributes_class: Text,
    /// Exactly this set of access modes; in [`Question::Tallies`] any set that contains it.
    pub access_set: AccessModes,
    /// At least this capacity.
    pub at_least: Quantity,
    /// What the labels must be; evaluated by the host.
    pub labels: Vec<Requirement>,
}

impl Query {
    /// What the claim needs of a volume with exactly these access modes.
    pub fn of_claim(claim: &Claim, access_set: AccessModes) -> Self {
        Self {
            class: claim.class.clone().unwrap_or_default(),
            mode: claim.mode,
            attributes_class: claim.attributes_class.clone().unwrap_or_default(),
            access_set,
            at_least: claim.request,
            labels: claim.requirements().to_vec(),
        }
    }
}

/// Rows of candidates, as columns of equal length: integers cross into WebAssembly by one copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The volumes.
    pub handles: Vec<Handle>,
    /// Whole bytes of their capacities.
    pub whole: Vec<u64>,
    /// Billionths of a byte of their capacities.
    pub nanos: Vec<u32>,
    /// Whether each can be taken.
    pub slots: Vec<Slot>,
    /// Whether there are rows after these.
    pub more: bool,
}

/// Whether a candidate can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slot {
    /// It can.
    Free,
    /// A decision in flight has picked it for another claim. It may become free again.
    InFlight,
    /// A policy rejects it, and the claim waits until one is allowed: neither provision nor give a class.
    Withheld,
}

/// Why a question gets no answer and the call ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The answer has to be read from the API server first; then the request is decided again.
    #[error("a live read is needed")]
    LiveRead(Question),
    /// A policy has to be asked first; then the request is decided again.
    #[error("a policy has to be asked first")]
    Judge,
    /// A policy that may apply gives no answer, so the claim waits.
    #[error("policy {policy}: {why}")]
    Waits {
        /// The policy.
        policy: Text,
        /// Why it gives no answer.
        why: String,
    },
    /// A limit of the call is exceeded: which, and what it is.
    #[error("more than {max} {what} in one decision")]
    TooMany {
        /// The name of the limit.
        what: &'static str,
        /// How much is allowed.
        max: u64,
    },
    /// The question has no answer: it names an unknown handle, or asks for a page of no rows.
    #[error("a question that has no answer: {0}")]
    Nonsense(&'static str),
    /// A replay was asked something that was not recorded.
    #[error("not recorded")]
    NotRecorded,
}

/// The facts of a cluster, for the time of one call.
pub trait Cluster {
    /// Answers a question. The answer's variant is the one that the question's documentation names.
    ///
    /// # Errors
    ///
    /// The call cannot go on; an engine passes the error up at once.
    fn ask(&mut self, question: Question) -> Result<Answer, Stop>;
}

/// Decides. The default engine does so natively, the host by a component.
pub trait Engine: Send + Sync {
    /// Decides `request`, asking `cluster` for what it needs.
    ///
    /// # Errors
    ///
    /// There is no decision and so no write: a question stopped the call, or the engine failed.
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault>;

    /// As [`Engine::decide`], with the units of fuel that the call used; `None` where none are counted.
    fn decide_with_fuel(
        &self,
        request: &Request,
        cluster: &mut dyn Cluster,
    ) -> (Result<Decision, EngineFault>, Option<u64>) {
        (self.decide(request, cluster), None)
    }

    /// Names the engine in evidence: the SHA-256 of a component, or the version of a native engine.
    fn digest(&self) -> &str;

    /// Whether it can ask what reclaimers say: since version 0.2 of the contract.
    fn asks_reclaimers(&self) -> bool {
        true
    }
}

/// Why an engine did not decide. Nothing is written, and the key is retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineFault {
    /// A question stopped the call.
    #[error(transparent)]
    Stopped(#[from] Stop),
    /// It trapped: what happened.
    #[error("the engine trapped: {0}")]
    Trapped(String),
    /// It ran for too long: out of fuel, or past the deadline.
    #[error("the engine was stopped: {0}")]
    Exhausted(&'static str),
    /// Its answer is too large or has no meaning: what is wrong with it.
    #[error("the engine's answer is not a decision: {0}")]
    BadAnswer(String),
    /// The host could not run it: what happened.
    #[error("the engine could not be run: {0}")]
    Unavailable(String),
}

macro_rules! typed_questions {
    ($(
        $name:ident($($arg:ident: $type:ty),*) -> $answer:ident($result:ty) = $question:expr;
    )*) => {
        impl dyn Cluster + '_ {
            $(
                #[doc = concat!("Asks `", stringify!($question), "`.")]
                pub fn $name(&mut self, $($arg: $type),*) -> Result<$result, Stop> {
                    match self.ask($question)? {
                        Answer::$answer(answer) => Ok(answer),
                        _ => Err(Stop::Nonsense("the answer is of another kind than the question")),
                    }
                }
            )*
        }
    };
}

typed_questions! {
    claim(source: Source, key: ClaimKey) -> Claim(Lookup<Arc<Claim>>) = Question::Claim(source, key);
    volume(source: Source, name: Text) -> Volume(Lookup<Arc<Volume>>) = Question::Volume(source, name);
    pods(claim: ClaimKey) -> Pods(Result<Vec<Pod>, Text>) = Question::Pods(claim);
    node(name: Text) -> Node(Lookup<()>) = Question::Node(name);
    class(name: Text) -> Class(Lookup<Arc<Class>>) = Question::Class(name);
    default_classes() -> DefaultClasses(Result<Vec<Text>, Text>) = Question::DefaultClasses;
    plugin(name: Text) -> Plugin(Option<Plugin>) = Question::Plugin(name);
    plugin_for_volume(name: Text) -> PluginMatch(PluginMatch) = Question::PluginForVolume(name);
    plugin_ready(plugin: Text, operation: PluginOperation) -> Ready(Result<(), Text>)
        = Question::PluginReady(plugin, operation);
    migration(plugin: Text) -> Migration(Migration) = Question::Migration(plugin);
    dynamic_provisioning() -> DynamicProvisioning(bool) = Question::DynamicProvisioning;
    operation(kind: OperationKind, uid: Uid) -> Operation(OperationState) = Question::Operation(kind, uid);
    access_sets(containing: AccessModes) -> AccessSets(Vec<AccessModes>) = Question::AccessSets(containing);
    candidates(query: Query, after: Option<Handle>, limit: u32) -> Page(Page)
        = Question::Candidates { query, after, limit };
    reserved_for(key: ClaimKey, uid: Uid) -> Reserved(Vec<Handle>) = Question::ReservedFor { key, uid };
    identify(handle: Handle) -> Identity(VolumeTarget) = Question::Identify(handle);
    describe(handle: Handle) -> Described(Arc<Volume>) = Question::Describe(handle);
    tallies(query: Query) -> Tallies(Vec<Tally>) = Question::Tallies(query);
    verdict(volume: Text) -> Verdict(MatchVerdict) = Question::Verdict(volume);
    reclaim(volume: Text) -> Reclaim(ReclaimVerdict) = Question::Reclaim(volume);
}
