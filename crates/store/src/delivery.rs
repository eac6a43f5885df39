//! What watches deliver: objects of six kinds, each decoded once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bindery_core::{Claim, ClaimKey, Class, Text, Uid, Version, Volume, named_cases};

/// One delivery of the watch of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// An object was added or changed.
    Applied(Delivered),
    /// An object is gone.
    Gone(ObjectKey),
    /// A complete list of a kind, consistent and as of its version. Objects that it lacks are gone.
    ///
    /// A list is believed even where it is older than the cache: after a restore of etcd versions start again
    /// below those that were seen. It also ends own writes that were answered before the list began
    /// ([`crate::Store::list_begins`]).
    Listed {
        /// The kind of all objects.
        kind: Kind,
        /// The objects, in any order.
        objects: Vec<Delivered>,
        /// `metadata.resourceVersion` of the list.
        version: Version,
    },
    /// A bookmark: the watch has delivered every change up to this version.
    Bookmark {
        /// The kind of the watch.
        kind: Kind,
        /// The version.
        version: Version,
    },
}

/// An object with the writers of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The object.
    pub object: Object,
    /// The writers of the fields that only binders write, where they can be read. A first list comes without
    /// them: there is nothing to compare its objects with.
    pub authors: Option<LazyAuthors>,
}

/// An object as a watch delivers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A volume, by name.
    Volume(Text, Observed<Volume>),
    /// A claim, by key.
    Claim(ClaimKey, Observed<Claim>),
    /// A class, by name. Classes carry no version here: the newest delivery wins.
    Class(Text, Observed<Class>),
    /// A pod. The newest delivery wins.
    Pod(ObservedPod),
    /// The name of a node.
    Node(Text),
    /// A namespace, by name, with its labels. The newest delivery wins.
    Namespace(Text, Arc<BTreeMap<Text, Text>>),
}

/// Names an object of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKey {
    /// A volume, by name.
    Volume(Text),
    /// A claim.
    Claim(ClaimKey),
    /// A class, by name.
    Class(Text),
    /// A pod.
    Pod {
        /// `metadata.namespace`.
        namespace: Text,
        /// `metadata.name`.
        name: Text,
    },
    /// A node, by name.
    Node(Text),
    /// A namespace, by name.
    Namespace(Text),
}

/// The last writer of a field, by `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Author {
    /// A replica of Bindery.
    Bindery,
    /// Another program, by the name that it gave.
    Other(Text),
    /// The object does not say.
    #[default]
    Unknown,
}

/// The last writers of the fields of a volume or claim that tell a binder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authors {
    /// Of `status.phase`; only binders write it.
    pub phase: Author,
    /// Of the bind-completed annotation of a claim; only binders write it.
    pub bind_completed: Author,
    /// Of `spec.claimRef.uid` of a volume. Users, the scheduler and provisioners write it too.
    pub claim_ref: Author,
}

/// The authors of one object, read when they are needed. Most deliveries are echoes of own writes, whose
/// authors are not needed, and reading them takes as long as reading the object.
#[derive(Clone)]
pub struct LazyAuthors(Arc<dyn Fn() -> Authors + Send + Sync>);

impl LazyAuthors {
    /// Authors that `read` reads.
    pub fn new(read: impl Fn() -> Authors + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Reads the authors.
    pub fn read(&self) -> Authors {
        (self.0)()
    }
}

impl From<Authors> for LazyAuthors {
    fn from(authors: Authors) -> Self {
        Self::new(move || authors.clone())
    }
}

impl fmt::Debug for LazyAuthors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl PartialEq for LazyAuthors {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl Eq for LazyAuthors {}

/// An object, or what is known of it where it cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed<T> {
    /// It was understood.
    Readable(Arc<T>),
    /// It exists and cannot be parsed, so it is never treated as absent. Boxed, because it is rare and there
    /// are hundreds of thousands of objects.
    Unreadable(Box<Unreadable>),
}

/// What is known of an object that cannot be parsed; its name or key is given beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// The field, its value and the remedy.
    pub why: Text,
}

/// A pod as a watch delivers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPod {
    /// `metadata.namespace`.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
    /// The rest of it, or why it cannot be parsed. A pod that cannot be parsed may use
    /// every claim of its namespace.
    pub content: Result<PodContent, Text>,
}

/// A pod, reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContent {
    /// Names of the claims that it references, directly or through generic ephemeral volumes
    /// (`<pod>-<volume>`), as in upstream's `pod-pvc-index`.
    pub claims: Vec<Text>,
    /// Whether `spec.nodeName` is set.
    pub scheduled: bool,
    /// Whether it has ended (upstream's `IsPodTerminated`).
    pub terminated: bool,
}

named_cases! {
    /// The kinds of objects that are watched.
    Kind {
        /// PersistentVolume.
        Volume = "PersistentVolume";
        /// PersistentVolumeClaim.
        Claim = "PersistentVolumeClaim";
        /// StorageClass.
        Class = "StorageClass";
        /// Pod.
        Pod = "Pod";
        /// Node.
        Node = "Node";
        /// Namespace. Watched only while a policy reads labels of namespaces.
        Namespace = "Namespace";
    }
}

impl Kind {
    /// The kinds that are watched whatever policies are loaded.
    pub const ALWAYS: [Self; 5] = [Self::Volume, Self::Claim, Self::Class, Self::Pod, Self::Node];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Delivery {
    /// An object was added or changed; its writers are not known.
    pub fn applied(object: impl Into<Object>) -> Self {
        Self::Applied(object.into().into())
    }

    /// A complete list; the writers are not known.
    pub fn listed<O: Into<Object>>(
        kind: Kind,
        objects: impl IntoIterator<Item = O>,
        version: impl Into<Version>,
    ) -> Self {
        let objects = objects.into_iter().map(|object| object.into().into()).collect();
        Self::Listed { kind, objects, version: version.into() }
    }

    /// The kind of what is delivered.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Applied(delivered) => delivered.object.key().kind(),
            Self::Gone(key) => key.kind(),
            Self::Listed { kind, .. } | Self::Bookmark { kind, .. } => *kind,
        }
    }

    /// The objects that are delivered.
    pub fn objects(&self) -> &[Delivered] {
        match self {
            Self::Applied(delivered) => std::slice::from_ref(delivered),
            Self::Listed { objects, .. } => objects,
            Self::Gone(_) | Self::Bookmark { .. } => &[],
        }
    }

    pub(crate) fn objects_mut(&mut self) -> &mut [Delivered] {
        match self {
            Self::Applied(delivered) => std::slice::from_mut(delivered),
            Self::Listed { objects, .. } => objects,
            Self::Gone(_) | Self::Bookmark { .. } => &mut [],
        }
    }
}

impl Object {
    /// Names the object.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Volume(name, _) => ObjectKey::Volume(name.clone()),
            Self::Claim(key, _) => ObjectKey::Claim(key.clone()),
            Self::Class(name, _) => ObjectKey::Class(name.clone()),
            Self::Pod(pod) => ObjectKey::Pod { namespace: pod.namespace.clone(), name: pod.name.clone() },
            Self::Node(name) => ObjectKey::Node(name.clone()),
            Self::Namespace(name, _) => ObjectKey::Namespace(name.clone()),
        }
    }
}

impl ObjectKey {
    fn kind(&self) -> Kind {
        match self {
            Self::Volume(_) => Kind::Volume,
            Self::Claim(_) => Kind::Claim,
            Self::Class(_) => Kind::Class,
            Self::Pod { .. } => Kind::Pod,
            Self::Node(_) => Kind::Node,
            Self::Namespace(_) => Kind::Namespace,
        }
    }
}

impl From<Object> for Delivered {
    fn from(object: Object) -> Self {
        Self { object, authors: None }
    }
}

impl From<Arc<Volume>> for Object {
    fn from(volume: Arc<Volume>) -> Self {
        Self::Volume(volume.name.clone(), Observed::Readable(volume))
    }
}

impl From<Arc<Claim>> for Object {
    fn from(claim: Arc<Claim>) -> Self {
        Self::Claim(claim.key.clone(), Observed::Readable(claim))
    }
}

impl From<Arc<Class>> for Object {
    fn from(class: Arc<Class>) -> Self {
        Self::Class(class.name.clone(), Observed::Readable(class))
    }
}

impl From<Volume> for Object {
    fn from(volume: Volume) -> Self {
        Arc::new(volume).into()
    }
}

impl From<Claim> for Object {
    fn from(claim: Claim) -> Self {
        Arc::new(claim).into()
    }
}

impl From<Class> for Object {
    fn from(class: Class) -> Self {
        Arc::new(class).into()
    }
}

impl From<ObservedPod> for Object {
    fn from(pod: ObservedPod) -> Self {
        Self::Pod(pod)
    }
}

/// An object with an identity and a version.
pub(crate) trait Identified {
    /// `metadata.uid`.
    fn uid(&self) -> &Uid;
    /// `metadata.resourceVersion`.
    fn version(&self) -> &Version;
}

impl Identified for Volume {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn version(&self) -> &Version {
        &self.version
    }
}

impl Identified for Claim {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn version(&self) -> &Version {
        &self.version
    }
}

impl<T: Identified> Identified for Observed<T> {
    fn uid(&self) -> &Uid {
        match self {
            Self::Readable(object) => object.uid(),
            Self::Unreadable(object) => &object.uid,
        }
    }

    fn version(&self) -> &Version {
        match self {
            Self::Readable(object) => object.version(),
            Self::Unreadable(object) => &object.version,
        }
    }
}
