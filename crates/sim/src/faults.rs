//! Faults: requests that fail, take time, or are applied while their answer is lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::request::Verb;

/// The request header of a read that a safety check makes.
pub const GUARD_HEADER: &str = "x-bindery-guard";
/// The value of [`GUARD_HEADER`] that exempts a read from faults.
pub const GUARD_LIVE_READ: &str = "live-read";

/// Which verbs a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verbs {
    Any,
    One(String),
    /// PUT and PATCH.
    Writes,
}

/// What happens to a request that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// It is refused with this status; nothing is applied.
    Fail {
        /// HTTP status code.
        code: u16,
        /// `metav1.StatusReason`.
        reason: String,
        /// The message of the Status.
        message: String,
        /// After how many seconds the client may ask again (`Retry-After`), where it is told.
        retry_after_seconds: Option<u32>,
    },
    /// It is served after this time.
    Delay(Duration),
    /// It is applied, and the connection breaks before the answer.
    LoseAnswer,
}

/// Which requests a fault meets, and what it does to them. A rule is used once unless told otherwise.
///
/// ```
/// use bindery_sim::FaultRule;
///
/// // The second write of volume `v1`, to its spec or its status, fails.
/// let rule = FaultRule::writes("persistentvolumes").named("v1").nth(2).fail(500, "InternalError", "injected");
/// ```
#[derive(Clone, Debug)]
pub struct FaultRule {
    verbs: Verbs,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
    /// Matching requests that still pass before the rule acts.
    skip: usize,
    /// How often the rule still acts; `None` for ever.
    times: Option<usize>,
    live_reads: bool,
    action: FaultAction,
}

impl FaultRule {
    fn matching(verbs: Verbs, resource: Option<&str>) -> Self {
        FaultRule {
            verbs,
            resource: resource.map(str::to_owned),
            subresource: None,
            name: None,
            skip: 0,
            times: Some(1),
            live_reads: false,
            action: FaultAction::Fail {
                code: 500,
                reason: "InternalError".to_owned(),
                message: "injected".to_owned(),
                retry_after_seconds: None,
            },
        }
    }

    /// Any request to resources.
    pub fn any() -> Self {
        FaultRule::matching(Verbs::Any, None)
    }

    /// Requests of one Kubernetes verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`) to one resource (its plural), subresources included.
    pub fn new(verb: &str, resource: &str) -> Self {
        FaultRule::matching(Verbs::One(verb.to_owned()), Some(resource))
    }

    /// PUT and PATCH of a resource or of its status.
    pub fn writes(resource: &str) -> Self {
        FaultRule::matching(Verbs::Writes, Some(resource))
    }

    /// An entry of `api_errors` in the conformance corpora: `update` means any write of the resource, and the
    /// first match fails with that message, and with the reason that the message tells, for corpora keep no
    /// other.
    pub fn api_error(verb: &str, resource: &str, message: &str) -> Self {
        let rule =
            if verb == "update" { FaultRule::writes(resource) } else { FaultRule::new(verb, resource) };
        match message {
            _ if message.ends_with(" already exists") => rule.fail(409, "AlreadyExists", message),
            _ if message.ends_with(" not found") => rule.fail(404, "NotFound", message),
            _ => rule.fail(500, "InternalError", message),
        }
    }

    /// Only this subresource; `""` for the main resource.
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Only the object of this name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only from the n-th match on; the first is 1.
    pub fn nth(mut self, n: usize) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// Acts this many times rather than once.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Acts for ever.
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Meets reads of safety checks too, which are exempt otherwise.
    pub fn including_live_reads(mut self) -> Self {
        self.live_reads = true;
        self
    }

    /// Refuses the request.
    pub fn fail(mut self, code: u16, reason: &str, message: &str) -> Self {
        self.action = FaultAction::Fail {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            retry_after_seconds: None,
        };
        self
    }

    /// Refuses the request with 429 and asks the client to wait, as the real server does when it is busy.
    pub fn busy(mut self, retry_after_seconds: u32) -> Self {
        self.action = FaultAction::Fail {
            code: 429,
            reason: "TooManyRequests".to_owned(),
            message: "Too many requests, please try again later.".to_owned(),
            retry_after_seconds: Some(retry_after_seconds),
        };
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

    fn matches(&self, request: &Target<'_>) -> bool {
        let verb = match &self.verbs {
            Verbs::Any => true,
            Verbs::One(verb) => verb == request.verb.as_str(),
            Verbs::Writes => matches!(request.verb, Verb::Update | Verb::Patch),
        };
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        verb && (self.live_reads || !request.live_read)
            && fits(&self.resource, request.resource)
            && fits(&self.subresource, request.subresource)
            && fits(&self.name, request.name)
    }
}

/// What of a request the rules look at.
pub(crate) struct Target<'a> {
    pub(crate) verb: Verb,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) name: &'a str,
    pub(crate) live_read: bool,
}

/// The rules in force, in the order in which they were added: the first that matches acts.
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

    /// What happens to a request, if anything; uses the rule up.
    pub(crate) fn meet(&self, request: &Target<'_>) -> Option<FaultAction> {
        let mut rules = self.lock();
        let mut acts = None;
        for (index, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| rule.matches(request)) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if let Some(times) = &mut rule.times {
                *times = times.saturating_sub(1);
            }
            acts = Some(index);
            break;
        }
        let index = acts?;
        let action = rules[index].action.clone();
        if rules[index].times == Some(0) {
            rules.remove(index);
        }
        Some(action)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<FaultRule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(subresource: &'static str) -> Target<'static> {
        Target {
            verb: Verb::Update,
            resource: "persistentvolumes",
            subresource,
            name: "v1",
            live_read: false,
        }
    }

    #[test]
    fn an_api_error_meets_any_write_once() {
        let faults = Faults::default();
        faults.add(FaultRule::api_error("update", "persistentvolumes", "no"));
        assert!(faults.meet(&Target { resource: "pods", ..put("") }).is_none());
        assert!(faults.meet(&put("status")).is_some());
        assert!(faults.meet(&put("")).is_none());
        assert_eq!(faults.pending(), 0);
    }

    #[test]
    fn the_nth_match_and_repetition() {
        let faults = Faults::default();
        faults.add(FaultRule::new("update", "persistentvolumes").subresource("").nth(2).times(2));
        let met: Vec<bool> = (0..5).map(|_| faults.meet(&put("")).is_some()).collect();
        assert_eq!(met, [false, true, true, false, false]);
    }

    #[test]
    fn live_reads_are_exempt_unless_asked_for() {
        let faults = Faults::default();
        let read = Target { verb: Verb::Get, live_read: true, ..put("") };
        faults.add(FaultRule::new("get", "persistentvolumes"));
        assert!(faults.meet(&read).is_none());
        faults.add(FaultRule::new("get", "persistentvolumes").including_live_reads());
        assert!(faults.meet(&read).is_some());
    }
}
