//! Takes the objects of one kind to the intake.

use bindery_controller::{Intake, ListTicket, WatchTicket};
use bindery_core::{Claim, ClaimKey, Class, Text, Version, Volume};
use bindery_store::{Kind, Observed, PodRecord};

use crate::decode::{self, DecodeError};
use crate::encoding::Object;

/// The intake, for one kind, with the list that is being read.
pub(super) struct Feed {
    kind: Kind,
    intake: Intake,
    listed: Listed,
    /// The requests that the list serves.
    ticket: Option<ListTicket>,
}

#[derive(Default)]
struct Listed {
    volumes: Vec<(Text, Observed<Volume>)>,
    claims: Vec<(ClaimKey, Observed<Claim>)>,
    classes: Vec<(Text, Observed<Class>)>,
    pods: Vec<PodRecord>,
    nodes: Vec<Text>,
}

/// Where objects of a kind are listed.
pub(super) fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Volume => "/api/v1/persistentvolumes",
        Kind::Claim => "/api/v1/persistentvolumeclaims",
        Kind::Class => "/apis/storage.k8s.io/v1/storageclasses",
        Kind::Pod => "/api/v1/pods",
        Kind::Node => "/api/v1/nodes",
    }
}

impl Feed {
    pub(super) fn new(kind: Kind, intake: Intake) -> Self {
        Self { kind, intake, listed: Listed::default(), ticket: None }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Where objects of the kind are listed.
    pub(super) fn path(&self) -> &'static str {
        path(self.kind)
    }

    /// A list or a watch has failed, and is tried again.
    pub(super) fn failed(&self) {
        self.intake.watch_failed();
    }

    /// The version that was watched from is forgotten, and all is listed again.
    pub(super) fn expired(&self) {
        self.intake.watch_expired();
    }

    /// Bytes have come.
    pub(super) fn heard(&self) {
        self.intake.freshness().heard(self.kind);
    }

    /// An event has told a version, and the store has what it told.
    pub(super) fn advanced(&self, version: &str) {
        self.intake.advanced(self.kind, &Version::from(version));
    }

    /// A bookmark or a complete list has told the version that the cache has reached.
    pub(super) fn reached(&self, version: &str) {
        self.intake.reached(self.kind, &Version::from(version));
    }

    /// Waits until a list of the kind is wanted.
    pub(super) async fn until_list_wanted(&self) {
        self.intake.freshness().until_list_wanted(self.kind).await;
    }

    /// The store has what changed before the watch was opened.
    pub(super) fn watching(&self, ticket: WatchTicket) {
        self.intake.freshness().watching(self.kind, ticket);
    }

    /// A list is about to be requested; what an unfinished one has brought is forgotten.
    pub(super) fn begin(&mut self) {
        self.listed = Listed::default();
        self.ticket = Some(self.intake.list_begins(self.kind));
    }

    /// The next object of the list.
    pub(super) fn list(&mut self, object: &Object) {
        let listed = &mut self.listed;
        let result = match self.kind {
            Kind::Volume => decode::volume(object).map(|volume| {
                vet_volume(&self.intake, &volume.0, &volume.1, object);
                listed.volumes.push(volume);
            }),
            Kind::Claim => decode::claim(object).map(|claim| {
                vet_claim(&self.intake, &claim.1, object);
                listed.claims.push(claim);
            }),
            Kind::Class => decode::class(object).map(|class| listed.classes.push(class)),
            Kind::Pod => decode::pod(object).map(|pod| {
                tell_unreadable(&pod, object);
                listed.pods.push(pod);
            }),
            Kind::Node => decode::name(object).map(|name| listed.nodes.push(name)),
        };
        self.check(result);
    }

    /// The list is complete: what is not in it is gone.
    pub(super) fn complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        match self.kind {
            Kind::Volume => self.intake.volumes(listed.volumes),
            Kind::Claim => self.intake.claims(listed.claims),
            Kind::Class => self.intake.classes(listed.classes),
            Kind::Pod => self.intake.pods(listed.pods),
            Kind::Node => self.intake.nodes(listed.nodes),
        }
        self.intake.synced(self.kind);
    }

    /// The store has the list of that version, and what changed while it was sent.
    pub(super) fn listed(&mut self, version: &str) {
        self.reached(version);
        if let Some(ticket) = self.ticket.take() {
            self.intake.freshness().list_complete(self.kind, ticket);
        }
    }

    /// An object was added or changed.
    pub(super) fn apply(&self, object: &Object) {
        let intake = &self.intake;
        let result = match self.kind {
            Kind::Volume => decode::volume(object).map(|(name, volume)| {
                vet_volume(intake, &name, &volume, object);
                intake.volume(name, volume);
            }),
            Kind::Claim => decode::claim(object).map(|(key, claim)| {
                vet_claim(intake, &claim, object);
                intake.claim(key, claim);
            }),
            Kind::Class => decode::class(object).map(|(name, class)| intake.class(name, class)),
            Kind::Pod => decode::pod(object).map(|pod| {
                tell_unreadable(&pod, object);
                intake.pod(pod);
            }),
            Kind::Node => decode::name(object).map(|name| intake.node(name)),
        };
        self.check(result);
    }

    /// An object is gone.
    pub(super) fn gone(&self, object: &Object) {
        let intake = &self.intake;
        let result = decode::key(object).map(|key| match self.kind {
            Kind::Volume => intake.volume_gone(&key.name),
            Kind::Claim => intake.claim_gone(&key),
            Kind::Class => intake.class_gone(&key.name),
            Kind::Pod => intake.pod_gone(&key.namespace, &key.name),
            Kind::Node => intake.node_gone(&key.name),
        });
        self.check(result);
    }

    fn check(&self, result: Result<(), DecodeError>) {
        if let Err(error) = result {
            tracing::error!(kind = %self.kind, %error, "an object without name is ignored");
        }
    }
}

/// Volumes and claims that cannot be read get an event; pods are not ours to tell.
fn tell_unreadable(pod: &PodRecord, object: &Object) {
    let PodRecord { namespace, name, content } = pod;
    if let Err(why) = content {
        let (object, uid) = (format_args!("pod {namespace}/{name}"), decode::uid(object));
        tracing::warn!(
            %object, uid, %why,
            "a pod cannot be read: until it can, or is gone, no volume of a claim of its namespace is recycled"
        );
    }
}

/// Has the vigil look at a volume before the store takes it.
fn vet_volume(intake: &Intake, name: &str, volume: &Observed<Volume>, object: &Object) {
    if let Some(vigil) = intake.vigil() {
        vigil.volume(name, volume, || decode::authors(object));
    }
}

fn vet_claim(intake: &Intake, claim: &Observed<Claim>, object: &Object) {
    if let Some(vigil) = intake.vigil() {
        vigil.claim(claim, || decode::authors(object));
    }
}
