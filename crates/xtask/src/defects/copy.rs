//! A copy of the checkout in which defects are planted: a worktree of git.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::process;

/// A copy of the files that git tracks or would add, in their current state.
pub(crate) struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Makes the copy, or updates the one of an earlier run. Git leaves unchanged files alone, so cargo
    /// rebuilds only what has changed.
    pub(crate) fn make(checkout: &Path, root: &Path) -> Result<Self> {
        let commit = &snapshot(checkout, &root.with_extension("index"))?;
        let checked_out = ["checkout", "--quiet", "--force", "--detach", commit];
        if !root.join(".git").is_file() || process::run(git(root).args(checked_out)).is_err() {
            // There is no worktree, or it belongs to another checkout with the same target folder.
            if root.exists() {
                std::fs::remove_dir_all(root)?;
            }
            let mut add = git(checkout);
            add.args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(root).arg(commit);
            process::run(&mut add)?;
        }
        process::run(git(root).args(["clean", "--quiet", "-d", "--force"]))?;
        Ok(Self { root: root.to_owned() })
    }

    /// The copy's folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Calls `act` while a patch is applied.
    pub(crate) fn with<T>(&self, patch: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
        process::run(git(&self.root).arg("apply").arg(patch))?;
        let result = act();
        process::run(git(&self.root).args(["apply", "--reverse"]).arg(patch))?;
        result
    }
}

/// Commits the state of a checkout, without changing its branch or its index, and returns the commit.
fn snapshot(checkout: &Path, index: &Path) -> Result<String> {
    let run = |arguments: &[&str]| {
        let mut command = git(checkout);
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "xtask").env(format!("GIT_{role}_EMAIL"), "xtask");
        }
        process::output(command.env("GIT_INDEX_FILE", index).args(arguments))
    };
    run(&["add", "--all"])?;
    let tree = run(&["write-tree"])?;
    Ok(run(&["commit-tree", "-m", "Checkout under test", tree.trim()])?.trim().to_owned())
}

fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder);
    command
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_copy_follows_the_checkout_and_a_patch_is_reverted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let (checkout, root) = (folder.join("checkout"), folder.join("copy"));
        fs::create_dir_all(checkout.join("sub")).unwrap();
        process::run(git(&checkout).args(["init", "--quiet"])).unwrap();
        fs::write(checkout.join("sub/a"), "one\n").unwrap();
        fs::write(checkout.join("b"), "b\n").unwrap();
        Copy::make(&checkout, &root).unwrap();

        fs::remove_file(checkout.join("b")).unwrap();
        fs::write(root.join("left"), "by an interrupted run\n").unwrap();
        fs::write(root.join("sub/a"), "spoilt\n").unwrap();
        let copy = Copy::make(&checkout, &root).unwrap();
        let content = || fs::read_to_string(root.join("sub/a")).unwrap();
        assert_eq!(content(), "one\n");
        assert!(!root.join("b").exists() && !root.join("left").exists());

        let patch = folder.join("p.patch");
        let text = "Bug: it is two.\n\ndiff --git a/sub/a b/sub/a\n--- a/sub/a\n+++ b/sub/a\n\
                    @@ -1 +1 @@\n-one\n+two\n";
        fs::write(&patch, text).unwrap();
        assert_eq!(copy.with(&patch, || Ok(content())).unwrap(), "two\n");
        assert_eq!(content(), "one\n");
        fs::write(root.join("sub/a"), "three\n").unwrap();
        assert!(copy.with(&patch, || Ok(())).is_err());
    }
}
