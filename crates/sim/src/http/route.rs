//! From method, path and query to a [`Call`].

use std::fmt;
use std::num::{IntErrorKind, ParseIntError};

use bytes::Bytes;
use http::Method;
use percent_encoding::percent_decode_str;

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

    /// Whether the verb writes.
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
        Query(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of a parameter, or "".
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

    /// A whole number, if the parameter is given.
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
    /// The Content-Type header, or "".
    pub(crate) content_type: String,
    /// The User-Agent header, or "".
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
}

impl Call {
    /// A request to a collection, without a query and a body.
    pub(crate) fn new(verb: Verb, resource: &'static Resource, namespace: &str) -> Self {
        Call {
            verb,
            resource,
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: String::new(),
            query: Query::default(),
            content_type: String::new(),
            user_agent: String::new(),
            body: Bytes::new(),
        }
    }

    /// The media type of the body without parameters, or "".
    pub(crate) fn media_type(&self) -> &str {
        self.content_type.split(';').next().unwrap_or("").trim()
    }

    /// Whether the request is a server-side apply.
    pub(crate) fn is_apply(&self) -> bool {
        self.verb == Verb::Patch && self.media_type() == "application/apply-patch+yaml"
    }

    /// The manager of the fields that the request writes: by default the name of the program.
    pub(crate) fn manager(&self) -> &str {
        let program = self.user_agent.split('/').next();
        let named = [Some(self.query.get("fieldManager")), program];
        named.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or("unknown")
    }

    /// Whether the request must not store anything.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.all("dryRun").any(|value| value == "All")
    }
}

/// The target of a request.
pub(crate) enum Route {
    /// A resource. The call has no body yet.
    Resource(Call),
    /// A resource that does not support the method.
    MethodNotAllowed,
    /// A resource or subresource that a served group does not have.
    UnknownResource,
    /// A subresource that the kubelet of a pod serves, with the name of the pod.
    Kubelet(String),
    /// Another path (discovery, health, documents), without slashes at its ends.
    Other(String),
}

/// Subresources of a pod that its kubelet serves.
const KUBELET_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Finds the target of a request.
pub(crate) fn route(method: &Method, path: &str, query: &str) -> Route {
    let other = || Route::Other(path.trim_matches('/').to_owned());
    let parts = path.split('/').filter(|part| !part.is_empty());
    let parts: Vec<_> = parts.map(|part| percent_decode_str(part).decode_utf8_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
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
    if group.is_empty() && plural == "pods" && KUBELET_SUBRESOURCES.contains(&subresource) {
        return Route::Kubelet(name.to_owned());
    }
    if !(scoped || all_namespaces) || !has_subresource(resource, subresource) {
        return Route::UnknownResource;
    }
    let query = Query::parse(query);
    let watching = deprecated_watch || query.flag("watch");
    let reviews = group == registry::AUTHORIZATION;
    let verb = verb(method, plural, name, all_namespaces, watching, subresource);
    let Some(verb) = verb.filter(|verb| !reviews || *verb == Verb::Create) else {
        return Route::MethodNotAllowed;
    };
    Route::Resource(Call {
        name: name.to_owned(),
        subresource: subresource.to_owned(),
        query,
        ..Call::new(verb, resource, namespace)
    })
}

fn has_subresource(resource: &Resource, subresource: &str) -> bool {
    match subresource {
        "" => true,
        "status" => resource.has_status,
        "scale" => resource.has_scale,
        "finalize" => resource.kind == registry::NAMESPACE,
        "binding" | "eviction" => resource.kind == registry::POD,
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
        "scale" => matches!(verb, Verb::Get | Verb::Update | Verb::Patch),
        _ => true,
    };
    allowed.then_some(verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        match route(&method.parse().unwrap(), path, query) {
            Route::Resource(call) => {
                let (verb, resource) = (call.verb, call.resource.qualified());
                format!("{verb} {resource} {}/{} {}", call.namespace, call.name, call.subresource)
            }
            Route::MethodNotAllowed => "405".to_owned(),
            Route::UnknownResource => "404".to_owned(),
            Route::Kubelet(pod) => format!("kubelet {pod}"),
            Route::Other(path) => format!("other {path}"),
        }
    }

    #[test]
    fn each_path_leads_to_its_target() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/persistentvolumes", "list persistentvolumes /"),
            ("GET", "/api/v1/persistentvolumes?watch=1", "watch persistentvolumes /"),
            ("PUT", "/api/v1/persistentvolumes/a/status", "update persistentvolumes /a status"),
            (
                "PATCH",
                "/api/v1/namespaces/d/persistentvolumeclaims/a%2Eb",
                "patch persistentvolumeclaims d/a.b",
            ),
            ("GET", "/api/v1/persistentvolumeclaims", "list persistentvolumeclaims /"),
            ("GET", "/api/v1/namespaces/d", "get namespaces /d"),
            ("PUT", "/api/v1/namespaces/d/finalize", "update namespaces /d finalize"),
            ("POST", "/apis/storage.k8s.io/v1/storageclasses/", "create storageclasses.storage.k8s.io /"),
            (
                "DELETE",
                "/api/v1/namespaces/d/persistentvolumeclaims",
                "deletecollection persistentvolumeclaims d/",
            ),
            ("POST", "/api/v1/persistentvolumeclaims", "405"),
            ("POST", "/api/v1/persistentvolumes/a", "405"),
            ("HEAD", "/api/v1/persistentvolumes/a", "405"),
            ("GET", "/api/v1", "other api/v1"),
            ("GET", "/api/v1/namespaces/d/persistentvolumes", "404"),
            ("GET", "/api/v1/podtemplates", "404"),
            ("GET", "/apis/policy/v1/poddisruptionbudgets", "other apis/policy/v1/poddisruptionbudgets"),
            ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "405"),
            ("GET", "/api/v1/persistentvolumes/a/scale", "404"),
            ("GET", "/api/v1/namespaces/d/pods/p/log", "kubelet p"),
        ] {
            assert_eq!(target(method, uri).trim_end(), expected, "{method} {uri}");
        }
    }

    #[test]
    fn a_query_is_decoded_and_read_as_go_reads_it() {
        let query = Query::parse("fieldSelector=metadata.name%3Da&watch&dryRun=All&x=a+b");
        assert_eq!(query.get("fieldSelector"), "metadata.name=a");
        assert!(query.flag("watch"));
        assert!(!query.flag("allowWatchBookmarks"));
        assert_eq!(query.get("x"), "a b");
    }
}
