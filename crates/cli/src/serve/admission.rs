//! Settings of admission: the level of each rule, and how much is reviewed at a time.

use std::sync::Arc;

use axum::Router;
use bindery_core::Text;
use bindery_webhook::{
    AdmissionMetrics, AdmissionSettings, Levels, PolicyReviewer, Reviewer, RuleLevel, SteeredClass, admission,
};

use super::mode::ModeArgument;
use crate::settings;

#[derive(clap::Args)]
pub(super) struct AdmissionArguments {
    /// Level of an admission rule: RULE=deny, RULE=warn or RULE=off. Repeat it, or separate several by
    /// commas; the last one for a rule counts. docs/admission.md lists the rules and their defaults.
    #[arg(
        long = "admission-rule",
        value_name = "RULE=LEVEL",
        env = "BINDERY_ADMISSION_RULE",
        value_delimiter = ','
    )]
    admission_rule: Vec<RuleLevel>,
    /// Most reviews at the same time. Further requests are allowed with a warning, and counted.
    #[arg(long, value_name = "N", env = "BINDERY_ADMISSION_IN_FLIGHT", default_value_t = 256,
          value_parser = settings::whole::<usize>(1..=100_000))]
    admission_in_flight: usize,
    /// The label that marks a volume as precious: admission warns of reclaim policy Delete on it.
    #[arg(long, value_name = "KEY=VALUE", env = "BINDERY_ADMISSION_PRECIOUS_LABEL",
          default_value = "bindery.dev/precious=true", value_parser = label)]
    admission_precious_label: (Text, Text),
    /// A class whose claims the webhook steers (`/mutate`): NAME, or NAME=static if its claims get volumes
    /// that exist, whatever provisioner it names. "" in quotation marks is the class of claims that want
    /// none. Repeat it, or separate several by commas. None by default, and none in mode observe.
    #[arg(long, value_name = "NAME[=static]", env = "BINDERY_STEER_CLASS", value_delimiter = ',')]
    steer_class: Vec<SteeredClass>,
}

impl AdmissionArguments {
    /// The router that answers reviews, for a replica in this mode.
    pub(super) fn router<R: Reviewer>(
        &self,
        mode: ModeArgument,
        reviewer: Arc<R>,
        metrics: &AdmissionMetrics,
        policies: Option<Arc<dyn PolicyReviewer>>,
    ) -> Router {
        let mut levels = Levels::new(self.admission_rule.iter().copied());
        let mut steered = self.steer_class.clone();
        if mode == ModeArgument::Observe {
            // No binder of Bindery's would bind steered claims.
            (levels, steered) = (levels.only_warning(), Vec::new());
        }
        let settings = AdmissionSettings {
            levels,
            steered,
            in_flight_max: self.admission_in_flight,
            precious: self.admission_precious_label.clone(),
            ..AdmissionSettings::default()
        };
        admission(reviewer, settings, metrics.clone(), policies)
    }
}

fn label(text: &str) -> Result<(Text, Text), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("it is not KEY=VALUE, such as bindery.dev/precious=true".to_owned()),
    }
}
