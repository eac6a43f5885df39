//! The media types and the form of answers.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::route::Query;
use super::table::{self, Include};
use crate::clock::Clock;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The query parameter for the part of each object that a table includes.
const INCLUDE: &str = "includeObject";

/// Whether a media type is one of YAML's.
pub(crate) fn is_yaml(media_type: &str) -> bool {
    matches!(media_type, YAML | "application/x-yaml" | "text/yaml")
}

/// The text format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
    /// The client accepts no format of the server.
    None,
    /// The client accepts a format of the server, but no form.
    NoForm,
}

/// The form of the objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Object,
    Table(Include),
    Metadata,
}

/// The answer that a client accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accept {
    format: Format,
    form: Form,
}

impl Default for Accept {
    fn default() -> Self {
        Accept { format: Format::Json, form: Form::Object }
    }
}

impl Accept {
    /// Reads the Accept header: the first clause that can be served counts.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Self {
        let header = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let mut refused = Format::None;
        for clause in header.split(',').map(str::trim).filter(|clause| !clause.is_empty()) {
            let mut parameters = clause.split(';').map(str::trim);
            let format = match parameters.next() {
                Some("*/*" | "application/*" | JSON) => Some(Format::Json),
                Some(other) if is_yaml(other) => Some(Format::Yaml),
                Some(PROTOBUF) => None,
                _ => continue,
            };
            refused = Format::NoForm;
            let parameters: Vec<_> = parameters.filter_map(|parameter| parameter.split_once('=')).collect();
            if let (Some(format), Some(form)) = (format, form(&parameters, query)) {
                return Accept { format, form };
            }
        }
        Accept { format: refused, form: Form::Object }
    }

    /// Refuses a client that accepts no answer of the server.
    pub(crate) fn check(&self) -> ApiResult<()> {
        match self.format {
            Format::Json | Format::Yaml => Ok(()),
            // The real server's router refuses this before a handler runs.
            Format::None => {
                Err(ApiError::new(406, "NotAcceptable", "406: Not Acceptable").with_details(json!({})))
            }
            Format::NoForm => {
                let accepted = format!("{JSON}, {YAML}, {PROTOBUF}");
                let message = format!("only the following media types are accepted: {accepted}");
                Err(ApiError::new(406, "NotAcceptable", message))
            }
        }
    }

    /// Refuses a table with an unknown value of `includeObject`.
    pub(crate) fn check_table(&self, query: &Query) -> ApiResult<()> {
        let include = query.get(INCLUDE);
        if !matches!(self.form, Form::Table(_)) || Include::of(include).is_some() {
            return Ok(());
        }
        Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be \
             'Metadata', 'Object', 'None', or empty"
        )))
    }

    pub(crate) fn content_type(&self) -> &'static str {
        if self.format == Format::Yaml { YAML } else { JSON }
    }

    /// Writes an answer.
    pub(crate) fn write(&self, value: &Value) -> Bytes {
        if self.format == Format::Yaml {
            return serde_saphyr::to_string(value).expect("JSON can be written as YAML").into();
        }
        format!("{value}\n").into()
    }

    /// Brings an object or a list into the accepted form. A Status stays as it is.
    pub(crate) fn shape(
        &self,
        resource: &Resource,
        body: Value,
        header: table::Header,
        clock: &Clock,
    ) -> Value {
        match self.form {
            _ if body["kind"] == "Status" => body,
            Form::Object => body,
            Form::Table(include) => table::table(resource, &body, include, header, clock),
            Form::Metadata => metadata(&body),
        }
    }
}

/// The form that the parameters of a media type request, if it can be served.
fn form(parameters: &[(&str, &str)], query: &Query) -> Option<Form> {
    let get = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let meta_v1 = get("g") == Some("meta.k8s.io") && get("v") == Some("v1");
    match get("as") {
        None => Some(Form::Object),
        Some("Table") if meta_v1 => {
            Some(Form::Table(Include::of(query.get(INCLUDE)).unwrap_or(Include::Metadata)))
        }
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") if meta_v1 => Some(Form::Metadata),
        Some(_) => None,
    }
}

/// The metadata of an object, or of the objects of a list.
fn metadata(body: &Value) -> Value {
    let partial = |object: &Value| {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        })
    };
    match body.get("items").and_then(Value::as_array) {
        Some(items) => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": body["metadata"],
            "items": items.iter().map(partial).collect::<Vec<_>>(),
        }),
        None => partial(body),
    }
}
