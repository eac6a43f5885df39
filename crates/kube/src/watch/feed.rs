//! Delivers the objects of one kind to the intake.

use std::collections::HashMap;

use bindery_controller::Intake;
use bindery_core::Version;
use bindery_store::{Delivered, Delivery, Kind, LazyAuthors, Object, ObjectKey};

use crate::decode::{self, DecodeError};
use crate::encoding::EncodedObject;

/// The intake, for one kind, with the list that is being read.
pub(super) struct Feed {
    pub(super) kind: Kind,
    pub(super) intake: Intake,
    listed: Vec<Delivered>,
    /// The objects that changed while the list was sent; `None` for those that are gone.
    late: HashMap<ObjectKey, Option<Delivered>>,
    /// Whether a list was delivered. The authors of a first list are not read: there is nothing to compare
    /// its objects with, and reading them takes as long as reading the objects.
    has_listed: bool,
}

/// Where objects of a kind are listed.
pub(super) fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Volume => "/api/v1/persistentvolumes",
        Kind::Claim => "/api/v1/persistentvolumeclaims",
        Kind::Class => "/apis/storage.k8s.io/v1/storageclasses",
        Kind::Pod => "/api/v1/pods",
        Kind::Node => "/api/v1/nodes",
        Kind::Namespace => "/api/v1/namespaces",
    }
}

impl Feed {
    pub(super) fn new(kind: Kind, intake: Intake) -> Self {
        Self { kind, intake, listed: Vec::new(), late: HashMap::new(), has_listed: false }
    }

    /// The cache has reached the version of a bookmark.
    pub(super) fn reached(&self, version: &str) {
        self.intake.deliver(Delivery::Bookmark { kind: self.kind, version: version.into() });
    }

    /// A list is about to be requested; the objects of an unfinished one are dropped.
    pub(super) fn begin(&mut self) {
        self.listed.clear();
        self.late.clear();
        self.intake.list_begins(self.kind);
    }

    /// The next object of the list.
    pub(super) fn list(&mut self, object: &EncodedObject) {
        self.listed.extend(self.decode_listed(object));
    }

    /// An object was added or changed while the list was sent.
    pub(super) fn list_late(&mut self, object: &EncodedObject) {
        if let Some(delivered) = self.decode_listed(object) {
            self.late.insert(delivered.object.key(), Some(delivered));
        }
    }

    /// An object was deleted while the list was sent.
    pub(super) fn list_gone(&mut self, object: &EncodedObject) {
        if let Some(key) = self.check(decode::object_key(self.kind, object)) {
            self.late.insert(key, None);
        }
    }

    /// The list of that version is complete.
    pub(super) fn listed(&mut self, version: &str) {
        let (mut objects, late) = (std::mem::take(&mut self.listed), std::mem::take(&mut self.late));
        if !late.is_empty() {
            objects.retain(|delivered| !late.contains_key(&delivered.object.key()));
            objects.extend(late.into_values().flatten());
        }
        self.has_listed = true;
        self.intake.deliver(Delivery::Listed { kind: self.kind, objects, version: version.into() });
    }

    /// An object was added or changed.
    pub(super) fn apply(&self, object: &EncodedObject, version: &str) {
        let Some(decoded) = self.decode(object) else { return };
        let object = object.clone();
        let authors = self.has_authors().then(|| LazyAuthors::new(move || decode::authors(&object)));
        self.deliver(Delivery::Applied(Delivered { object: decoded, authors }), version);
    }

    /// An object is gone.
    pub(super) fn gone(&self, object: &EncodedObject, version: &str) {
        if let Some(key) = self.check(decode::object_key(self.kind, object)) {
            self.deliver(Delivery::Gone(key), version);
        }
    }

    fn deliver(&self, delivery: Delivery, version: &str) {
        self.intake.deliver(delivery);
        if !version.is_empty() {
            self.intake.freshness().advanced(self.kind, &Version::from(version));
        }
    }

    /// An object of a list. Its authors are read at once, so that the bytes of the list can go. One that is
    /// known already says nothing new: the known one is delivered, so that its copy can go too.
    fn decode_listed(&self, object: &EncodedObject) -> Option<Delivered> {
        let decoded = self.decode(object)?;
        if let Some(object) = self.intake.known(&decoded) {
            return Some(Delivered { object, authors: None });
        }
        let has_authors = self.has_listed && self.has_authors();
        let authors = has_authors.then(|| decode::authors(object).into());
        Some(Delivered { object: decoded, authors })
    }

    /// Whether objects of the kind have fields that only binders write.
    fn has_authors(&self) -> bool {
        matches!(self.kind, Kind::Volume | Kind::Claim)
    }

    fn decode(&self, object: &EncodedObject) -> Option<Object> {
        let decoded = self.check(decode::object(self.kind, object, &self.intake.declared()))?;
        if let Object::Pod(pod) = &decoded
            && let Err(why) = &pod.content
        {
            let (name, uid) = (format_args!("pod {}/{}", pod.namespace, pod.name), decode::uid(object));
            // Volumes and claims that cannot be read get an event; pods are not Bindery's to report on.
            tracing::warn!(
                object = %name, uid, reason = %why,
                "a pod cannot be read: until it can, or is gone, no volume of a claim of its namespace is \
                 recycled"
            );
        }
        Some(decoded)
    }

    fn check<T>(&self, result: Result<T, DecodeError>) -> Option<T> {
        result
            .inspect_err(
                |error| tracing::error!(kind = %self.kind, %error, "an object without name is ignored"),
            )
            .ok()
    }
}
