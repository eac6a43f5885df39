//! Tables.

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::registry::Resource;

/// Which part of each object a table carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }
}

/// Whether a table tells its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    With,
    Without,
}

pub(crate) fn table(_: &Resource, body: &Value, _: Include, _: Header, _: &Clock) -> Value {
    json!({"body": body})
}
