//! What it means to be alive and ready, and how that is told.

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
}

/// The answer to a probe, as kube-apiserver words it: whether all is well, and the text.
pub(crate) fn told(path: &str, checks: &[Check], verbose: bool) -> (bool, String) {
    let well = checks.iter().all(|check| check.result.is_ok());
    if well && !verbose {
        return (true, "ok".to_owned());
    }
    let mut text = String::new();
    for Check { name, result } in checks {
        // Writing to a string cannot fail.
        let _ = match result {
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(why) => writeln!(text, "[-]{name} failed: {why}"),
        };
    }
    text += &format!("{path} check {}\n", if well { "passed" } else { "failed" });
    (well, text)
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
        assert_eq!(told("readyz", &checks()[..1], false), (true, "ok".to_owned()));
    }

    #[test]
    fn a_failure_tells_every_check() {
        let text = "[+]lists ok\n[-]lease failed: nobody holds it\nreadyz check failed\n";
        assert_eq!(told("readyz", &checks(), false), (false, text.to_owned()));
    }

    #[test]
    fn verbose_tells_every_check_that_holds() {
        assert_eq!(
            told("livez", &checks()[..1], true),
            (true, "[+]lists ok\nlivez check passed\n".to_owned())
        );
    }
}
