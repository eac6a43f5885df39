//! `metadata.managedFields`: the managers of an object, and the fields that each one owns.
//!
//! As upstream's API server with `DefaultTrackOnCreateProbability` 0, the simulator follows managers from the
//! first server-side apply on; all earlier fields then belong to `before-first-apply`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::typed::Changes;
use super::{FieldSet, Type};
use crate::http::route::Call;
use crate::object;
use crate::status::{ApiError, ApiResult};

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// Fields of the metadata that no manager owns (`stripMeta` of apimachinery).
const UNOWNED_METADATA: [&str; 8] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
];

/// A `ManagedFieldsEntry`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    manager: String,
    operation: String,
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
    fields_type: String,
    #[serde(rename = "fieldsV1")]
    fields: FieldSet,
}

impl Owner {
    fn new(call: &Call, operation: &str, manager: &str) -> Self {
        Owner {
            operation: operation.to_owned(),
            manager: manager.to_owned(),
            api_version: call.resource.api_version(),
            subresource: call.subresource.clone(),
            fields_type: "FieldsV1".to_owned(),
            ..Owner::default()
        }
    }

    fn identity(&self) -> [&str; 3] {
        [&self.operation, &self.manager, &self.subresource]
    }

    /// The order of the list.
    fn order(&self) -> [&str; 4] {
        [&self.operation, &self.time, &self.manager, &self.subresource]
    }

    /// The owner as messages name it (`printManager` of apimachinery).
    fn title(&self) -> String {
        let mut title = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            title += &format!(" with subresource {:?}", self.subresource);
        }
        if self.operation == UPDATE {
            title += &format!(" using {}", self.api_version);
        }
        title
    }
}

/// The owners of an object's fields.
struct Owners(Vec<Owner>);

impl Owners {
    /// The owners of an object that was applied before.
    fn recorded(object: &Value) -> Option<Owners> {
        let recorded = object::meta_field(object, "managedFields")?;
        serde_json::from_value(recorded.clone()).ok().map(Owners)
    }

    /// The owner of all fields of an object that was never applied.
    fn before_first_apply(call: &Call, live: &Value) -> Owners {
        let mut owner = Owner::new(call, UPDATE, "before-first-apply");
        owner.subresource.clear();
        owner.fields = Type::of(call.resource).changes(Some(&json!({})), Some(live)).set;
        strip(call, &mut owner.fields);
        Owners(vec![owner])
    }

    /// Takes an owner out of the list; an unknown one owns nothing.
    fn take(&mut self, wanted: Owner) -> Owner {
        let place = self.0.iter().position(|owner| owner.identity() == wanted.identity());
        place.map_or(wanted, |place| self.0.remove(place))
    }

    /// The fields of each owner that a write changes.
    fn conflicts(&self, changes: &Changes) -> Vec<(String, FieldSet)> {
        let changed = |owner: &Owner| (owner.title(), owner.fields.intersection(&changes.set));
        self.0.iter().map(changed).filter(|(_, fields)| !fields.is_empty()).collect()
    }

    /// The list after a write by one more owner. The other owners lose the fields that it changed.
    fn after(mut self, changes: &Changes, writer: Owner) -> Value {
        for owner in &mut self.0 {
            owner.fields = owner.fields.difference(&changes.set).difference(&changes.removed);
        }
        self.0.push(writer);
        self.0.retain(|owner| !owner.fields.is_empty());
        self.0.sort_by(|left, right| left.order().cmp(&right.order()));
        json!(self.0)
    }
}

/// The object after a server-side apply, with its owners.
///
/// # Errors
///
/// When another manager owns a field that changes, unless the request says `force`.
pub(crate) fn apply(call: &Call, live: Option<&Value>, applied: Value, now: &str) -> ApiResult<Value> {
    let ty = Type::of(call.resource);
    let mut owners = match live {
        Some(live) => Owners::recorded(live).unwrap_or_else(|| Owners::before_first_apply(call, live)),
        None => Owners(Vec::new()),
    };
    let mut live = live.cloned().unwrap_or_else(|| json!({}));
    object::meta_mut(&mut live).remove("managedFields");
    let mut fields = ty.fields(&applied);
    strip(call, &mut fields);
    let mut writer = owners.take(Owner::new(call, APPLY, call.query.get("fieldManager")));
    let mut merged = ty.merge(live.clone(), applied);
    // What the manager applied before, and neither it nor another one owns now.
    let owned = owners.0.iter().fold(fields.clone(), |all, owner| all.union(&owner.fields));
    let dropped = writer.fields.with_parents().difference(&owned.with_parents());
    ty.remove(&mut merged, &dropped);
    let changes = changes(call, &live, &merged);
    let conflicts = owners.conflicts(&changes);
    if !conflicts.is_empty() && !call.query.flag("force") {
        return Err(refusal(&conflicts));
    }
    writer.fields = fields;
    if live != merged {
        now.clone_into(&mut writer.time);
    }
    let owners = owners.after(&changes, writer);
    object::meta_mut(&mut merged).insert("managedFields".to_owned(), owners);
    Ok(merged)
}

/// `managedFields` after a write other than an apply; `None` if the object was never applied.
pub(crate) fn after_update(call: &Call, old: &Value, new: &Value, now: &str) -> Option<Value> {
    let mut owners = Owners::recorded(old)?;
    let mut writer = owners.take(Owner::new(call, UPDATE, call.manager()));
    let changes = changes(call, old, new);
    writer.fields = writer.fields.difference(&changes.removed).union(&changes.set);
    if !changes.set.is_empty() {
        now.clone_into(&mut writer.time);
    }
    Some(owners.after(&changes, writer))
}

fn changes(call: &Call, old: &Value, new: &Value) -> Changes {
    let mut changes = Type::of(call.resource).changes(Some(old), Some(new));
    strip(call, &mut changes.set);
    strip(call, &mut changes.removed);
    changes
}

/// Removes the fields that no manager owns, and those that a request to this subresource does not write.
fn strip(call: &Call, fields: &mut FieldSet) {
    for field in ["f:apiVersion", "f:kind"] {
        fields.children.remove(field);
    }
    if call.resource.has_status {
        let other = if call.subresource == "status" { "f:spec" } else { "f:status" };
        fields.children.remove(other);
    }
    if let Some(mut metadata) = fields.children.remove("f:metadata") {
        metadata.member = false;
        metadata.children.retain(|field, _| !UNOWNED_METADATA.contains(&field.as_str()));
        fields.add("f:metadata".to_owned(), metadata);
    }
}

/// The refusal of an apply (`NewConflictError` of apimachinery).
fn refusal(conflicts: &[(String, FieldSet)]) -> Box<ApiError> {
    let (mut causes, mut texts) = (Vec::new(), Vec::new());
    for (owner, fields) in conflicts {
        let message = format!("conflict with {owner}");
        let paths = fields.paths();
        let lines: Vec<String> = paths.iter().map(|path| format!("- {path}")).collect();
        texts.push(format!("conflicts with {owner}:\n{}", lines.join("\n")));
        let cause = |path| json!({"reason": "FieldManagerConflict", "message": message, "field": path});
        causes.extend(paths.into_iter().map(cause));
    }
    texts.sort();
    let text = match causes.as_slice() {
        [one] => {
            let (message, field) = (object::text(one, "/message"), object::text(one, "/field"));
            format!("Apply failed with 1 conflict: {message}: {field}")
        }
        _ => format!("Apply failed with {} conflicts: {}", causes.len(), texts.join("\n")),
    };
    ApiError::new(409, "Conflict", text).with_details(json!({"causes": causes}))
}
