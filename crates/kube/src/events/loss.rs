//! Why events are not written.

use bindery_core::named_cases;

use crate::rest::Fault;

named_cases! {
    /// Why an event was not written.
    EventLoss {
        /// Bindery may not write the event (401, 403).
        Forbidden = "forbidden";
        /// The namespace is gone or is being deleted.
        NamespaceGone = "namespace_gone";
        /// The API server refused the event for another reason (4xx).
        Refused = "refused";
        /// The API server failed (5xx), or did not answer.
        NoAnswer = "no_answer";
        /// The queue was full.
        QueueFull = "queue_full";
        /// The engine named an object with an invalid name.
        NoObject = "no_object";
    }
}

impl EventLoss {
    /// Why an event was not created.
    pub(super) fn of(fault: &Fault) -> Self {
        match fault {
            Fault::Refused { code: 404, .. } => Self::NamespaceGone,
            // The NamespaceLifecycle admission (`k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle`).
            Fault::Refused { code: 403, message, .. }
                if message.contains("because it is being terminated") =>
            {
                Self::NamespaceGone
            }
            Fault::Refused { code: 401 | 403, .. } => Self::Forbidden,
            Fault::Refused { code: 400..=499, .. } => Self::Refused,
            Fault::Refused { .. } | Fault::NoAnswer(_) | Fault::TooLate(_) => Self::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fault_is_counted_by_its_cause() {
        let refused = |code, message: &str| Fault::Refused {
            code,
            reason: String::new(),
            message: message.to_owned(),
            retry_after: None,
            kind: String::new(),
            name: String::new(),
        };
        let terminating = "events \"a.1\" is forbidden: unable to create new content in namespace a because \
                           it is being terminated";
        let rows = [
            (refused(403, "events is forbidden: User \"b\" cannot create resource"), EventLoss::Forbidden),
            (refused(401, "Unauthorized"), EventLoss::Forbidden),
            (refused(403, terminating), EventLoss::NamespaceGone),
            (refused(404, "namespaces \"a\" not found"), EventLoss::NamespaceGone),
            (refused(422, "Event is invalid"), EventLoss::Refused),
            (refused(429, "limit reached"), EventLoss::Refused),
            (refused(500, "etcd has no leader"), EventLoss::NoAnswer),
            (Fault::TooLate(Duration::ZERO), EventLoss::NoAnswer),
        ];
        for (fault, cause) in rows {
            assert_eq!(EventLoss::of(&fault), cause, "{fault}");
        }
    }
}
