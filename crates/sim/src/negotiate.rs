//! Media types: what a client sent, and what it wants back.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Value, json};
use serde_saphyr::UserMessageFormatter;

use crate::clock::Clock;
use crate::object;
use crate::registry::{self, Resource};
use crate::request::Query;
use crate::status::{ApiError, ApiResult};
use crate::table;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The parameter that says what of each object a table includes.
const INCLUDE: &str = "includeObject";

/// The text in which an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
    /// Nothing that the client would take: no such format.
    None,
    /// Nothing that the client would take: no such form in a format that there is.
    NoForm,
}

/// The form into which objects are brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Object,
    Table(table::Include),
    Metadata,
}

/// What a client wants.
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
    /// Reads the Accept header: the first media type that can be served counts.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Self {
        let header = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let mut refused = Format::None;
        for clause in header.split(',').map(str::trim).filter(|clause| !clause.is_empty()) {
            let mut parameters = clause.split(';').map(str::trim);
            let format = match parameters.next() {
                Some("*/*" | "application/*" | JSON) => Format::Json,
                Some(YAML | "application/x-yaml" | "text/yaml") => Format::Yaml,
                Some(PROTOBUF) => {
                    refused = Format::NoForm;
                    continue;
                }
                _ => continue,
            };
            refused = Format::NoForm;
            let parameters: Vec<(&str, &str)> =
                parameters.filter_map(|parameter| parameter.split_once('=')).collect();
            let get = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            let form = match (get("as"), get("g"), get("v")) {
                (None, ..) => Form::Object,
                (Some("Table"), Some("meta.k8s.io"), Some("v1")) => {
                    Form::Table(table::Include::of(query.get(INCLUDE)).unwrap_or(table::Include::Metadata))
                }
                (
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                    Some("meta.k8s.io"),
                    Some("v1"),
                ) => Form::Metadata,
                _ => continue,
            };
            return Accept { format, form };
        }
        Accept { format: refused, form: Form::Object }
    }

    /// Refuses a client that takes nothing that can be served.
    pub(crate) fn check(&self) -> ApiResult<()> {
        match self.format {
            Format::Json | Format::Yaml => Ok(()),
            // The real server's router refuses before its handlers see the request.
            Format::None => {
                let mut error = ApiError::new(406, "NotAcceptable", "406: Not Acceptable");
                error.details = Some(json!({}));
                Err(error)
            }
            Format::NoForm => {
                let message =
                    format!("only the following media types are accepted: {JSON}, {YAML}, {PROTOBUF}");
                Err(ApiError::new(406, "NotAcceptable", message))
            }
        }
    }

    /// Refuses a table that is to include what there is not.
    pub(crate) fn check_table(&self, query: &Query) -> ApiResult<()> {
        let include = query.get(INCLUDE);
        if !matches!(self.form, Form::Table(_)) || table::Include::of(include).is_some() {
            return Ok(());
        }
        Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be 'Metadata', \
             'Object', 'None', or empty"
        )))
    }

    pub(crate) fn content_type(&self) -> &'static str {
        if self.format == Format::Yaml { YAML } else { JSON }
    }

    /// Of refusals, which are always plain objects.
    pub(crate) fn status_content_type(&self) -> &'static str {
        self.content_type()
    }

    /// Of watches, which are always JSON.
    pub(crate) fn watch_content_type(&self) -> &'static str {
        JSON
    }

    /// Writes an answer.
    pub(crate) fn write(&self, value: &Value) -> Bytes {
        if self.format == Format::Yaml {
            return serde_saphyr::to_string(value).expect("JSON can be written as YAML").into();
        }
        let mut bytes = serde_json::to_vec(value).expect("a JSON value can be written");
        bytes.push(b'\n');
        bytes.into()
    }

    /// Brings an answer (an object, a list, a Status) into the form that is wanted.
    pub(crate) fn shape(&self, resource: &Resource, body: &Value, clock: &Clock) -> ApiResult<Value> {
        self.check()?;
        if body["kind"] == "Status" {
            return Ok(body.clone());
        }
        Ok(match self.form {
            Form::Object => body.clone(),
            Form::Table(include) => table::table(resource, body, include, table::Header::With, clock),
            Form::Metadata => metadata(body),
        })
    }

    /// Brings an object of a watch event into the form that is wanted.
    pub(crate) fn shape_event(
        &self,
        resource: &Resource,
        object: Value,
        header: table::Header,
        clock: &Clock,
    ) -> Value {
        match self.form {
            Form::Object => object,
            Form::Table(include) => table::table(resource, &object, include, header, clock),
            Form::Metadata => metadata(&object),
        }
    }
}

/// Only the metadata of an object, or of the objects of a list.
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

/// Reads a body that holds an object.
pub(crate) fn read_object(content_type: &str, kind: &str, body: &Bytes) -> ApiResult<Value> {
    let media_type = content_type.split(';').next().unwrap_or("").trim();
    let parsed = match media_type {
        "" | JSON => serde_json::from_slice(body).map_err(|error| error.to_string()),
        YAML | "application/x-yaml" | "text/yaml" => {
            serde_saphyr::from_slice(body).map_err(|error| error.render_with_formatter(&UserMessageFormatter))
        }
        PROTOBUF => {
            crate::protobuf::read(body).ok_or_else(|| "the body is no protobuf of a known kind".to_owned())
        }
        _ => {
            return Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {JSON}, {YAML}, \
                 {PROTOBUF}"
            )));
        }
    };
    let why = match parsed {
        Ok(value @ Value::Object(_)) => return Ok(value),
        Ok(_) => "the body is no object".to_owned(),
        Err(_) if body.is_empty() => "unexpected end of JSON input (<empty>)".to_owned(),
        Err(why) => why,
    };
    Err(ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
         {why}"
    )))
}

/// What the real server says of an object of a kind that a path is not for.
pub(crate) fn wrong_kind(given: (&str, &str), wanted: &str) -> String {
    let (api_version, kind) = given;
    match registry::by_kind(api_version, kind) {
        Some(_) => format!("converting (v1.{kind}) to (core.{wanted}): unknown conversion"),
        None => unknown_kind(api_version, kind),
    }
}

/// What the real server says of a kind that nobody knows.
pub(crate) fn unknown_kind(api_version: &str, kind: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// Refuses an object that is not of the kind that a path is for, and fills in what it left open.
pub(crate) fn check_kind(resource: &Resource, value: &mut Value) -> ApiResult<()> {
    let wanted = resource.api_version();
    let given = |pointer: &str, otherwise: &str| {
        let given = object::text(value, pointer);
        if given.is_empty() { otherwise.to_owned() } else { given.to_owned() }
    };
    let (api_version, kind) = (given("/apiVersion", &wanted), given("/kind", resource.kind));
    if kind != resource.kind || api_version != wanted {
        let why = wrong_kind((&api_version, &kind), resource.kind);
        let version = api_version.rsplit('/').next().unwrap_or("");
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            resource.kind
        )));
    }
    value["apiVersion"] = wanted.into();
    value["kind"] = resource.kind.into();
    Ok(())
}
