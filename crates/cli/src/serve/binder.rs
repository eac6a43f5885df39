//! The binder of a replica.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bindery_controller::{Binder, Configuration, Parts, Plugin, Port as _, Settings};
use bindery_kube::plugins::{HostPath, Nfs, RecyclerSettings};
use bindery_kube::{ApiClient, ApiPort, Events, Template, system_clock};
use bindery_store::Store;

use super::Arguments;
use super::components::Components;
use super::mode::ModeArgument;
use crate::journal::recording::Recording;

/// Makes the binder of a replica, with the plugins of its mode.
pub(super) fn binder(
    arguments: &Arguments,
    client: &ApiClient,
    events: &Events,
    Components { engine, policies, shadows }: Components,
    recording: Option<&Recording>,
) -> Result<Binder<ApiPort>> {
    let recycler = |settings| arguments.recycler.recycler(client, events, settings);
    let host_path =
        HostPath::new(client.clone(), arguments.host_path.clone(), recycler(RecyclerSettings::host_path())?);
    let nfs = Nfs::new(recycler(RecyclerSettings::nfs())?);
    let plugins: [Arc<dyn Plugin<Template>>; 2] = [Arc::new(host_path), Arc::new(nfs)];
    let plugins = plugins.into_iter().filter(|_| arguments.mode != ModeArgument::Steer);
    let settings = Settings::default();
    let binder = Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: ApiPort::new(client.clone(), system_clock(), events.clone()),
        engine,
        configuration: Configuration {
            plugins: Arc::new(plugins.collect()),
            policies,
            shadows,
            ..Configuration::default()
        },
        settings: Settings {
            mode: arguments.mode.into(),
            in_flight_max: arguments.in_flight,
            shutdown_grace: settings.shutdown_grace.min(arguments.lease.settings().grace()),
            event_refresh: Duration::from_secs(arguments.event_refresh),
            watches_namespaces: arguments.policy_objects.policy_objects,
            ..settings
        },
        journal: recording.map(Recording::sink),
    });
    binder.port().declare(binder.intake().declared());
    Ok(binder)
}
