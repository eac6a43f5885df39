//! A copy of the checkout to spoil.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;

/// A copy of the files that git knows or would add, as they are in the checkout now.
pub(super) struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Makes the copy, or brings the one of an earlier run up to date. A file that is right already is left
    /// alone, so that cargo does not build anew what has not changed.
    ///
    /// # Errors
    /// When git cannot list the files, or one cannot be copied.
    pub(super) fn make(checkout: &Path, root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        git.current_dir(checkout).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = process::output(&mut git)?;
        let wanted: BTreeSet<PathBuf> = listed
            .split_terminator('\0')
            .map(PathBuf::from)
            // What was deleted is listed until that is committed.
            .filter(|path| checkout.join(path).is_file())
            .collect();
        for path in &wanted {
            copy_file(&checkout.join(path), &root.join(path))?;
        }
        remove_others(root, root, &wanted)?;
        Ok(Self { root: root.to_owned() })
    }

    /// Where it is.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Does something while a patch is applied.
    ///
    /// # Errors
    /// When the patch does not apply, when that fails, or when the patch cannot be taken back.
    pub(super) fn with<T>(&self, patch: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
        process::run(self.apply().arg(patch))?;
        let result = act();
        process::run(self.apply().arg("--reverse").arg(patch))?;
        result
    }

    /// `git apply`, which would look for the repository around the copy and then take its paths for those.
    fn apply(&self) -> Command {
        let mut git = Command::new("git");
        git.arg("apply").current_dir(&self.root);
        if let Some(above) = self.root.parent() {
            git.env("GIT_CEILING_DIRECTORIES", above);
        }
        git
    }
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
    let content = fs::read(from).with_context(failed)?;
    if fs::read(to).is_ok_and(|existing| existing == content) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    fs::write(to, content).with_context(failed)
}

/// Removes the files of an earlier run that the checkout has no more.
fn remove_others(root: &Path, folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    let failed = || format!("cannot tidy {}", folder.display());
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let path = entry.path();
        if entry.file_type().with_context(failed)?.is_dir() {
            remove_others(root, &path, wanted)?;
        } else if path.strip_prefix(root).is_ok_and(|path| !wanted.contains(path)) {
            fs::remove_file(&path).with_context(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this process alone, empty, that nobody takes for a repository.
    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bindery-copy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_copy_follows_the_checkout_and_a_patch_is_taken_back() {
        let folder = scratch("follows");
        let (checkout, root) = (folder.join("checkout"), folder.join("copy"));
        fs::create_dir_all(checkout.join("sub")).expect("a folder");
        process::run(Command::new("git").args(["init", "--quiet"]).current_dir(&checkout))
            .expect("git is there");
        let file = checkout.join("sub/a");
        fs::write(&file, "one\n").expect("written");
        fs::write(checkout.join("b"), "b\n").expect("written");
        Copy::make(&checkout, &root).expect("copied");

        fs::remove_file(checkout.join("b")).expect("removed");
        fs::write(root.join("left"), "of an interrupted run\n").expect("written");
        fs::write(root.join("sub/a"), "spoilt\n").expect("written");
        let copy = Copy::make(&checkout, &root).expect("copied again");
        let content = || fs::read_to_string(root.join("sub/a")).expect("a file");
        assert_eq!(content(), "one\n");
        assert!(!root.join("b").exists() && !root.join("left").exists());

        let patch = folder.join("p.patch");
        let text = "Bug: it is two.\n\ndiff --git a/sub/a b/sub/a\n--- a/sub/a\n+++ b/sub/a\n@@ -1 +1 @@\n-one\n+two\n";
        fs::write(&patch, text).expect("written");
        assert_eq!(copy.with(&patch, || Ok(content())).expect("it applies"), "two\n");
        assert_eq!(content(), "one\n");
        fs::write(root.join("sub/a"), "three\n").expect("written");
        assert!(copy.with(&patch, || Ok(())).is_err());
        fs::remove_dir_all(folder).expect("removed");
    }
}
