//! Upstream's binder: the default engine in own mode, with upstream's caches and resync.

use std::sync::Arc;

use bindery_controller::{Binder, Configuration, Parts, Settings};
use bindery_engine::DefaultEngine;
use bindery_kit::upstream::Plain;
use bindery_store::Store;

use crate::law::Api;

pub(crate) fn binder(api: &Api) -> Arc<Binder<Plain<Api>>> {
    Arc::new(Binder::new(Parts {
        store: Arc::new(Store::new()),
        port: Plain(api.clone()),
        engine: Arc::new(DefaultEngine),
        configuration: Configuration::default(),
        settings: Settings::default(),
        journal: None,
    }))
}
