//! From paths and queries to what is asked for.

use std::fmt;
use std::num::{IntErrorKind, ParseIntError};

use http::Method;

use crate::registry::{self, Resource};
use crate::status::{ApiError, ApiResult};

/// A verb of the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection's changes.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The verb as RBAC writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb changes anything.
    pub fn is_write(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The parameters of a query, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part of a URI after `?`.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(&value.replace('+', " ")))
        });
        Query(pairs.collect())
    }

    /// The first value of a parameter; empty where there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that is a whole number, where there is one.
    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<i64>> {
        if !self.has(name) {
            return Ok(None);
        }
        let text = self.get(name);
        text.parse().map(Some).map_err(|error: ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        })
    }

    /// A parameter read as Go's strconv.ParseBool does; given without a value it counts as true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name), "0" | "f" | "F" | "false" | "False" | "FALSE")
    }
}

/// Undoes percent encoding; what is not well encoded stays.
pub(crate) fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// A request to a resource.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) resource: &'static Resource,
    /// Empty for cluster-scoped objects and lists over all namespaces.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    /// Empty for the main resource.
    pub(crate) subresource: String,
    pub(crate) query: Query,
}

impl Call {
    /// Index of the resource in the registry's table of stored objects.
    pub(crate) fn stored_as(&self) -> usize {
        self.resource.stored_as
    }

    /// Whether nothing is to be stored.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.all("dryRun").any(|value| value == "All")
    }
}

/// What a path leads to.
pub(crate) enum Route {
    /// A resource.
    Resource(Call),
    /// A resource, by a method that it does not have.
    MethodNotAllowed,
    /// A resource, or a part of one, that a served group does not have.
    UnknownResource,
    /// What only the kubelet of a pod could answer: its logs, a command in it. The pod's name.
    Kubelet(String),
    /// Anything else: discovery, health, documents. The path without slashes at its ends.
    Other(String),
}

/// Parts of a pod that its kubelet serves.
const OF_THE_KUBELET: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Finds what a request asks for.
pub(crate) fn route(method: &Method, path: &str, query: &str) -> Route {
    let other = || Route::Other(path.trim_matches('/').to_owned());
    let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", registry::VERSION, rest @ ..] => ("", rest),
        ["apis", group, registry::VERSION, rest @ ..] => (*group, rest),
        _ => return other(),
    };
    let (deprecated_watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        // `namespaces/NAME/status` and `/finalize` are subresources of the namespace itself.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        [] => return other(),
        _ => return Route::UnknownResource,
    };
    let Some(resource) = registry::by_plural(group, plural) else {
        let served = group.is_empty() || registry::GROUPS.contains(&group);
        return if served { Route::UnknownResource } else { other() };
    };
    let scoped = resource.namespaced != namespace.is_empty();
    let all_namespaces = resource.namespaced && namespace.is_empty() && name.is_empty();
    if group.is_empty() && plural == "pods" && OF_THE_KUBELET.contains(&subresource) {
        return Route::Kubelet(name.to_owned());
    }
    if !(scoped || all_namespaces) || !has_subresource(resource, subresource) {
        return Route::UnknownResource;
    }
    let query = Query::parse(query);
    let watching = deprecated_watch || query.flag("watch");
    let Some(verb) = verb(method, plural, name, all_namespaces, watching, subresource) else {
        return Route::MethodNotAllowed;
    };
    Route::Resource(Call {
        verb,
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
        query,
    })
}

fn has_subresource(resource: &Resource, subresource: &str) -> bool {
    match subresource {
        "" => true,
        "status" => resource.has_status,
        "finalize" => resource.plural == "namespaces",
        "binding" | "eviction" => resource.plural == "pods",
        _ => false,
    }
}

fn verb(
    method: &Method,
    plural: &str,
    name: &str,
    all_namespaces: bool,
    watching: bool,
    subresource: &str,
) -> Option<Verb> {
    let collection = name.is_empty();
    let verb = match *method {
        Method::GET if collection && watching => Verb::Watch,
        Method::GET if collection => Verb::List,
        Method::GET => Verb::Get,
        Method::POST if collection && !all_namespaces => Verb::Create,
        Method::POST if matches!(subresource, "binding" | "eviction") => Verb::Create,
        Method::PUT if !collection => Verb::Update,
        Method::PATCH if !collection => Verb::Patch,
        Method::DELETE if !collection && subresource.is_empty() => Verb::Delete,
        Method::DELETE if collection && !all_namespaces && plural != "namespaces" => Verb::DeleteCollection,
        _ => return None,
    };
    let allowed = match subresource {
        "binding" | "eviction" => verb == Verb::Create,
        "finalize" => verb == Verb::Update,
        _ => true,
    };
    allowed.then_some(verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, uri: &str, expected: &str) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let found = match route(&method, path, query) {
            Route::Resource(call) => format!(
                "{} {} {}/{} {}",
                call.verb,
                call.resource.qualified(),
                call.namespace,
                call.name,
                call.subresource
            ),
            Route::MethodNotAllowed => "405".to_owned(),
            Route::UnknownResource => "404".to_owned(),
            Route::Kubelet(pod) => format!("kubelet {pod}"),
            Route::Other(path) => format!("other {path}"),
        };
        assert_eq!(found.trim_end(), expected, "{uri}");
    }

    #[test]
    fn paths() {
        check(Method::GET, "/api/v1/persistentvolumes", "list persistentvolumes /");
        check(Method::GET, "/api/v1/persistentvolumes?watch=1", "watch persistentvolumes /");
        check(Method::PUT, "/api/v1/persistentvolumes/a/status", "update persistentvolumes /a status");
        check(
            Method::PATCH,
            "/api/v1/namespaces/d/persistentvolumeclaims/a%2Eb",
            "patch persistentvolumeclaims d/a.b",
        );
        check(Method::GET, "/api/v1/persistentvolumeclaims", "list persistentvolumeclaims /");
        check(Method::GET, "/api/v1/namespaces/d", "get namespaces /d");
        check(Method::PUT, "/api/v1/namespaces/d/finalize", "update namespaces /d finalize");
        check(
            Method::POST,
            "/apis/storage.k8s.io/v1/storageclasses/",
            "create storageclasses.storage.k8s.io /",
        );
        check(
            Method::DELETE,
            "/api/v1/namespaces/d/persistentvolumeclaims",
            "deletecollection persistentvolumeclaims d/",
        );
    }

    #[test]
    fn what_leads_nowhere() {
        check(Method::POST, "/api/v1/persistentvolumeclaims", "405");
        check(Method::POST, "/api/v1/persistentvolumes/a", "405");
        check(Method::HEAD, "/api/v1/persistentvolumes/a", "405");
        check(Method::GET, "/api/v1", "other api/v1");
        check(Method::GET, "/api/v1/namespaces/d/persistentvolumes", "404");
        check(Method::GET, "/api/v1/services", "404");
        check(Method::GET, "/apis/apps/v1/deployments", "other apis/apps/v1/deployments");
        check(Method::GET, "/api/v1/persistentvolumes/a/scale", "404");
        check(Method::GET, "/api/v1/namespaces/d/pods/p/log", "kubelet p");
    }

    #[test]
    fn queries() {
        let query = Query::parse("fieldSelector=metadata.name%3Da&watch&dryRun=All&x=a+b");
        assert_eq!(query.get("fieldSelector"), "metadata.name=a");
        assert!(query.flag("watch"));
        assert!(!query.flag("allowWatchBookmarks"));
        assert_eq!(query.get("x"), "a b");
    }
}
