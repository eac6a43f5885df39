//! Removes the artefacts that were used longest ago, and none that is in use.
//!
//! A process that uses an artefact holds a shared lock on its file, so processes that share a folder know of
//! each other. A process that removes an artefact takes an exclusive lock first. Where the file system has no
//! locks, nothing is removed.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, flock,
    futimens, openat, statat, unlinkat,
};

/// An artefact that is in use.
pub(crate) struct InUse(File);

impl InUse {
    /// The artefact in this file. Waits while another process removes it, which takes microseconds.
    pub(super) fn new(file: File) -> Self {
        if let Err(error) = flock(&file, FlockOperation::LockShared) {
            tracing::debug!(%error, "the file system has no locks: no compiled component is removed");
        }
        touch(&file);
        Self(file)
    }

    pub(super) fn file(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        touch(&self.0);
    }
}

/// Writes down that a file is used now.
fn touch(file: &File) {
    let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let now = Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) };
    // Without it the file counts as used earlier.
    let _ = futimens(file, &now);
}

/// A regular file of the folder.
struct Artefact {
    /// Seconds and nanoseconds of the last use; the first field, because it sorts.
    used: (i64, i64),
    name: CString,
    bytes: u64,
}

/// The regular files of an open folder.
fn artefacts(folder: &File) -> io::Result<Vec<Artefact>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        // Another process may have removed it.
        let Ok(stat) = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(stat.st_mode).is_file() {
            #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "types differ by target")]
            let used = (stat.st_mtime.into(), stat.st_mtime_nsec as i64);
            found.push(Artefact { used, name, bytes: u64::try_from(stat.st_size).unwrap_or_default() });
        }
    }
    Ok(found)
}

/// An exclusive lock on a file of the folder; none if the file is in use, or cannot be locked.
fn lock(folder: &File, name: &CString) -> Option<File> {
    // WRITE: a network file system gives no exclusive lock without it.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file)
}

/// Makes room for `new` bytes, so that the folder has at most `max`. If what is in use leaves too little
/// room, nothing is removed.
pub(super) fn make_room(folder: &File, new: u64, max: u64) -> io::Result<()> {
    let mut artefacts = artefacts(folder)?;
    artefacts.sort_by_key(|artefact| artefact.used);
    let mut bytes = new + artefacts.iter().map(|artefact| artefact.bytes).sum::<u64>();
    let mut unused = Vec::new();
    for artefact in artefacts {
        if bytes <= max {
            break;
        }
        if let Some(lock) = lock(folder, &artefact.name) {
            bytes -= artefact.bytes;
            unused.push((artefact.name, lock));
        }
    }
    if bytes > max {
        return Err(io::Error::other(format!(
            "its {new} bytes and the compiled components in use are {bytes} bytes, and {max} is the most"
        )));
    }
    for (name, _lock) in unused {
        unlinkat(folder, &name, AtFlags::empty())?;
    }
    Ok(())
}

/// How many bytes of the compiled components in a folder are in use, by any process.
pub fn cache_bytes_in_use(folder: &Path) -> io::Result<u64> {
    let folder = File::open(folder)?;
    let used = artefacts(&folder)?.into_iter().filter(|artefact| lock(&folder, &artefact.name).is_none());
    Ok(used.map(|artefact| artefact.bytes).sum())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    const MAX: u64 = 100;

    /// A folder with files of 30 bytes, the one used longest ago first.
    fn filled(names: &[&str]) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        for (age, name) in names.iter().rev().enumerate() {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_len(30).unwrap();
            let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 - age as u64);
            file.set_modified(used).unwrap();
        }
        let open = File::open(folder.path()).unwrap();
        (folder, open)
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn used(folder: &tempfile::TempDir, name: &str) -> InUse {
        InUse::new(File::open(folder.path().join(name)).unwrap())
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_never_what_is_in_use() {
        let (folder, open) = filled(&["z", "y", "x"]);
        make_room(&open, 10, MAX).unwrap();
        assert_eq!(names(&folder), ["x", "y", "z"], "there is room");
        let z = used(&folder, "z");
        assert_eq!(cache_bytes_in_use(folder.path()).unwrap(), 30);
        make_room(&open, 40, MAX).unwrap();
        assert_eq!(names(&folder), ["x", "z"]);

        let x = used(&folder, "x");
        let full = make_room(&open, 41, MAX).unwrap_err().to_string();
        assert_eq!(
            full,
            "its 41 bytes and the compiled components in use are 101 bytes, and 100 is the most"
        );
        assert_eq!(names(&folder), ["x", "z"]);
        drop(z);
        make_room(&open, 70, MAX).unwrap();
        assert_eq!(names(&folder), ["x"]);
        drop(x);
        assert_eq!(cache_bytes_in_use(folder.path()).unwrap(), 0);
    }

    #[test]
    fn a_use_counts_from_its_end_and_folders_and_links_stay() {
        let (folder, open) = filled(&["z", "y", "x"]);
        fs::create_dir(folder.path().join("registry")).unwrap();
        std::os::unix::fs::symlink("x", folder.path().join("link")).unwrap();
        drop(used(&folder, "z"));
        make_room(&open, 40, MAX).unwrap();
        assert_eq!(names(&folder), ["link", "registry", "x", "z"]);
        make_room(&open, MAX, MAX).unwrap();
        assert_eq!(names(&folder), ["link", "registry"]);
    }
}
