//! Which packages a build compiled a program of.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::packages;

/// The ids of the packages that were compiled for a target, now or before; `printed` is what cargo said with
/// `--message-format=json-render-diagnostics`, and `folder` is where it keeps what it compiles for the
/// target.
///
/// Build scripts, macros, and what only these are made of are left out: they run on the machine that
/// compiles, so cargo keeps them elsewhere. None of their code is in the program, though code that they wrote
/// is.
///
/// # Errors
/// When a message is not as cargo documents it.
pub(super) fn packages(printed: &str, folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    // What else is printed among the messages is not cargo's, as its documentation says.
    for line in printed.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("cargo printed what is not JSON")?;
        if message["reason"] != "compiler-artifact" {
            continue;
        }
        let files = packages::list(&message, "filenames")?;
        if files.iter().filter_map(Value::as_str).any(|file| Path::new(file).starts_with(folder)) {
            found.insert(packages::text(&message, "package_id")?.to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact(package: &str, file: &str) -> String {
        json!({"reason": "compiler-artifact", "package_id": package, "filenames": [file]}).to_string()
    }

    #[test]
    fn what_is_compiled_for_the_target_counts_and_not_what_runs_while_it_is() {
        let printed = [
            artifact("both", "/target/dist/deps/libboth.rlib"),
            artifact("both", "/target/x86_64-unknown-linux-gnu/dist/deps/libboth.rlib"),
            artifact("macro", "/target/dist/deps/libmacro.so"),
            artifact("script", "/target/dist/build/script/build-script-build"),
            json!({"reason": "build-script-executed", "package_id": "script"}).to_string(),
            "a macro says something".to_owned(),
            artifact("program", "/target/x86_64-unknown-linux-gnu/dist/program"),
            json!({"reason": "build-finished", "success": true}).to_string(),
        ];
        let found = packages(&printed.join("\n"), Path::new("/target/x86_64-unknown-linux-gnu")).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["both", "program"]);
        assert!(packages(r#"{"reason": "compiler-artifact"}"#, Path::new("/")).is_err());
    }
}
