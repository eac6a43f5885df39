//! The API as a tower service.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::Service;

use crate::body::SimBody;
use crate::faults::{FaultAction, GUARD_HEADER, GUARD_LIVE_READ, Target};
use crate::negotiate::{Accept, read_object};
use crate::request::{Call, Query, Route, Verb, route};
use crate::sim::{RequestRecord, Sim};
use crate::status::{ApiError, ApiResult};
use crate::verbs::{self, Answer};
use crate::{discovery, object};

/// The largest request body that is read, as on the real server.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The connection broke before the answer; whether the request was applied, the client cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection broke before the answer (an injected fault)")]
pub struct AnswerLost;

/// The API of a [`Sim`], for `kube::Client::new` or any HTTP server.
#[derive(Clone)]
pub struct SimService {
    sim: Sim,
    /// Turns true when the server stops; watches then end.
    stopped: Option<watch::Receiver<bool>>,
}

impl std::fmt::Debug for SimService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SimService").field(&self.sim).finish()
    }
}

impl SimService {
    pub(crate) fn new(sim: Sim, stopped: Option<watch::Receiver<bool>>) -> Self {
        SimService { sim, stopped }
    }
}

impl<B> Service<Request<B>> for SimService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<SimBody>;
    type Error = AnswerLost;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, AnswerLost>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnswerLost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // A request whose body breaks off was never heard.
            let body = match http_body_util::Limited::new(body, BODY_BYTES_MAX).collect().await {
                Ok(body) => body.to_bytes(),
                Err(_) => {
                    let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
                    return Ok(refuse(
                        &ApiError::new(413, "RequestEntityTooLarge", message),
                        &Accept::default(),
                    ));
                }
            };
            service
                .answer(&head.method, head.uri.path(), head.uri.query().unwrap_or(""), &head.headers, &body)
                .await
        })
    }
}

impl SimService {
    async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response<SimBody>, AnswerLost> {
        match route(method, path, query) {
            Route::Resource(call) => self.resource(call, headers, body).await,
            // No answer to HEAD has a body.
            Route::MethodNotAllowed if method == Method::HEAD => Ok(respond(
                StatusCode::METHOD_NOT_ALLOWED,
                Accept::default().content_type(),
                SimBody::full(Bytes::new()),
            )),
            Route::MethodNotAllowed => Ok(refuse(&ApiError::method_not_allowed(), &Accept::default())),
            Route::Other(path) => Ok(discovery::answer(method, &path, &Query::parse(query), headers)),
            Route::Kubelet(pod) => {
                let why = format!(
                    "pod {pod:?} does not run: there is no kubelet here, so pods stay where they are"
                );
                Ok(refuse(&ApiError::bad_request(why), &Accept::default()))
            }
            Route::UnknownResource => {
                let message = "the server could not find the requested resource";
                let mut error = ApiError::new(404, "NotFound", message);
                error.details = Some(json!({}));
                Ok(refuse(&error, &Accept::default()))
            }
        }
    }

    async fn resource(
        &self,
        call: Call,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response<SimBody>, AnswerLost> {
        let live_read = headers.get(GUARD_HEADER).is_some_and(|value| value == GUARD_LIVE_READ);
        let target = Target {
            verb: call.verb,
            resource: call.resource.plural,
            subresource: &call.subresource,
            name: &fault_name(&call, body),
            live_read,
        };
        let mut fault = self.sim.inner.faults.meet(&target);
        while let Some(FaultAction::Delay(time)) = fault {
            tokio::time::sleep(time).await;
            fault = self.sim.inner.faults.meet(&target);
        }
        let accept = Accept::of(headers, &call.query);
        if let Some(FaultAction::Fail { code, reason, message, retry_after_seconds }) = fault {
            let mut error = ApiError::new(code, &reason, message);
            error.details = retry_after_seconds.map(|seconds| json!({"retryAfterSeconds": seconds}));
            self.record(&call, target.name, code, live_read);
            return Ok(refuse(&error, &accept));
        }
        let (response, name) = self.serve(&call, headers, body, &accept);
        let name = if target.name.is_empty() { name } else { target.name.to_owned() };
        self.record(&call, &name, response.status().as_u16(), live_read);
        if fault == Some(FaultAction::LoseAnswer) { Err(AnswerLost) } else { Ok(response) }
    }

    /// Answers a request, with the name of the object that it made, if any.
    fn serve(
        &self,
        call: &Call,
        headers: &HeaderMap,
        body: &Bytes,
        accept: &Accept,
    ) -> (Response<SimBody>, String) {
        if call.verb == Verb::Watch {
            let stream = verbs::watch::watch(&self.sim, call, accept, self.stopped.clone());
            let response = match stream {
                Ok(body) => respond(StatusCode::OK, accept.watch_content_type(), body),
                Err(error) => refuse(&error, accept),
            };
            return (response, String::new());
        }
        match self.change(call, headers, body, accept) {
            Ok((answer, shaped)) => {
                let code = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
                let mut response = respond(code, accept.content_type(), SimBody::full(accept.write(&shaped)));
                for warning in &answer.warnings {
                    if let Ok(value) = format!("299 - {warning:?}").parse() {
                        response.headers_mut().append(header::WARNING, value);
                    }
                }
                (response, object::name(&answer.body).to_owned())
            }
            Err(error) => (refuse(&error, accept), String::new()),
        }
    }

    fn change(
        &self,
        call: &Call,
        headers: &HeaderMap,
        body: &Bytes,
        accept: &Accept,
    ) -> ApiResult<(Answer, Value)> {
        accept.check()?;
        let content_type =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let mut state = self.sim.state();
        let answer = verbs::dispatch(&mut state, call, content_type, body);
        state.settle_protection();
        self.sim.announce(&state);
        let answer = answer?;
        // What was asked for has been done when its answer turns out to be impossible, as on the real server.
        accept.check_table(&call.query)?;
        let shaped = accept.shape(call.resource, &answer.body, &state.clock)?;
        Ok((answer, shaped))
    }

    fn record(&self, call: &Call, name: &str, code: u16, live_read: bool) {
        if call.verb.is_write() || self.sim.inner.log_reads {
            self.sim.state().requests.push(RequestRecord {
                verb: call.verb,
                resource: call.resource.plural.to_owned(),
                subresource: call.subresource.clone(),
                namespace: call.namespace.clone(),
                name: name.to_owned(),
                code,
                live_read,
            });
        }
    }
}

/// The name by which faults match: a creation's is in its body.
fn fault_name(call: &Call, body: &Bytes) -> String {
    if call.verb == Verb::Create && call.name.is_empty() {
        // Only a well-formed body names anything; others are refused later.
        return read_object("application/json", "", body)
            .map(|object| object::name(&object).to_owned())
            .unwrap_or_default();
    }
    call.name.clone()
}

/// An answer with a body.
pub(crate) fn respond(code: StatusCode, content_type: &str, body: SimBody) -> Response<SimBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

/// A refusal. Where its Status says when to ask again, so does a header.
pub(crate) fn refuse(error: &ApiError, accept: &Accept) -> Response<SimBody> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response =
        respond(code, accept.status_content_type(), SimBody::full(accept.write(&error.status())));
    let seconds = error.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = seconds {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
