//! A cluster whose claims are steered: its objects, and a binder in mode steer.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bindery_controller::{Binder, Configuration, Mode, Parts, Settings};
use bindery_core::steer::{RESERVED_FOR, Reservation, released_label, steering_key};
use bindery_core::{Claim, Volume};
use bindery_engine::DefaultEngine;
use bindery_kube::{ApiClient, ApiPort, Events, decode, read, system_clock};
use bindery_store::{Delivery, Kind, Store};
use serde_json::{Value, json};

use crate::cluster::{ClusterArguments, explained};
use crate::objects::Resource;

/// What says on a volume that a claim may have it, whatever policies say.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    /// The annotation of a reservation, before the reservation is made.
    Annotation,
    /// The label that steers the claim: the scheduler chooses among the volumes that have it.
    Label,
}

/// The objects of a cluster, as they were read last, and a binder that reserves without policies.
pub(super) struct Cluster {
    client: ApiClient,
    binder: Binder<ApiPort>,
}

impl Cluster {
    pub(super) async fn connect(arguments: &ClusterArguments) -> Result<Self> {
        Ok(Self::of(arguments.client().await?))
    }

    pub(super) fn of(client: ApiClient) -> Self {
        // What Bindery does here is printed.
        let (events, _) = Events::new(client.clone());
        let binder = Binder::new(Parts {
            store: Arc::new(Store::new()),
            port: ApiPort::new(client.clone(), system_clock(), events),
            engine: Arc::new(DefaultEngine),
            configuration: Configuration::default(),
            settings: Settings { mode: Mode::Steer, ..Settings::default() },
            journal: None,
        });
        Self { client, binder }
    }

    pub(super) fn binder(&self) -> &Binder<ApiPort> {
        &self.binder
    }

    pub(super) fn store(&self) -> &Store {
        self.binder.store()
    }

    /// Reads all objects that decisions depend on. Returns the volumes.
    pub(super) async fn read(&self) -> Result<Vec<Value>> {
        let mut volumes = Vec::new();
        for (kind, resource, path) in [
            (Kind::Class, Resource::Class, Resource::Class.collection("")),
            (Kind::Pod, Resource::Pod, "/api/v1/pods".to_owned()),
            (Kind::Node, Resource::Node, Resource::Node.collection("")),
            (Kind::Volume, Resource::Volume, Resource::Volume.collection("")),
            (Kind::Claim, Resource::Claim, "/api/v1/persistentvolumeclaims".to_owned()),
        ] {
            let declared = self.binder.intake().declared();
            let objects = read::list(&self.client, &path).await.map_err(explained(RIGHTS))?.into_iter();
            let objects: Vec<_> = objects.map(|object| resource.complete(object)).collect();
            let decoded = objects.iter().map(|object| decode::object(kind, object, &declared));
            self.store().deliver(Delivery::listed(kind, decoded.collect::<Result<Vec<_>, _>>()?, "1"));
            if kind == Kind::Volume {
                volumes = objects;
            }
        }
        Ok(volumes)
    }

    /// Marks a volume for a claim, in the version that was read.
    pub(super) async fn mark(&self, volume: &Volume, claim: &Claim, mark: Mark) -> Result<()> {
        let mut metadata = json!({"uid": *volume.uid.0, "resourceVersion": *volume.version.0});
        match mark {
            Mark::Annotation => {
                metadata["annotations"] = json!({RESERVED_FOR: Reservation::released_to(claim).annotation()});
            }
            Mark::Label => {
                let label = steering_key(&claim.key).context("the claim's names do not fit into a label")?;
                metadata["labels"] = json!({label: released_label(claim)});
            }
        }
        let patch = json!({"metadata": metadata});
        let path = Resource::Volume.collection("");
        let object =
            read::merge(&self.client, &path, &volume.name, &patch).await.map_err(explained(RIGHTS))?;
        let declared = self.binder.intake().declared();
        let object = decode::object(Kind::Volume, &Resource::Volume.complete(object), &declared)?;
        self.store().deliver(Delivery::applied(object));
        Ok(())
    }

    /// Removes the label from the namespace, or from all. Returns the names of those that had it.
    pub(super) async fn opt_out(&self, label: &str, namespace: Option<&str>) -> Result<Vec<String>> {
        let path = Resource::Namespace.collection("");
        let namespaces = read::list(&self.client, &path).await.map_err(explained(RIGHTS))?;
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let has_label = |object: &&Value| object["metadata"]["labels"][label].is_string();
        let labelled = namespaces.iter().filter(has_label).map(name);
        let mut changed = Vec::new();
        for name in labelled.filter(|name| namespace.is_none_or(|namespace| namespace == name)) {
            let patch = json!({"metadata": {"labels": {label: null}}});
            read::merge(&self.client, &path, &name, &patch).await.map_err(explained(RIGHTS))?;
            changed.push(name);
        }
        Ok(changed)
    }
}

/// What `steer` reads and writes, for the error of a user that may not.
const RIGHTS: &str = "`bindery steer` lists volumes, claims, classes, pods and nodes; `release` also gets \
                      and patches volumes and claims, and lists and patches namespaces";
