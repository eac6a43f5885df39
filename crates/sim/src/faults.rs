//! Injected faults: requests that fail, are delayed, or are applied while their answer is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::http::route::Verb;
use crate::sim::LoggedRequest;
use crate::status::ApiError;

/// The request header of a read that a safety check makes.
pub const GUARD_HEADER: &str = "x-bindery-guard";
/// The value of [`GUARD_HEADER`] that exempts a read from faults.
pub const GUARD_LIVE_READ: &str = "live-read";

/// The effect of a rule on a request.
#[derive(Clone, Debug)]
pub(crate) enum FaultAction {
    /// It is refused, and nothing is applied.
    Fail(Box<ApiError>),
    /// It is served after this time.
    Delay(Duration),
    /// It is applied, and the connection breaks before the answer.
    LoseAnswer,
}

/// Which requests get a fault, and which fault. A rule acts once unless [`FaultRule::times`] or
/// [`FaultRule::always`] says otherwise.
///
/// ```
/// use bindery_sim::FaultRule;
///
/// // The second write of a volume, to its spec or its status, fails.
/// let rule = FaultRule::writes("persistentvolumes").nth(2).fail(500, "InternalError", "injected");
/// ```
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Verbs as RBAC writes them; empty for all.
    verbs: Vec<String>,
    resource: Option<String>,
    /// Matching requests to pass before the rule acts.
    skip: usize,
    /// How often the rule still acts; `None` for no limit.
    times: Option<usize>,
    live_reads: bool,
    action: FaultAction,
}

impl FaultRule {
    fn matching(verbs: &[&str], resource: Option<&str>) -> Self {
        FaultRule {
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
            resource: resource.map(str::to_owned),
            skip: 0,
            times: Some(1),
            live_reads: false,
            action: FaultAction::Fail(ApiError::new(500, "InternalError", "injected")),
        }
    }

    /// All requests to resources.
    pub fn any() -> Self {
        FaultRule::matching(&[], None)
    }

    /// Requests of one Kubernetes verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`) to one resource (its plural), subresources included.
    pub fn new(verb: &str, resource: &str) -> Self {
        FaultRule::matching(&[verb], Some(resource))
    }

    /// PUT and PATCH of a resource or of its status.
    pub fn writes(resource: &str) -> Self {
        FaultRule::matching(&["update", "patch"], Some(resource))
    }

    /// An entry of `api_errors` in the conformance corpora: `update` means any write of the resource, and the
    /// first match fails with `message`. The corpora have no reasons, so the message determines the reason.
    pub fn api_error(verb: &str, resource: &str, message: &str) -> Self {
        let rule =
            if verb == "update" { FaultRule::writes(resource) } else { FaultRule::new(verb, resource) };
        match message {
            _ if message.ends_with(" already exists") => rule.fail(409, "AlreadyExists", message),
            _ if message.ends_with(" not found") => rule.fail(404, "NotFound", message),
            _ => rule.fail(500, "InternalError", message),
        }
    }

    /// Acts from the n-th match on; the first is 1.
    pub fn nth(mut self, n: usize) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// Acts this many times instead of once.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Acts without limit.
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Also matches reads of safety checks, which are exempt otherwise.
    pub fn including_live_reads(mut self) -> Self {
        self.live_reads = true;
        self
    }

    /// Refuses the request with this HTTP status, `metav1.StatusReason` and message.
    pub fn fail(mut self, code: u16, reason: &str, message: &str) -> Self {
        self.action = FaultAction::Fail(ApiError::new(code, reason, message));
        self
    }

    /// Refuses the request with 429 and `Retry-After`, as an overloaded server does.
    pub fn busy(mut self, retry_after_seconds: u32) -> Self {
        let error = ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.");
        let details = json!({"retryAfterSeconds": retry_after_seconds});
        self.action = FaultAction::Fail(error.with_details(details));
        self
    }

    /// Serves the request after some time.
    pub fn delay(mut self, time: Duration) -> Self {
        self.action = FaultAction::Delay(time);
        self
    }

    /// Applies the request and breaks the connection before the answer.
    pub fn lose_answer(mut self) -> Self {
        self.action = FaultAction::LoseAnswer;
        self
    }

    fn matches(&self, verb: Verb, resource: &str, live_read: bool) -> bool {
        (self.verbs.is_empty() || self.verbs.iter().any(|wanted| wanted == verb.as_str()))
            && (self.live_reads || !live_read)
            && self.resource.as_deref().is_none_or(|wanted| wanted == resource)
    }
}

/// The active rules, in the order in which they were added. The first match acts.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<FaultRule>>>,
}

impl Faults {
    /// Adds a rule.
    pub fn add(&self, rule: FaultRule) {
        self.lock().push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// How many rules can still act.
    pub fn pending(&self) -> usize {
        self.lock().len()
    }

    /// The fault of a request, if any. It counts as one use of the rule.
    pub(crate) fn next(&self, request: &LoggedRequest) -> Option<FaultAction> {
        let mut rules = self.lock();
        let at = rules.iter_mut().position(|rule| {
            let matches = rule.matches(request.verb, &request.resource, request.live_read);
            let acts = matches && rule.skip == 0;
            rule.skip -= usize::from(matches && rule.skip > 0);
            acts
        })?;
        let action = rules[at].action.clone();
        if let Some(times) = &mut rules[at].times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                rules.remove(at);
            }
        }
        Some(action)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FaultRule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: Verb, resource: &str, live_read: bool) -> LoggedRequest {
        LoggedRequest {
            verb,
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: "v1".to_owned(),
            code: 0,
            live_read,
        }
    }

    #[test]
    fn an_api_error_for_updates_fails_one_write_of_its_resource() {
        let faults = Faults::default();
        faults.add(FaultRule::api_error("update", "persistentvolumes", "no"));
        assert!(faults.next(&request(Verb::Update, "pods", false)).is_none());
        assert!(faults.next(&request(Verb::Patch, "persistentvolumes", false)).is_some());
        assert!(faults.next(&request(Verb::Update, "persistentvolumes", false)).is_none());
        assert_eq!(faults.pending(), 0);
    }

    #[test]
    fn a_rule_with_nth_and_times_acts_from_that_match_that_often() {
        let faults = Faults::default();
        faults.add(FaultRule::new("update", "persistentvolumes").nth(2).times(2));
        let put = request(Verb::Update, "persistentvolumes", false);
        let acts: Vec<bool> = (0..5).map(|_| faults.next(&put).is_some()).collect();
        assert_eq!(acts, [false, true, true, false, false]);
    }

    #[test]
    fn a_live_read_is_exempt_unless_a_rule_includes_it() {
        let faults = Faults::default();
        let read = request(Verb::Get, "persistentvolumes", true);
        faults.add(FaultRule::new("get", "persistentvolumes"));
        assert!(faults.next(&read).is_none());
        faults.add(FaultRule::new("get", "persistentvolumes").including_live_reads());
        assert!(faults.next(&read).is_some());
    }
}
