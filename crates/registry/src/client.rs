//! A client of registries that speak OCI distribution 1.1.
//!
//! It sends credentials to the registry, and to the server of tokens that the registry names by TLS; to no
//! other. It follows redirects of blobs alone, never from https to http, and never to an address that is
//! nearer than the registry's own. Proxies are not used.

mod address;
mod auth;
mod post;
mod remote;
mod transport;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::address::Reach;
use self::auth::Challenge;
pub use self::post::{Endpoint, Posted};
pub use self::transport::Timeouts;
use self::transport::{Answer, Outgoing, Transport};
use crate::credentials::{Credentials, Login};
use crate::error::{RegistryError, Result, invalid};
use crate::limits::{ANSWER_MAX, REDIRECTS_MAX};
use crate::reference::{Reference, is_loopback};

/// Where Docker Hub's registry is.
const HUB: &str = "docker.io";
const HUB_REGISTRY: &str = "registry-1.docker.io";
/// Longest part of an error's text that is shown.
const MESSAGE_MAX: usize = 200;

/// A client of any registry.
#[derive(Clone)]
pub struct Registry {
    transport: Transport,
    credentials: Option<Credentials>,
}

/// What is done with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Pull,
    /// Reading and writing.
    Push,
}

impl Registry {
    /// A client that trusts these certificate authorities, in PEM, or those of the system, and takes its
    /// credentials from there.
    pub fn new(
        authorities: Option<&[u8]>,
        credentials: Option<Credentials>,
        timeouts: Timeouts,
    ) -> Result<Self> {
        Ok(Self { transport: Transport::new(authorities, timeouts)?, credentials })
    }

    /// The same with these credentials and no others.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..self.clone() }
    }

    /// The same that trusts these certificate authorities, in PEM, and no others. It has no credentials: who
    /// names an authority can answer in place of a registry.
    pub fn trusting(&self, authorities: &[u8]) -> Result<Self> {
        Self::new(Some(authorities), None, self.transport.timeouts)
    }

    /// The repository of a reference, for one push, pull or verification: its time begins now.
    pub fn repository(&self, of: &Reference, access: Access) -> Result<Remote> {
        let host = if of.host() == HUB { HUB_REGISTRY } else { of.host() };
        let found = self.credentials.as_ref().map(|file| file.find(host, of.repository())).transpose()?;
        let (login, why_not) = found.map(|found| (found.login, found.why_not)).unwrap_or_default();
        Ok(Remote {
            transport: self.transport.clone(),
            host: host.to_owned(),
            repository: of.repository().to_owned(),
            access,
            login,
            why_not,
            authorization: Mutex::default(),
            deadline: Instant::now() + self.transport.timeouts.operation,
        })
    }
}

/// A repository of a registry.
pub struct Remote {
    transport: Transport,
    host: String,
    repository: String,
    access: Access,
    login: Option<Login>,
    /// Why there are no credentials, although the file names the host.
    why_not: Option<String>,
    /// What the registry accepted last.
    authorization: Mutex<Option<HeaderValue>>,
    deadline: Instant,
}

/// A request to the registry.
struct Call<'a> {
    method: Method,
    /// Behind `/v2/REPOSITORY/`, or a URL that the registry has named.
    uri: Uri,
    headers: &'a [(http::HeaderName, &'a str)],
    body: Bytes,
    max: usize,
}

impl Remote {
    /// Why no request is sent without TLS: only to this machine.
    fn scheme(&self) -> &'static str {
        if is_loopback(&self.host) { "http" } else { "https" }
    }

    /// A URL of the repository.
    fn uri(&self, path: &str) -> Result<Uri> {
        let uri = format!("{}://{}/v2/{}/{path}", self.scheme(), self.host, self.repository);
        uri.parse().or_else(|error| invalid(format!("{uri} is no URL: {error}")))
    }

    /// Sends a request with credentials, and answers one challenge.
    async fn call(&self, call: Call<'_>) -> Result<Answer> {
        let answer = self.send(&call).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let Some(challenge) = Challenge::of(&answer.headers) else { return Err(self.denied(&answer)) };
        let authorization = self.answer_challenge(challenge, answer.reach).await?;
        *self.authorization.lock() = Some(authorization);
        let answer = self.send(&call).await?;
        if answer.status == StatusCode::UNAUTHORIZED { Err(self.denied(&answer)) } else { Ok(answer) }
    }

    async fn send(&self, call: &Call<'_>) -> Result<Answer> {
        let mut headers = HeaderMap::new();
        for (name, value) in call.headers {
            let value = HeaderValue::from_str(value).or_else(|error| invalid(format!("{value}: {error}")))?;
            headers.append(name, value);
        }
        if let Some(authorization) = &*self.authorization.lock() {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let Call { method, uri, body, max, .. } = call;
        let (method, uri, body) = (method.clone(), uri.clone(), body.clone());
        let request = Outgoing { method, uri, headers, body, max: *max, floor: None };
        self.transport.send(request, self.deadline).await
    }

    async fn answer_challenge(&self, challenge: Challenge, reach: Reach) -> Result<HeaderValue> {
        let Challenge::Bearer { realm, service, scope } = challenge else {
            return match &self.login {
                Some(login) => auth::basic(login),
                None => Err(RegistryError::Denied(self.asks_for_credentials())),
            };
        };
        let actions = if self.access == Access::Push { "pull,push" } else { "pull" };
        let scope = scope.unwrap_or_else(|| format!("repository:{}:{actions}", self.repository));
        let uri = auth::token_uri(&realm, service.as_deref(), &scope)?;
        if uri.scheme_str() != Some("https") && self.scheme() == "https" {
            return invalid(format!("{} has tokens at {realm:?}, which has no TLS", self.host));
        }
        let mut headers = HeaderMap::new();
        if let Some(login) = &self.login {
            headers.insert(AUTHORIZATION, auth::basic(login)?);
        }
        let server = uri.authority().map(ToString::to_string).unwrap_or_default();
        let (method, body) = (Method::GET, Bytes::new());
        let request = Outgoing { method, uri, headers, body, max: ANSWER_MAX, floor: Some(reach) };
        let answer = self.transport.send(request, self.deadline).await?;
        match answer.status {
            StatusCode::OK => auth::bearer(&answer.body, &server),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.denied(&answer)),
            status => Err(self.failed("a token", status, &answer.body)),
        }
    }

    /// Sends a request for a blob, and follows its redirects without credentials.
    async fn call_and_follow(&self, call: Call<'_>) -> Result<Answer> {
        let (mut from, max) = (call.uri.clone(), call.max);
        let mut answer = self.call(call).await?;
        for _ in 0..REDIRECTS_MAX {
            if !answer.status.is_redirection() {
                return Ok(answer);
            }
            let to = location(&from, &answer.headers)?;
            if from.scheme() != to.scheme() && to.scheme_str() != Some("https") {
                return invalid(format!("{} redirects to {to}, which has no TLS", self.host));
            }
            let (method, headers, body) = (Method::GET, HeaderMap::new(), Bytes::new());
            let request = Outgoing { method, uri: to.clone(), headers, body, max, floor: Some(answer.reach) };
            answer = self.transport.send(request, self.deadline).await?;
            from = to;
        }
        if answer.status.is_redirection() {
            return invalid(format!("{} redirects more than {REDIRECTS_MAX} times", self.host));
        }
        Ok(answer)
    }

    fn asks_for_credentials(&self) -> String {
        let why = self.why_not.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        format!("{} asks for credentials, and there are none for {}{why}", self.host, self.repository)
    }

    fn denied(&self, answer: &Answer) -> RegistryError {
        if self.login.is_none() {
            return RegistryError::Denied(self.asks_for_credentials());
        }
        let message = message(&answer.body);
        RegistryError::Denied(format!(
            "{} refuses the credentials for {} (status {}){message}",
            self.host,
            self.repository,
            answer.status.as_u16()
        ))
    }

    /// The error for an answer with this status.
    fn failed(&self, what: &str, status: StatusCode, body: &[u8]) -> RegistryError {
        let why = format!(
            "{}/{}: {what}: the registry answered with status {}{}",
            self.host,
            self.repository,
            status.as_u16(),
            message(body)
        );
        match status {
            StatusCode::NOT_FOUND => RegistryError::NotFound(why),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RegistryError::Denied(why),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => RegistryError::Unavailable(why),
            status if status.is_server_error() => RegistryError::Unavailable(why),
            _ => RegistryError::Invalid(why),
        }
    }
}

/// The first message of an error's body, as printable text.
fn message(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = body["errors"][0]["message"].as_str().or(body["details"].as_str()).unwrap_or_default();
    let message: String = message.chars().filter(|c| !c.is_control()).take(MESSAGE_MAX).collect();
    if message.is_empty() { message } else { format!(": {message:?}") }
}

/// Where an answer points to.
fn location(from: &Uri, headers: &HeaderMap) -> Result<Uri> {
    let location = headers.get(http::header::LOCATION);
    target(from, location.and_then(|value| value.to_str().ok()))
}

/// What a text of an answer points to: a URL, or a path of the same host.
fn target(from: &Uri, text: Option<&str>) -> Result<Uri> {
    let host = from.authority().map(ToString::to_string).unwrap_or_default();
    let wrong = || RegistryError::Invalid(format!("{host} points to {text:?}, which is no URL"));
    let location = text.ok_or_else(wrong)?;
    let absolute = match location.strip_prefix('/') {
        Some(_) if !location.starts_with("//") => {
            format!("{}://{host}{location}", from.scheme_str().unwrap_or("https"))
        }
        _ => location.to_owned(),
    };
    let uri: Uri = absolute.parse().map_err(|_| wrong())?;
    let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
    if has_user || !matches!(uri.scheme_str(), Some("https" | "http")) {
        return Err(wrong());
    }
    Ok(uri)
}
