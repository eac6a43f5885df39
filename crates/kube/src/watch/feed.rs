//! Takes the objects of one kind to the intake.

use bindery_controller::Intake;
use bindery_core::{Claim, ClaimKey, Class, Text, Volume};
use bindery_store::{Kind, Observed, PodRecord};

use crate::decode::{self, DecodeError};
use crate::encoding::Object;

/// The intake, for one kind, with the list that is being read.
pub(super) struct Feed {
    kind: Kind,
    intake: Intake,
    listed: Listed,
}

#[derive(Default)]
struct Listed {
    volumes: Vec<(Text, Observed<Volume>)>,
    claims: Vec<(ClaimKey, Observed<Claim>)>,
    classes: Vec<(Text, Observed<Class>)>,
    pods: Vec<PodRecord>,
    nodes: Vec<Text>,
}

impl Feed {
    pub(super) fn new(kind: Kind, intake: Intake) -> Self {
        Self { kind, intake, listed: Listed::default() }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Where objects of the kind are listed.
    pub(super) fn path(&self) -> &'static str {
        match self.kind {
            Kind::Volume => "/api/v1/persistentvolumes",
            Kind::Claim => "/api/v1/persistentvolumeclaims",
            Kind::Class => "/apis/storage.k8s.io/v1/storageclasses",
            Kind::Pod => "/api/v1/pods",
            Kind::Node => "/api/v1/nodes",
        }
    }

    /// A list or a watch has failed, and is tried again.
    pub(super) fn failed(&self) {
        self.intake.watch_failed();
    }

    /// The version that was watched from is forgotten, and all is listed again.
    pub(super) fn expired(&self) {
        self.intake.watch_expired();
    }

    /// A list begins; what an unfinished one has brought is forgotten.
    pub(super) fn begin(&mut self) {
        self.listed = Listed::default();
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
