//! One request: passed on to the router, for so long at most; it counts once its body has come whole.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, Response, StatusCode, Version};
use axum::response::IntoResponse as _;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::service::Service;
use tower::ServiceExt as _;

use super::Shared;
use super::crowd::{Asking, Member};

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
        let asking = Arc::new(self.member.ask());
        let shared = Arc::clone(&self.shared);
        let is_http1 = request.version() <= Version::HTTP_11;
        let watched = |body| Body::new(Watched::new(body, Arc::clone(&asking)));
        let answer = self.router.clone().oneshot(request.map(watched));
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

/// The body of a request, which tells when it has come whole.
struct Watched {
    body: Incoming,
    asking: Arc<Asking>,
}

impl Watched {
    fn new(body: Incoming, asking: Arc<Asking>) -> Self {
        let watched = Self { body, asking };
        watched.look();
        watched
    }

    /// Tells where nothing more comes: a reader that knows the length need not ask for more.
    fn look(&self) {
        if hyper::body::Body::is_end_stream(&self.body) {
            self.asking.came_whole();
        }
    }
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match frame {
            Poll::Ready(None) => self.asking.came_whole(),
            Poll::Ready(Some(Ok(_))) => self.look(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
