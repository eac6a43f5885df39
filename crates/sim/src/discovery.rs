//! Discovery.

use http::{HeaderMap, Method, Response, StatusCode};

use crate::body::SimBody;
use crate::request::Query;
use crate::service::respond;

pub(crate) fn answer(_: &Method, _: &str, _: &Query, _: &HeaderMap) -> Response<SimBody> {
    respond(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", SimBody::full("404 page not found\n"))
}
