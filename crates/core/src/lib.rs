//! Volumes and claims as plain data, the contract between a decision engine and its host, and the guard that
//! checks every decision.
//!
//! Read in this order:
//!
//! 1. [`Volume`], [`Claim`], [`Class`]: objects of the API server, reduced to the fields that decisions need.
//! 2. [`Request`]: what an engine has to decide.
//! 3. [`Cluster`]: what an engine may ask while it decides, as [`Question`]s and [`Answer`]s, and how much
//!    ([`DecisionLimits`]).
//! 4. [`Decision`]: its result, as [`Action`]s that leave nothing to choose.
//! 5. [`guard`]: the checks that hold for every engine.
//!
//! # Guarantees
//!
//! No IO, no clock, no environment, no randomness, no global state; maps are ordered. Everything here
//! compiles natively and to WebAssembly, and means the same in both.

mod access;
mod budget;
mod claim;
mod class;
mod cluster;
mod columns;
mod decision;
mod event;
mod evidence;
mod facts;
mod finding;
pub mod guard;
mod ident;
mod label;
mod lookup;
mod named;
mod operation;
mod quantity;
mod reason;
mod request;
mod selector;
mod siblings;
pub mod steer;
mod text;
mod unrecorded;
mod verdict;
mod volume;
mod volume_index;

pub use access::{AccessMode, AccessModes};
pub use budget::{DecisionLimits, QuestionBudget};
pub use claim::{Claim, ClaimAnnotations, ClaimPhase, ClaimStatus};
pub use class::{BindingMode, Class};
pub use cluster::{
    Answer, Cluster, Engine, EngineFault, Migration, Page, Plugin, PluginMatch, PluginOperation, Pod, Query,
    Question, Slot, Source, Stop,
};
pub use columns::{Cell, ColumnSet, VolumeRow};
pub use decision::{
    Action, CapacityChange, Clear, Decision, Edit, Failure, FinalizerEdit, Follows, Message, Outcome,
    PluginFound, Step,
};
pub use event::{Event, EventKind, EventType, Mismatch, Regarding};
pub use evidence::{Evidence, Exchange, Recorder, Replayer};
pub use facts::{ClaimFact, ColumnRequirement, Declared, Facts, Narrowed, VolumeFact};
pub use finding::{Finding, Rule};
pub use ident::{ClaimKey, ClaimTarget, Handle, Key, Text, Timestamp, Uid, Version, VolumeTarget};
pub use label::{is_dns_label, is_label_value, is_subdomain};
pub use lookup::Lookup;
pub use operation::{Operation, OperationKind, OperationState, Point, Progress, Returned};
pub use quantity::{Notation, NotationError, Quantity, QuantityError, QuantityFormat};
pub use reason::{NEAREST_MAX, Reason, Tally};
pub use request::{Request, Subject};
pub use selector::{Requirement, Selector, SelectorOperator};
pub use siblings::{Counted, Counts, Siblings, Spread};
pub use steer::{Choice, Reservation, SteerWrite};
pub use verdict::{Fate, GuardRead, GuardVerdict, MatchVerdict, ReclaimVerdict};
pub use volume::{ClaimRef, ReclaimPolicy, Volume, VolumeAnnotations, VolumeMode, VolumePhase};
pub use volume_index::{RelatedLookup, Scanned, VolumeIndex};

/// Finalizer of this controller on in-tree, dynamically provisioned volumes with policy Delete
/// (KEP-2644, `PVDeletionInTreeProtectionFinalizer`).
pub const FINALIZER_IN_TREE: &str = "kubernetes.io/pv-controller";
/// Finalizer of the external provisioner (KEP-2644, `PVDeletionProtectionFinalizer`). This controller only
/// removes it, when a CSI migration is rolled back.
pub const FINALIZER_EXTERNAL: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Annotation of a volume: what reclaimers read of the claim that it is bound to.
pub const CLAIM_FACTS: &str = "bindery.dev/claim-facts";
/// Annotation of a volume: the reclaim policy that it had before a reclaimer set another one, a space, and
/// the UID of the claim that was gone then. A person may write `kept` instead.
pub const RECLAIM_POLICY_BEFORE: &str = "bindery.dev/reclaim-policy-before";
/// Prefix of the names of in-tree plugins.
pub const IN_TREE_PREFIX: &str = "kubernetes.io/";
/// Provisioner of classes whose volumes are made by hand. It has an in-tree name, but is never a plugin.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
