//! The files of `tests/defects/`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A bug that a patch brings back.
pub(super) struct Defect {
    /// Name of the file, without its extension.
    pub(super) name: String,
    /// The patch.
    pub(super) file: PathBuf,
    /// The tests that must catch it.
    pub(super) tests: Vec<Test>,
}

/// A test, as `cargo test -p PACKAGE --test TARGET -- --exact NAME` runs it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) package: String,
    pub(super) target: String,
    /// Its name, with its modules.
    pub(super) name: String,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.package, self.target, self.name)
    }
}

/// Reads all defects of a checkout, sorted by name.
pub(super) fn read_all(root: &Path) -> Result<Vec<Defect>> {
    let folder = root.join("tests/defects");
    let mut defects = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "patch") {
            defects.push(read(file)?);
        }
    }
    defects.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(defects)
}

fn read(file: PathBuf) -> Result<Defect> {
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let tests = head(&text).with_context(|| format!("the head of {}", file.display()))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Defect { name, file, tests })
}

/// The tests that the head of a patch names. `Bug:`, `Upstream:` and at least one `Caught-by:` are required.
fn head(text: &str) -> Result<Vec<Test>> {
    let Some((head, _)) = text.split_once("\ndiff --git ") else {
        bail!("no `diff --git` follows");
    };
    let values = |field: &str| -> Vec<&str> {
        let lines = head.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
        lines.map(str::trim).filter(|value| !value.is_empty()).collect()
    };
    for field in ["Bug", "Upstream"] {
        if values(field).len() != 1 {
            bail!("one line must begin with `{field}: `");
        }
    }
    let tests = values("Caught-by").into_iter().map(test).collect::<Result<Vec<_>>>()?;
    if tests.is_empty() {
        bail!("a line must begin with `Caught-by: `");
    }
    Ok(tests)
}

fn test(value: &str) -> Result<Test> {
    let words: Vec<&str> = value.split(' ').collect();
    let [package, "--test", target, name] = words[..] else {
        bail!("`Caught-by: {value}` is not `PACKAGE --test TARGET NAME`");
    };
    Ok(Test { package: package.to_owned(), target: target.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_names_its_tests_and_lacks_nothing() {
        const HEAD: &str =
            "Bug: it forgets.\n     Often.\nUpstream: a/b#1\nCaught-by: p --test t m::n\n\ndiff --git a b\n";
        let expected = Test { package: "p".to_owned(), target: "t".to_owned(), name: "m::n".to_owned() };
        assert_eq!(head(HEAD).unwrap(), [expected]);
        for (without, why) in [
            ("Bug: ", "`Bug: `"),
            ("Upstream: ", "`Upstream: `"),
            ("Caught-by: ", "`Caught-by: `"),
            ("--test ", "PACKAGE --test TARGET NAME"),
            ("\ndiff --git ", "no `diff --git` follows"),
        ] {
            let error = head(&HEAD.replace(without, "")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
