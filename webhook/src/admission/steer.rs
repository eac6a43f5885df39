//! Steering at admission: adds the requirement of [`bindery_core::steer`] to the selectors of new claims.
//!
//! `POST /mutate` takes an `AdmissionReview` of `admission.k8s.io/v1` and answers with a JSON patch. Which
//! namespaces are in scope is decided by the `namespaceSelector` of the MutatingWebhookConfiguration, which
//! classes by [`SteeredClass`]. The API server's own `MutatingAdmissionPolicy` of the chart does the same.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use bindery_core::steer::{steered_by, steering_key};
use bindery_core::{BindingMode, ClaimKey, Class, Lookup, NO_PROVISIONER, Text, named_cases};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::request::{AdmissionRequest, ObjectKind, Unreadable};
use super::response::{AdmissionResponse, CLAIM};
use super::wording::{Sentence, VALUE_MAX, clipped};

/// The annotation that takes precedence over `spec.storageClassName`.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Reason of the cause of a denial.
const STEERING: &str = "steering-key";
/// The operator of the requirement.
const EXISTS: &str = "Exists";
/// How the class `""` is written in a setting, where an empty text would be a value that was forgotten.
const NO_CLASS: &str = "\"\"";

/// A class whose claims are steered: `NAME`, or `NAME=static`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteeredClass {
    /// The name; `""` is the class of claims that want none.
    name: Text,
    /// Whether claims of it get volumes that exist already, whatever provisioner the class names.
    is_static: bool,
}

/// Why a text is not a setting of a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteeredClassError {
    /// It has no name.
    #[error("it is empty: name a class, or write {NO_CLASS} for claims whose class is empty")]
    Empty,
    /// What follows the name is unknown.
    #[error("{0:?} is not NAME or NAME=static, such as manual or manual=static")]
    Malformed(String),
}

impl FromStr for SteeredClass {
    type Err = SteeredClassError;

    fn from_str(text: &str) -> Result<Self, SteeredClassError> {
        let (name, is_static) = match text.trim().split_once('=') {
            None => (text.trim(), false),
            Some((name, "static")) => (name, true),
            Some(_) => return Err(SteeredClassError::Malformed(text.to_owned())),
        };
        match name {
            "" => Err(SteeredClassError::Empty),
            NO_CLASS => Ok(Self { name: "".into(), is_static }),
            _ => Ok(Self { name: name.into(), is_static }),
        }
    }
}

impl SteeredClass {
    /// Whether claims of it are steered, given the class itself. A provisioner would refuse their selector:
    /// for a class that waits for a pod the scheduler asks the provisioner where no volume has the label.
    fn steers(&self, class: &Lookup<Arc<Class>>) -> bool {
        match class {
            _ if self.name.is_empty() => true,
            Lookup::Found(class) => {
                let is_immediate = class.binding_mode == Some(BindingMode::Immediate);
                &*class.provisioner == NO_PROVISIONER || (self.is_static && is_immediate)
            }
            Lookup::Absent => self.is_static,
            Lookup::Unreadable(_) | Lookup::Failed(_) => false,
        }
    }
}

named_cases! {
    /// What was done about a claim.
    Steering {
        /// The requirement was added.
        Added = "added";
        /// An update had dropped the requirement; it was put back.
        Restored = "restored";
        /// Nothing: the claim is out of scope, or has the requirement.
        Left = "left";
        /// The claim is in scope and its names do not fit into a key; it passed with a warning.
        Unfit = "unfit";
        /// The selector has a key of another claim; the request was denied.
        Denied = "denied";
        /// The claim or its class could not be read; it passed with a warning.
        Unread = "unread";
    }
}

/// A claim, as far as it matters here.
#[derive(Deserialize)]
struct Claim {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    storage_class_name: Option<String>,
    volume_name: Option<String>,
    data_source: Option<IgnoredAny>,
    data_source_ref: Option<IgnoredAny>,
    selector: Option<Selector>,
}

/// `LabelSelector` of `meta/v1`.
#[derive(Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    #[serde(skip_serializing_if = "Option::is_none")]
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<Requirement>>,
}

#[derive(Clone, PartialEq, Deserialize, Serialize)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<Vec<String>>,
}

/// An operation of a JSON patch.
#[derive(Serialize)]
struct Operation<'a> {
    op: &'static str,
    path: &'static str,
    value: &'a Selector,
}

impl Selector {
    /// The requirements of its expressions.
    fn expressions(&self) -> &[Requirement] {
        self.match_expressions.as_deref().unwrap_or_default()
    }

    /// Whether it requires a key to exist.
    fn requires(&self, key: &str) -> bool {
        self.expressions().iter().any(|needed| needed.key == key && needed.operator == EXISTS)
    }

    /// A key that steers claims, other than by requiring `own` to exist.
    fn contradicting(&self, own: Option<&str>) -> Option<&str> {
        let of_labels = self.match_labels.iter().flatten().map(|(key, _)| (key, false));
        let of_expressions = self.expressions().iter().map(|needed| (&needed.key, needed.operator == EXISTS));
        let mut keys = of_labels.chain(of_expressions).filter(|(key, _)| steered_by(key).is_some());
        keys.find(|(key, exists)| !exists || own != Some(key)).map(|(key, _)| &**key)
    }
}

impl Claim {
    fn selector(&self) -> Cow<'_, Selector> {
        self.spec.selector.as_ref().map_or_else(Cow::default, Cow::Borrowed)
    }

    /// The class by name; `None` if the claim leaves it open, so that it may get a default class later.
    fn class(&self) -> Option<&str> {
        let beta = self.metadata.annotations.as_ref().and_then(|annotations| annotations.get(BETA_CLASS));
        beta.or(self.spec.storage_class_name.as_ref()).map(String::as_str)
    }

    /// Whether the claim says itself which volume or data it gets.
    fn names_its_volume(&self) -> bool {
        self.spec.volume_name.as_ref().is_some_and(|name| !name.is_empty())
            || self.spec.data_source.is_some()
            || self.spec.data_source_ref.is_some()
    }
}

/// What is done about the claim of a request, and the answer. `class` looks a class up.
pub(super) fn steer(
    request: &AdmissionRequest<'_>,
    classes: &[SteeredClass],
    class: impl FnOnce(&str) -> Lookup<Arc<Class>>,
) -> (Steering, AdmissionResponse) {
    let uid = &*request.uid;
    let left = || (Steering::Left, AdmissionResponse::allowed(uid));
    let (new, old) = match objects(request) {
        Ok(Some(objects)) => objects,
        Ok(None) => return left(),
        Err(why) => return (Steering::Unread, AdmissionResponse::warned(uid, &why.to_string())),
    };
    if new.metadata.deletion_timestamp.is_some() {
        return left();
    }
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let key = ClaimKey { namespace: request.namespace().into(), name: name.into() };
    let key = (!name.is_empty()).then(|| steering_key(&key)).flatten();
    let selector = new.selector();
    let is_changed = old.as_ref().is_none_or(|old| old.selector() != selector);
    if let Some(wrong) = selector.contradicting(key.as_deref()).filter(|_| is_changed) {
        return (Steering::Denied, denied(uid, name, wrong));
    }
    match (key, old) {
        (Some(key), _) if selector.requires(&key) => left(),
        (Some(key), Some(old)) if old.selector().requires(&key) => {
            (Steering::Restored, patched(uid, selector.into_owned(), key))
        }
        (_, Some(_)) => left(),
        (key, None) => match in_scope(&new, classes, class) {
            Ok(false) => left(),
            Ok(true) => key.map_or_else(
                || (Steering::Unfit, unfit(uid, name)),
                |key| (Steering::Added, patched(uid, selector.clone().into_owned(), key)),
            ),
            Err(why) => (Steering::Unread, AdmissionResponse::warned(uid, &why)),
        },
    }
}

/// The new claim and, for an update, the old one; `None` if the request is about nothing that is steered.
fn objects(request: &AdmissionRequest<'_>) -> Result<Option<(Claim, Option<Claim>)>, Unreadable> {
    let Some(is_update) = request.is_update().filter(|_| request.kind() == ObjectKind::Claim) else {
        return Ok(None);
    };
    request.check_parts()?;
    let new = request.new_as().map_err(Unreadable::Object)?;
    let old = is_update.then(|| request.old_as()).transpose().map_err(Unreadable::OldObject)?;
    Ok(Some((new, old)))
}

/// Whether a new claim is to be steered.
fn in_scope(
    claim: &Claim,
    classes: &[SteeredClass],
    class: impl FnOnce(&str) -> Lookup<Arc<Class>>,
) -> Result<bool, String> {
    let listed = claim.class().and_then(|name| classes.iter().find(|listed| *listed.name == *name));
    let Some(listed) = listed.filter(|_| !claim.names_its_volume()) else { return Ok(false) };
    let found = class(&listed.name);
    match &found {
        Lookup::Unreadable(why) | Lookup::Failed(why) if !listed.name.is_empty() => {
            Err(format!("Bindery does not steer this claim: its class cannot be read: {why}"))
        }
        _ => Ok(listed.steers(&found)),
    }
}

/// The request passes, and the selector gets the requirement.
fn patched(uid: &str, mut selector: Selector, key: String) -> AdmissionResponse {
    let needed = Requirement { key, operator: EXISTS.to_owned(), values: None };
    selector.match_expressions.get_or_insert_default().push(needed);
    // `add` replaces a field that is there.
    let operation = Operation { op: "add", path: "/spec/selector", value: &selector };
    AdmissionResponse::allowed(uid).with_patch(&[operation])
}

/// The request passes with a warning: no key has room for the names.
fn unfit(uid: &str, name: &str) -> AdmissionResponse {
    let why = if name.is_empty() {
        "Bindery does not steer this claim: its name is generated later; give it a name"
    } else {
        "Bindery does not steer this claim: its name and namespace are too long for a label key"
    };
    AdmissionResponse::warned(uid, why)
}

fn denied(uid: &str, name: &str, wrong: &str) -> AdmissionResponse {
    let text = format!(
        "{} is Bindery's and steers a claim of another name, or with another operator than Exists; leave it \
         out",
        clipped(wrong, VALUE_MAX)
    );
    let sentence = Sentence { field: "spec.selector", text };
    AdmissionResponse::invalid(uid, CLAIM, name, STEERING, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_a_class_is_its_name_and_whether_it_is_static() {
        let class = |name: &str, is_static| Ok(SteeredClass { name: name.into(), is_static });
        for (text, read) in [
            ("manual", class("manual", false)),
            (" manual=static ", class("manual", true)),
            ("\"\"", class("", false)),
            ("", Err(SteeredClassError::Empty)),
            ("=static", Err(SteeredClassError::Empty)),
            ("manual=yes", Err(SteeredClassError::Malformed("manual=yes".to_owned()))),
        ] {
            assert_eq!(text.parse(), read, "{text}");
        }
    }
}
