//! Settings of recycling.

use bindery_kube::plugins::{RECYCLER_IMAGE, Recycler, RecyclerSettings, TemplateError};
use bindery_kube::{ApiClient, Events, system_clock};

/// Recycling needs rights that no other task needs: to create, patch and delete pods in the namespace
/// `default`.
#[derive(clap::Args)]
pub(super) struct RecyclerArguments {
    /// Scrub volumes of policy Recycle by a pod, and make them available again. With `false`, a volume of
    /// that policy becomes Failed when its claim is deleted, and keeps its data.
    #[arg(long, value_name = "true|false", env = "BINDERY_RECYCLE", default_value_t = true,
          action = clap::ArgAction::Set)]
    recycle: bool,
    /// Image of the pods that scrub volumes; it needs `/bin/sh`, `find` and `ls`.
    #[arg(long, value_name = "IMAGE", env = "BINDERY_RECYCLER_IMAGE", default_value = RECYCLER_IMAGE)]
    recycler_image: String,
}

impl RecyclerArguments {
    /// The recycler of a plugin; `None` if recycling is off.
    pub(super) fn recycler(
        &self,
        client: &ApiClient,
        events: &Events,
        settings: RecyclerSettings,
    ) -> Result<Option<Recycler>, TemplateError> {
        let settings = settings.with_image(&self.recycler_image);
        let recycler = || Recycler::new(client.clone(), system_clock(), events.clone(), settings);
        self.recycle.then(recycler).transpose()
    }
}
