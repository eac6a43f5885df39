//! Whether writes get through to the API server.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::WriteError;

/// Number of consecutive failures after which writes count as blocked.
const FAILURES_MIN: u32 = 3;
/// Number of consecutive failures after which another replica may be asked to lead.
const BROKEN_FAILURES_MIN: u32 = 5;
/// How long no write has succeeded before another replica may be asked to lead.
const BROKEN_AFTER: Duration = Duration::from_secs(15);

/// The outcome of the last writes. A write that was refused because its object had changed counts as success;
/// every other failure counts. A policy or a webhook that refuses Bindery's writes may also answer with 400
/// or 422. One refused object says nothing about others, so at least two must fail.
///
/// Writes may be blocked for this replica alone, as where its API server fails. They count as broken after
/// more failures and a longer time, and only by failures that another replica might not get. A refusal by
/// admission is none, because it would move the leadership from one replica to the next without end.
#[derive(Clone, Debug, Default)]
pub struct WriteHealth(watch::Sender<Outcomes>);

#[derive(Debug, Default)]
struct Outcomes {
    /// When the last write succeeded.
    succeeded: Option<Instant>,
    /// The failures since then.
    blocked: Option<Failures>,
    /// Those of them that another replica might not get.
    broken: Option<Failures>,
    is_broken: bool,
}

#[derive(Debug)]
struct Failures {
    /// When the first of them was sent, or a later success.
    since: Instant,
    count: u32,
    /// The object whose write failed first.
    object: String,
    /// Whether writes of another object failed too.
    several: bool,
    error: String,
}

impl WriteHealth {
    /// Whether writes reach the API server, by the outcome of the last ones.
    ///
    /// # Errors
    ///
    /// They do not; the error has the last answer.
    pub fn check(&self) -> Result<(), String> {
        match &self.0.borrow().blocked {
            Some(failures) if failures.reach(FAILURES_MIN) => {
                Err(format!("the last {} writes failed: {}", failures.count, failures.error))
            }
            _ => Ok(()),
        }
    }

    /// Waits until writes are broken, or are not.
    pub async fn until_broken(&self, broken: bool) {
        let mut outcomes = self.0.subscribe();
        // The sender lives in self.
        let _ = outcomes.wait_for(|outcomes| outcomes.is_broken == broken).await;
    }

    /// Forgets the failures that another replica might not get.
    pub fn forget_broken(&self) {
        self.0.send_modify(|outcomes| (outcomes.broken, outcomes.is_broken) = (None, false));
    }

    /// A write that was sent at this time was answered.
    pub(crate) fn tried(&self, object: &str, sent: Instant, error: Option<&WriteError>) {
        self.0.send_if_modified(|outcomes| {
            let was_broken = outcomes.is_broken;
            match error {
                Some(
                    error @ (WriteError::Forbidden(_)
                    | WriteError::Unauthorized(_)
                    | WriteError::Invalid(_)
                    | WriteError::Throttled { .. }
                    | WriteError::Broken { .. }
                    | WriteError::Failed(_)),
                ) => outcomes.failed(object, sent, error),
                _ => *outcomes = Outcomes { succeeded: Some(Instant::now()), ..Outcomes::default() },
            }
            outcomes.is_broken != was_broken
        });
    }

    /// Forgets the outcomes: the next run of the binder is judged by its own writes.
    pub(crate) fn reset(&self) {
        self.0.send_replace(Outcomes::default());
    }
}

impl Outcomes {
    fn failed(&mut self, object: &str, sent: Instant, error: &WriteError) {
        let since = self.succeeded.map_or(sent, |succeeded| succeeded.max(sent));
        Failures::add(&mut self.blocked, object, since, error);
        if error.may_pass_elsewhere() {
            let broken = Failures::add(&mut self.broken, object, since, error);
            self.is_broken = broken.reach(BROKEN_FAILURES_MIN) && broken.since.elapsed() >= BROKEN_AFTER;
        }
    }
}

impl Failures {
    fn add<'a>(
        failures: &'a mut Option<Self>,
        object: &str,
        since: Instant,
        error: &WriteError,
    ) -> &'a mut Self {
        let failures = failures.get_or_insert_with(|| Self {
            since,
            count: 0,
            object: object.to_owned(),
            several: false,
            error: String::new(),
        });
        failures.since = failures.since.min(since);
        failures.count = failures.count.saturating_add(1);
        failures.several |= failures.object != object;
        failures.error = error.to_string();
        failures
    }

    fn reach(&self, count: u32) -> bool {
        self.several && self.count >= count
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn writes_get_through_until_several_in_a_row_fail() {
        let down = || WriteError::Failed("no answer".to_owned());
        let forbidden = || WriteError::Forbidden("no".to_owned());
        let unknown = || WriteError::Unauthorized("Unauthorized".to_owned());
        let busy = || WriteError::Throttled { message: "busy".to_owned(), retry_after: Duration::ZERO };
        let denied = || WriteError::Invalid("a policy wants a label".to_owned());
        let broken = || WriteError::Broken { status: 504, message: "late".to_owned() };
        let conflict = || WriteError::Conflict("changed".to_owned());
        for (writes, gets_through) in [
            (vec![], true),
            (vec![("a", Some(down())), ("b", Some(down()))], true),
            (vec![("a", Some(down())), ("b", Some(forbidden())), ("a", Some(busy()))], false),
            (vec![("a", Some(unknown())), ("b", Some(unknown())), ("a", Some(unknown()))], false),
            (vec![("a", Some(broken())), ("b", Some(broken())), ("a", Some(broken()))], false),
            (vec![("a", Some(denied())), ("b", Some(denied())), ("a", Some(denied()))], false),
            (vec![("a", Some(forbidden())), ("a", Some(forbidden())), ("a", Some(forbidden()))], true),
            (vec![("a", Some(down())), ("b", Some(down())), ("c", Some(down())), ("a", None)], true),
            (
                vec![("a", Some(down())), ("b", Some(down())), ("c", Some(down())), ("a", Some(conflict()))],
                true,
            ),
        ] {
            let health = WriteHealth::default();
            for (object, error) in &writes {
                health.tried(object, Instant::now(), error.as_ref());
            }
            assert_eq!(health.check().is_ok(), gets_through, "{writes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn given_five_failures_in_15_s_writes_are_broken_if_others_may_pass() {
        let failed = |message: &str| Some(WriteError::Broken { status: 500, message: message.to_owned() });
        let down = || failed("etcd is away");
        let silent = || Some(WriteError::Failed("no answer".to_owned()));
        let denied = || failed("admission webhook \"w\" denied the request: no");
        let not_called = || failed("failed calling webhook \"w\": connection refused");
        let patched = || failed("Internal error occurred: jsonpatch add operation does not apply");
        let late = || failed("admission plugin \"w\" failed to complete mutation in 13s");
        let forbidden = || Some(WriteError::Forbidden("no".to_owned()));
        let busy = || Some(WriteError::Throttled { message: "busy".to_owned(), retry_after: Duration::ZERO });
        for (objects, seconds, errors, is_broken) in [
            (["a", "b"], 3, vec![down(), silent(), down(), silent(), down()], true),
            (["a", "b"], 2, vec![down(), silent(), down(), silent(), down()], false),
            (["a", "b"], 60, vec![down(); 4], false),
            (["a", "a"], 60, vec![down(); 5], false),
            (["a", "b"], 60, vec![down(), down(), None, down(), down(), down(), down()], false),
            (["a", "b"], 60, vec![denied(); 5], false),
            (["a", "b"], 60, vec![not_called(); 5], false),
            (["a", "b"], 60, vec![patched(); 5], false),
            (["a", "b"], 60, vec![late(); 5], false),
            (["a", "b"], 60, vec![forbidden(), busy(), down(), down(), down(), down()], false),
            (["a", "b"], 60, vec![down(), forbidden(), down(), down(), busy(), down(), down()], true),
        ] {
            let health = WriteHealth::default();
            for (error, object) in errors.iter().zip(objects.into_iter().cycle()) {
                let sent = Instant::now();
                advance(Duration::from_secs(seconds)).await;
                health.tried(object, sent, error.as_ref());
            }
            assert_eq!(health.0.borrow().is_broken, is_broken, "{seconds} {objects:?} {errors:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn given_a_success_meanwhile_the_time_of_a_late_failure_begins_there() {
        let (health, sent) = (WriteHealth::default(), Instant::now());
        let fails =
            |object: &str| health.tried(object, sent, Some(&WriteError::Failed("no answer".to_owned())));
        advance(Duration::from_secs(10)).await;
        health.tried("a", sent, None);
        advance(Duration::from_secs(14)).await;
        ["a", "b", "a", "b", "a"].into_iter().for_each(fails);
        assert!(!health.0.borrow().is_broken);
        advance(Duration::from_secs(1)).await;
        fails("b");
        assert!(health.0.borrow().is_broken);
    }
}
