//! Whether writes get through to the API server.

use parking_lot::Mutex;

use crate::WriteError;

/// Number of consecutive failures after which writes count as blocked.
const FAILURES_MIN: u32 = 3;

/// The outcome of the last writes. A write that was refused because its object had changed counts as success;
/// every other failure counts. A policy or a webhook that refuses Bindery's writes may also answer with 400
/// or 422. One refused object says nothing about others, so at least two must fail.
#[derive(Debug, Default)]
pub struct WriteHealth(Mutex<Option<Blocked>>);

#[derive(Debug)]
struct Blocked {
    failures: u32,
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
        match &*self.0.lock() {
            Some(Blocked { failures, several: true, error, .. }) if *failures >= FAILURES_MIN => {
                Err(format!("the last {failures} writes failed: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// A write was answered.
    pub(crate) fn tried(&self, object: &str, error: Option<&WriteError>) {
        let mut blocked = self.0.lock();
        let error = match error {
            Some(
                error @ (WriteError::Forbidden(_)
                | WriteError::Unauthorized(_)
                | WriteError::Invalid(_)
                | WriteError::Throttled { .. }
                | WriteError::Broken { .. }
                | WriteError::Failed(_)),
            ) => error.to_string(),
            _ => return *blocked = None,
        };
        let entry = blocked.get_or_insert_with(|| Blocked {
            failures: 0,
            object: object.to_owned(),
            several: false,
            error: String::new(),
        });
        entry.failures = entry.failures.saturating_add(1);
        entry.several |= entry.object != object;
        entry.error = error;
    }

    /// Forgets the outcomes: the next run of the binder is judged by its own writes.
    pub(crate) fn reset(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
                health.tried(object, error.as_ref());
            }
            assert_eq!(health.check().is_ok(), gets_through, "{writes:?}");
        }
    }
}
