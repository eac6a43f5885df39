//! Sends requests to an API server and classifies its answers.

use std::borrow::Cow;
use std::time::Duration;

use bindery_controller::WriteError;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::client::ApiClient;
use crate::decode::Encoded as _;
use crate::encoding::{self, EncodedObject, Encoding};
use crate::limit::Outcome;

/// How long a throttled write waits if the server does not say.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest pause that a server may ask for. Priority and fairness asks for 32 s at most; a misconfigured
/// proxy must not stop this replica for an hour.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The API server refused it.
    #[error("status {code}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// `reason` of the Status; `""` if the answer was not a Status.
        reason: String,
        /// `message` of the Status, or the beginning of another answer.
        message: String,
        /// `Retry-After`, at most [`RETRY_AFTER_MAX`].
        retry_after: Option<Duration>,
        /// `details.kind` of the Status, the plural of a resource; `""` if absent.
        kind: String,
        /// `details.name` of the Status; `""` if absent.
        name: String,
    },
    /// The connection failed. The request may have been carried out.
    #[error("no answer from the API server: {0}")]
    NoAnswer(String),
    /// No answer came in time. The request may have been carried out.
    #[error("no answer from the API server: it took more than {0:?}")]
    TooLate(Duration),
}

impl Fault {
    /// Whether the API server is overloaded. Priority and fairness (KEP-1040) refuses with 429; a request
    /// that the server gives up on is a 504.
    pub(crate) fn is_overload(&self) -> bool {
        match self {
            Self::Refused { code, retry_after, .. } => {
                matches!(code, 429 | 504) || (*code == 503 && retry_after.is_some())
            }
            Self::TooLate(_) => true,
            Self::NoAnswer(_) => false,
        }
    }

    /// Whether the client's user may not do this.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Refused { code: 403, .. })
    }

    /// Whether the API server says that exactly this object does not exist. Status 404 with reason NotFound
    /// may also mean that an API is not served, or come from a proxy or an aggregated server.
    pub(crate) fn is_absence_of(&self, plural: &str, object: &str) -> bool {
        let Self::Refused { code: 404, reason, kind, name, .. } = self else { return false };
        reason == "NotFound" && kind == plural && name == object
    }

    /// Whether no answer came. Other pooled connections may be dead too.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::NoAnswer(_) | Self::TooLate(_))
    }

    /// Whether no API server may be running: no answer came, or a load balancer answered.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Refused { code, retry_after, .. } => *code >= 500 && retry_after.is_none(),
            Self::NoAnswer(_) | Self::TooLate(_) => true,
        }
    }

    /// The message of the API server or the connection, as upstream puts it into its events.
    pub(crate) fn message(&self) -> Cow<'_, str> {
        match self {
            Self::Refused { message, .. } => Cow::Borrowed(message),
            _ => Cow::Owned(self.to_string()),
        }
    }

    /// How long the API server asks to be left alone. A refusal with the same code and no `Retry-After`, such
    /// as that of the EventRateLimit admission, is about one kind of request.
    pub(crate) fn pause(&self) -> Option<Duration> {
        match self {
            Self::Refused { code: 429 | 503, retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What an answer says about the server's load.
    fn outcome<T>(answer: &Result<T, Self>) -> Outcome {
        match answer {
            Err(fault) if fault.is_overload() => Outcome::Refused,
            Err(Self::NoAnswer(_)) => Outcome::Lost,
            _ => Outcome::Answered,
        }
    }
}

/// `metav1.Status`.
#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<Details>,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, Deserialize, prost::Message)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    kind: String,
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

/// Sends a request when it may be sent, and collects the answer.
pub(crate) async fn send(client: &ApiClient, request: Request<Body>) -> Result<EncodedObject, Fault> {
    let permit = client.ready().await;
    // Counts also if this future is dropped, as in the elector of the Lease.
    let _timed = client.metrics().time(request.method());
    let limit = client.timeout();
    let answer = tokio::time::timeout(limit, exchange(client, request)).await.unwrap_or_else(|_| {
        client.failed(&Fault::TooLate(limit));
        Err(Fault::TooLate(limit))
    });
    if let Some(permit) = permit {
        permit.end(Fault::outcome(&answer));
    }
    answer
}

/// Sends a request when it may be sent, and returns the answer's body as a stream. The headers must come
/// within `limit`.
pub(crate) async fn open(
    client: &ApiClient,
    request: Request<Body>,
    limit: Duration,
) -> Result<(Encoding, Body), Fault> {
    // A stream lasts for minutes, so it holds no permit.
    drop(client.ready().await);
    let late = |_| Err(Fault::NoAnswer(format!("no headers within {limit:?}")));
    tokio::time::timeout(limit, begin(client, request)).await.unwrap_or_else(late)
}

async fn exchange(client: &ApiClient, request: Request<Body>) -> Result<EncodedObject, Fault> {
    let (encoding, body) = begin(client, request).await?;
    let bytes = body.collect().await.map_err(no_answer)?.to_bytes();
    encoding.object(bytes).map_err(|error| Fault::NoAnswer(format!("the answer makes no sense: {error}")))
}

/// Sends a request and returns the body of a successful answer. Every request passes here.
async fn begin(client: &ApiClient, mut request: Request<Body>) -> Result<(Encoding, Body), Fault> {
    request.headers_mut().entry(ACCEPT).or_insert(const { HeaderValue::from_static(encoding::ACCEPT) });
    let mut counted = client.metrics().count(request.method());
    let answer = client.send(request).await;
    counted.status = answer.as_ref().ok().map(http::Response::status);
    drop(counted);
    let (parts, body) = answer.map_err(no_answer)?.into_parts();
    client.server_time().note(&parts.headers);
    let encoding = Encoding::of(&parts.headers);
    if parts.status.is_success() {
        client.succeeded();
        return Ok((encoding, body));
    }
    let bytes = body.collect().await.map_err(no_answer)?.to_bytes();
    let fault = refused(&parts, encoding, &bytes);
    client.failed(&fault);
    Err(fault)
}

pub(crate) fn no_answer(error: impl std::error::Error) -> Fault {
    Fault::NoAnswer(with_causes(&error))
}

/// The text of an error and of its causes, each once: some errors end with the text of their cause.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The fault in an answer without success.
fn refused(parts: &http::response::Parts, encoding: Encoding, bytes: &Bytes) -> Fault {
    // Proxies answer with text; its beginning is enough.
    const TEXT_MAX: usize = 512;
    let status = encoding.object(bytes.clone()).and_then(|status| status.read());
    let mut status: Status = status.unwrap_or_default();
    status.code = parts.status.as_u16().into();
    if status.message.is_empty() {
        status.message = match bytes.len() {
            0 => parts.status.to_string(),
            length => String::from_utf8_lossy(&bytes[..length.min(TEXT_MAX)]).trim().to_owned(),
        };
    }
    let header = parts.headers.get(http::header::RETRY_AFTER);
    status.into_fault(header.and_then(|value| value.to_str().ok()?.trim().parse().ok()))
}

/// The fault in an ERROR event.
pub(crate) fn failure(object: &EncodedObject) -> Fault {
    match object.read::<Status>() {
        Ok(status) => status.into_fault(None),
        Err(error) => Fault::NoAnswer(format!("the failure makes no sense: {error}")),
    }
}

impl Status {
    /// A fault; `Retry-After` in seconds overrides `details.retryAfterSeconds`.
    fn into_fault(self, retry_after: Option<u64>) -> Fault {
        let Details { name, kind, retry_after_seconds } = self.details.unwrap_or_default();
        let seconds =
            retry_after.or_else(|| u64::try_from(retry_after_seconds).ok().filter(|seconds| *seconds > 0));
        // Pages of proxies and messages of webhooks have several lines, and the log has one for each cause.
        let message = self.message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Fault::Refused {
            code: self.code.try_into().unwrap_or_default(),
            retry_after: seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX)),
            reason: self.reason,
            message,
            kind,
            name,
        }
    }
}

impl From<Fault> for WriteError {
    fn from(fault: Fault) -> Self {
        let Fault::Refused { code, reason, message, retry_after, kind, name } = fault else {
            return Self::Failed(fault.to_string());
        };
        match (code, reason.as_str()) {
            (_, "AlreadyExists") => Self::AlreadyExists(message),
            (409, _) => Self::Conflict(message),
            // Otherwise a proxy or another server has answered, and the write may not have reached the API
            // server.
            (404, "NotFound") if !kind.is_empty() && !name.is_empty() => Self::NotFound(message),
            (401, _) => Self::Unauthorized(message),
            (403, _) => Self::Forbidden(message),
            (429, _) => Self::Throttled { message, retry_after: retry_after.unwrap_or(RETRY_AFTER) },
            (503, _) if retry_after.is_some() => {
                Self::Throttled { message, retry_after: retry_after.unwrap_or(RETRY_AFTER) }
            }
            // As of a proxy too: the same request is refused again.
            (400 | 405 | 406 | 411..=415 | 422 | 451, _) => Self::Invalid(message),
            (500.., _) => Self::Broken { status: code, message },
            _ => Self::Failed(message),
        }
    }
}

/// A request, with a body in JSON or none. The body of a PATCH is a JSON patch (RFC 6902) if it is a list,
/// else a merge patch.
pub(crate) fn request(method: Method, path: &str, body: Option<&Value>) -> Result<Request<Body>, Fault> {
    let content_type = match body {
        None => None,
        Some(Value::Array(_)) => Some("application/json-patch+json"),
        Some(_) if method == Method::PATCH => Some("application/merge-patch+json"),
        Some(_) => Some("application/json"),
    };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(no_answer)?;
    request.headers_mut().extend(content_type.map(|it| (CONTENT_TYPE, HeaderValue::from_static(it))));
    Ok(request)
}

/// Reads an object, or a page of a list, in the encoding that the server prefers.
pub(crate) async fn get(client: &ApiClient, path: &str) -> Result<EncodedObject, Fault> {
    send(client, request(Method::GET, path, None)?).await
}

/// Sends a request as [`request`] makes it, and parses the answer as JSON.
pub(crate) async fn json(
    client: &ApiClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Fault> {
    let mut request = request(method, path, body)?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let (EncodedObject::Json(answer) | EncodedObject::Protobuf(answer)) = send(client, request).await?;
    serde_json::from_slice(&answer)
        .map_err(|error| Fault::NoAnswer(format!("the API server's answer is not JSON: {error}")))
}

/// Percent-encodes a value for a query or a path segment.
pub(crate) fn encode(value: &str) -> String {
    /// All but the unreserved characters of RFC 3986.
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(value, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_refused_write_is_told_with_what_helps() {
        let credentials = "the API server does not accept the credentials (401): Unauthorized";
        let webhook = "admission webhook \"w\" denied the request: no";
        let policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let exempt = "exempt the service account in the policy that denies it";
        let rbac = "User \"b\" cannot patch resource";
        for (code, message, expected) in [
            (401, "Unauthorized", credentials.to_owned()),
            (403, rbac, format!("forbidden: {rbac}; check the RBAC rules of the service account")),
            (403, webhook, format!("forbidden: {webhook}; {exempt}")),
            (403, policy, format!("forbidden: {policy}; {exempt}")),
            (413, "too large", "invalid: too large".to_owned()),
            (451, "blocked", "invalid: blocked".to_owned()),
            (422, "odd", "invalid: odd".to_owned()),
            (404, "page not found", "page not found".to_owned()),
            (408, "late\n  <p>once more</p>\n", "late <p>once more</p>".to_owned()),
            (500, "down", "the API server failed with status 500: down".to_owned()),
        ] {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            assert_eq!(WriteError::from(status.into_fault(None)).to_string(), expected, "{code}");
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("no connection")]
    struct Silent(#[source] io::Error);

    #[test]
    fn each_cause_is_told_once() {
        let refused = || Silent(io::Error::other("refused"));
        let telling = kube::Error::Service(Box::new(refused()));
        assert_eq!(telling.to_string(), "ServiceError: no connection", "it tells its cause itself");
        assert_eq!(with_causes(&telling), "ServiceError: no connection: refused");
        assert_eq!(with_causes(&io::Error::other(refused())), "no connection: refused");
    }
}
