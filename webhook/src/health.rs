//! What it means to be alive and ready, and how that is told.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// One thing that has to hold, and whether it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name, such as `lists`.
    pub name: &'static str,
    /// Whether it holds; the text says why it does not, for whoever is on call.
    pub result: Result<(), String>,
}

/// Who knows whether a binder is well.
pub trait Health: Send + Sync + 'static {
    /// What has to hold for the process to be worth keeping: where one fails, a restart helps.
    fn live(&self) -> Vec<Check>;

    /// What has to hold for the process to do its work.
    fn ready(&self) -> Vec<Check>;

    /// Lines that `/readyz?verbose` adds. They fail nothing.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a probe wants to know, of its query: `?verbose` and `?exclude=NAME`, as kube-apiserver reads them
/// (<https://kubernetes.io/docs/reference/using-api/health-checks/>).
#[derive(Debug, Default)]
pub(crate) struct Probe<'a> {
    verbose: bool,
    /// Names of checks that do not count.
    excluded: BTreeSet<&'a str>,
}

impl<'a> Probe<'a> {
    pub(crate) fn of(query: Option<&'a str>) -> Self {
        let mut probe = Self::default();
        for pair in query.unwrap_or_default().split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("verbose", _) => probe.verbose = true,
                ("exclude", name) => drop(probe.excluded.insert(name)),
                _ => {}
            }
        }
        probe
    }

    /// The answer, as kube-apiserver words it: whether all is well that counts, and the text. `notes` are
    /// asked for where all is to be told.
    pub(crate) fn told(
        &self,
        path: &str,
        checks: &[Check],
        notes: impl FnOnce() -> Vec<String>,
    ) -> (bool, String) {
        let well = checks.iter().all(|check| check.result.is_ok() || self.excluded.contains(check.name));
        if well && !self.verbose {
            return (true, "ok".to_owned());
        }
        let mut text = String::new();
        for Check { name, result } in checks {
            // Writing to a string cannot fail.
            let _ = match result {
                _ if self.excluded.contains(name) => writeln!(text, "[+]{name} excluded: ok"),
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => writeln!(text, "[-]{name} failed: {why}"),
            };
        }
        if self.verbose {
            notes().into_iter().for_each(|note| text += &format!("[+]{note}\n"));
        }
        text += &format!("{path} check {}\n", if well { "passed" } else { "failed" });
        (well, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        vec![
            Check { name: "lists", result: Ok(()) },
            Check { name: "lease", result: Err("nobody holds it".to_owned()) },
        ]
    }

    #[test]
    fn all_well_is_one_word() {
        assert_eq!(Probe::of(None).told("readyz", &checks()[..1], Vec::new), (true, "ok".to_owned()));
    }

    #[test]
    fn a_failure_tells_every_check() {
        let text = "[+]lists ok\n[-]lease failed: nobody holds it\nreadyz check failed\n";
        assert_eq!(Probe::of(None).told("readyz", &checks(), Vec::new), (false, text.to_owned()));
    }

    #[test]
    fn verbose_tells_every_check_that_holds() {
        assert_eq!(
            Probe::of(Some("verbose")).told("livez", &checks()[..1], Vec::new),
            (true, "[+]lists ok\nlivez check passed\n".to_owned())
        );
    }

    #[test]
    fn notes_are_told_to_who_asks_for_all_and_fail_nothing() {
        let told = |query, checks: &[Check]| {
            Probe::of(query).told("readyz", checks, || vec!["watches: none".to_owned()])
        };
        assert_eq!(told(None, &checks()[..1]), (true, "ok".to_owned()));
        let text = "[+]lists ok\n[+]watches: none\nreadyz check passed\n";
        assert_eq!(told(Some("verbose"), &checks()[..1]), (true, text.to_owned()));
        let text = "[+]lists ok\n[-]lease failed: nobody holds it\nreadyz check failed\n";
        assert_eq!(told(None, &checks()), (false, text.to_owned()));
    }

    #[test]
    fn what_is_excluded_does_not_count() {
        for query in ["exclude=lease", "exclude=other&exclude=lease"] {
            assert_eq!(
                Probe::of(Some(query)).told("readyz", &checks(), Vec::new),
                (true, "ok".to_owned()),
                "{query}"
            );
        }
        let text = "[+]lists ok\n[+]lease excluded: ok\nreadyz check passed\n";
        let told = Probe::of(Some("verbose&exclude=lease")).told("readyz", &checks(), Vec::new);
        assert_eq!(told, (true, text.to_owned()));
        for query in ["exclude=lists", "exclude=lea", "exclude=", "exclude"] {
            assert!(!Probe::of(Some(query)).told("readyz", &checks(), Vec::new).0, "{query}");
        }
    }
}
