//! One request: passed on to the router, for so long at most.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, Response, StatusCode, Version};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::service::Service;
use tower::ServiceExt as _;

use super::Shared;
use super::crowd::Member;

/// Answers the requests of one connection.
pub(super) struct Answering {
    pub(super) router: Router,
    pub(super) member: Arc<Member>,
    pub(super) shared: Arc<Shared>,
}

impl Service<Request<Incoming>> for Answering {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let asking = self.member.ask();
        let shared = Arc::clone(&self.shared);
        let is_http1 = request.version() <= Version::HTTP_11;
        let answer = self.router.clone().oneshot(request.map(Body::new));
        Box::pin(async move {
            let answer = tokio::time::timeout(shared.limits.request_max, answer).await;
            let is_late = answer.is_err();
            let late = || (StatusCode::REQUEST_TIMEOUT, "The request took too long.\n").into_response();
            let mut response = answer.map_or_else(|_| late(), |Ok(response)| response);
            // The rest of a late request is not waited for, and clients of a server that ends find another.
            if is_http1 && (is_late || shared.leaving.is_cancelled()) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            drop(asking);
            Ok(response)
        })
    }
}
