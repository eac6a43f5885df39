//! A small disk that can be filled.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use bindery_cluster::run;
use tempfile::TempDir;

/// Most files, more than tenants make between two faults.
const FILES_MAX: usize = 40_000;

/// A mounted tmpfs.
pub(crate) struct Disk {
    mounted: TempDir,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let mounted = TempDir::new().unwrap();
        let options = format!("size=1g,nr_inodes={FILES_MAX}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(mounted.path());
        let output = run(&mut mount, "");
        assert!(output.status.success(), "run this by `cargo xtask soak cluster`: {output:?}");
        Self { mounted }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// A new folder on it.
    pub(crate) fn folder(&self) -> TempDir {
        TempDir::new_in(self.mounted.path()).unwrap()
    }

    /// Fills the disk with bytes and with files.
    pub(crate) fn fill(&self) {
        fs::create_dir(self.filler()).unwrap();
        let mut bytes = File::create_new(self.filler().join("bytes")).unwrap();
        while bytes.write_all(&[0; 1 << 20]).is_ok() {}
        for number in 0.. {
            match File::create_new(self.filler().join(number.to_string())) {
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                created => drop(created.unwrap()),
            }
        }
    }

    /// Removes these files.
    pub(crate) fn clear(&self) {
        fs::remove_dir_all(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.mounted.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg(self.mounted.path()), "");
    }
}
