//! The API as a tower service.
//!
//! A request is routed, may get an injected fault, is served by [`verbs`] or [`watch`], and is answered in
//! the form that the client accepts.

pub(crate) mod accept;
mod discovery;
pub(crate) mod openapi;
mod origin;
pub(crate) mod receive;
pub(crate) mod route;
pub(crate) mod socket;
pub(crate) mod table;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tower::Service;

use self::accept::Accept;
use self::receive::Received;
use self::route::{Call, Query, Route, Verb, route};
use crate::faults::{FaultAction, GUARD_HEADER, GUARD_LIVE_READ};
use crate::sim::{LoggedRequest, Sim};
use crate::status::{ApiError, ApiResult};
use crate::verbs::Answer;
use crate::{object, verbs, watch};

/// The body of an answer: one piece, or a stream of watch events.
pub type SimBody = UnsyncBoxBody<Bytes, Infallible>;

/// The connection broke before the answer. The client cannot know whether the request was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection broke before the answer (an injected fault)")]
pub struct AnswerLost;

/// The API of a [`Sim`], for `kube::Client::new` or any HTTP server.
#[derive(Clone, Debug)]
pub struct SimService {
    sim: Sim,
    /// `None` within the process.
    socket: Option<Socket>,
}

/// The socket of a service.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) address: SocketAddr,
    /// Becomes true when the server stops; watches then end.
    pub(crate) stopped: Receiver<bool>,
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
            match service.receive(&head, body).await {
                Ok(body) => service.answer(&head, body.bytes.clone()).await,
                Err(error) => Ok(refuse(&error, &Accept::default())),
            }
        })
    }
}

impl SimService {
    pub(crate) fn new(sim: Sim, socket: Option<Socket>) -> Self {
        SimService { sim, socket }
    }

    async fn receive<B>(&self, head: &Parts, body: B) -> ApiResult<Received>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Some(socket) = &self.socket {
            origin::check(head, socket.address)?;
        }
        receive::receive(body, &self.sim.inner.room_for_bodies).await
    }

    async fn answer(&self, head: &Parts, body: Bytes) -> Result<Response<SimBody>, AnswerLost> {
        let query = head.uri.query().unwrap_or("");
        let error = match route(&head.method, head.uri.path(), query) {
            Route::Resource(call) => {
                let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
                let content_type = text(header::CONTENT_TYPE).to_owned();
                let user_agent = text(header::USER_AGENT).to_owned();
                return self.resource(Call { content_type, user_agent, body, ..call }, &head.headers).await;
            }
            Route::Other(path) => {
                return Ok(discovery::answer(&head.method, &path, &Query::parse(query), &head.headers));
            }
            // An answer to HEAD has no body.
            Route::MethodNotAllowed if head.method == Method::HEAD => {
                return Ok(respond(StatusCode::METHOD_NOT_ALLOWED, accept::JSON, Bytes::new()));
            }
            Route::MethodNotAllowed => {
                let message = "the server does not allow this method on the requested resource";
                ApiError::new(405, "MethodNotAllowed", message).with_details(json!({}))
            }
            Route::Kubelet(pod) => ApiError::bad_request(format!(
                "pod {pod:?} does not run: there is no kubelet here, so pods stay where they are"
            )),
            Route::UnknownResource => {
                let message = "the server could not find the requested resource";
                ApiError::new(404, "NotFound", message).with_details(json!({}))
            }
        };
        Ok(refuse(&error, &Accept::default()))
    }

    async fn resource(&self, call: Call, headers: &HeaderMap) -> Result<Response<SimBody>, AnswerLost> {
        let mut logged = LoggedRequest {
            verb: call.verb,
            resource: call.resource.plural.to_owned(),
            subresource: call.subresource.clone(),
            namespace: call.namespace.clone(),
            name: given_name(&call),
            code: 0,
            live_read: headers.get(GUARD_HEADER).is_some_and(|value| value == GUARD_LIVE_READ),
        };
        let mut fault = self.sim.inner.faults.next(&logged);
        while let Some(FaultAction::Delay(time)) = fault {
            tokio::time::sleep(time).await;
            fault = self.sim.inner.faults.next(&logged);
        }
        let accept = Accept::of(headers, &call.query);
        let response = match &fault {
            Some(FaultAction::Fail(error)) => refuse(error, &accept),
            _ => {
                let (response, name) = self.serve(&call, &accept);
                if logged.name.is_empty() {
                    logged.name = name;
                }
                response
            }
        };
        if self.sim.inner.log.has(logged.verb) {
            logged.code = response.status().as_u16();
            self.sim.state().requests.push(logged);
        }
        if matches!(fault, Some(FaultAction::LoseAnswer)) { Err(AnswerLost) } else { Ok(response) }
    }

    /// Serves a request. Also returns the name of the object in the answer.
    fn serve(&self, call: &Call, accept: &Accept) -> (Response<SimBody>, String) {
        let served = accept.check().and_then(|()| match call.verb {
            Verb::Watch => {
                let stopped = self.socket.as_ref().map(|socket| socket.stopped.clone());
                let body = watch::watch(&self.sim, call, accept, stopped)?;
                // Watches are always JSON.
                Ok((with_body(StatusCode::OK, accept::JSON, body), String::new()))
            }
            _ => {
                let (answer, shaped) = self.serve_verb(call, accept)?;
                let code = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
                let mut response = respond(code, accept.content_type(), accept.write(&shaped));
                for warning in &answer.warnings {
                    if let Ok(value) = format!("299 - {warning:?}").parse() {
                        response.headers_mut().append(header::WARNING, value);
                    }
                }
                Ok((response, object::name(&answer.body).to_owned()))
            }
        });
        served.unwrap_or_else(|error| (refuse(&error, accept), String::new()))
    }

    fn serve_verb(&self, call: &Call, accept: &Accept) -> ApiResult<(Answer, Value)> {
        let mut state = self.sim.state();
        let answer = verbs::serve(&mut state, call);
        state.run_controllers();
        self.sim.announce(&state);
        let answer = answer?;
        // As on the real server, a request is applied even if its answer then cannot be shaped.
        accept.check_table(&call.query)?;
        let shaped = accept.shape(call.resource, answer.body.clone(), table::Header::With, &state.clock);
        Ok((answer, shaped))
    }
}

/// The name in the path, or in the body of a creation. A malformed body is refused later.
fn given_name(call: &Call) -> String {
    if call.verb == Verb::Create && call.name.is_empty() {
        let object: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        return object::name(&object).to_owned();
    }
    call.name.clone()
}

/// An answer with a body of one piece.
fn respond(code: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<SimBody> {
    with_body(code, content_type, Full::new(body.into()).boxed_unsync())
}

fn with_body(code: StatusCode, content_type: &str, body: SimBody) -> Response<SimBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

/// The body of a watch.
pub(crate) fn stream_body(pieces: impl Stream<Item = Bytes> + Send + 'static) -> SimBody {
    StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync()
}

/// A refusal. `retryAfterSeconds` in its details becomes a header.
fn refuse(error: &ApiError, accept: &Accept) -> Response<SimBody> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(code, accept.content_type(), accept.write(&error.status()));
    let seconds = error.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = seconds {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
