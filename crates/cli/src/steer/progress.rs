//! How far a steered claim that has no volume yet is.

use bindery_core::Claim;
use serde_json::Value;

/// A volume that is reserved for a claim.
pub(crate) struct Reserved {
    pub(crate) volume: String,
    /// When its claimRef was written, by the API server's clock; `None` if that is not known.
    pub(crate) since: Option<String>,
}

impl Reserved {
    /// The reserved volume, by its JSON.
    pub(crate) fn of(volume: &Value) -> Self {
        let wrote = |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:claimRef"].is_object();
        let writers = volume["metadata"]["managedFields"].as_array().into_iter().flatten().filter(wrote);
        let since = writers.filter_map(|entry| entry["time"].as_str()).max().map(str::to_owned);
        Self { volume: volume["metadata"]["name"].as_str().unwrap_or_default().to_owned(), since }
    }
}

/// How far a steered claim that has no volume yet is.
pub(crate) enum Progress {
    /// This volume is reserved for it.
    Reserved(Reserved),
    /// This volume is chosen for it.
    Chosen(String),
    /// The scheduler chooses its volume.
    WaitsForPod,
    /// No volume is chosen.
    NotChosen,
}

impl Progress {
    /// The progress of a claim, by the volume that names it and by whether its class waits for a pod.
    pub(crate) fn of(claim: &Claim, reserved: Option<Reserved>, waits_for_pod: bool) -> Self {
        match (reserved, claim.choice.as_deref().filter(|choice| !choice.withdrawn)) {
            (Some(reserved), _) => Self::Reserved(reserved),
            (None, Some(choice)) => Self::Chosen(choice.volume.to_string()),
            (None, None) if waits_for_pod => Self::WaitsForPod,
            (None, None) => Self::NotChosen,
        }
    }

    /// Why the claim waits.
    pub(crate) fn sentence(&self) -> String {
        let sentence = match self {
            Self::Reserved(Reserved { since: Some(since), .. }) => {
                return format!("it is reserved, and waits for upstream's binder since {since}");
            }
            Self::Reserved(_) => "it is reserved; upstream's binder has not bound it yet",
            Self::Chosen(_) => "it is chosen, and not reserved yet",
            Self::WaitsForPod => {
                "its class waits for a pod; then the scheduler chooses among the volumes with its label"
            }
            Self::NotChosen => "no volume is chosen",
        };
        sentence.to_owned()
    }

    /// The volume that is reserved or chosen.
    pub(crate) fn into_volume(self) -> Option<String> {
        match self {
            Self::Reserved(Reserved { volume, .. }) | Self::Chosen(volume) => Some(volume),
            Self::WaitsForPod | Self::NotChosen => None,
        }
    }
}
