//! The folders of hostPath volumes on this machine.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

/// Name of the folder with the records. No volume has it: names of objects begin with a letter or a digit.
const RECORDS: &str = ".bindery";
/// Most symbolic links that one path may follow, as in Linux (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// Folders directly below a root, each with the name of its volume.
///
/// `.bindery/NAME` below the root records that the folder `NAME` was made here. Only a folder with a record
/// is deleted. The record is outside of the folder, because pods can write to the folder and could remove or
/// forge a record in it.
pub(super) struct Folders {
    root: PathBuf,
}

/// A path on a node that another volume names.
#[derive(Debug)]
pub(super) struct Neighbour {
    /// The volume.
    pub(super) volume: String,
    /// The path.
    pub(super) path: PathBuf,
}

impl Folders {
    /// Folders below `root`. A root that is relative makes every call fail.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Makes the folder of a volume, and the root where it is missing. Succeeds where an earlier call has
    /// made the folder.
    ///
    /// # Errors
    ///
    /// Something else has the folder's name, or the file system refuses.
    pub(super) fn make(&self, volume: &str) -> Result<PathBuf, String> {
        let (folder, record) = self.paths(volume)?;
        if found(&folder)?.is_some() && found(&record)?.is_none() {
            let folder = folder.display();
            return Err(format!("{folder} exists and was not made by Bindery: move it away"));
        }
        let records = self.root.join(RECORDS);
        let builder = |mode| {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(mode);
            builder
        };
        builder(0o750).create(&self.root).map_err(|error| at(&self.root, error))?;
        builder(0o700).create(&records).map_err(|error| at(&records, error))?;
        // The record comes first: a folder without a record would never be deleted.
        File::create(&record).map_err(|error| at(&record, error))?;
        builder(0o750).create(&folder).map_err(|error| at(&folder, error))?;
        Ok(folder)
    }

    /// Deletes the folder of a volume and everything in it. Succeeds where the folder is gone. No symbolic
    /// link is followed.
    ///
    /// # Errors
    ///
    /// The file system refuses, or the folder may not be this volume's alone, and is left as it is: `path` is
    /// another folder, no record says that the folder was made here, or one of the neighbours names it, a
    /// path in it or a path above it.
    pub(super) fn remove(&self, volume: &str, path: &Path, neighbours: &[Neighbour]) -> Result<(), String> {
        let (folder, record) = self.paths(volume)?;
        if path != folder {
            return Err(format!(
                "only folders directly below {} that have the name of their volume are deleted, and the path of volume \
                 {volume:?} is {}",
                self.root.display(),
                path.display()
            ));
        }
        let Some(metadata) = found(&folder)? else { return forget(&record) };
        if !metadata.is_dir() {
            return Err(format!("{} is not a folder, and is left", folder.display()));
        }
        if found(&record)?.is_none() {
            return Err(format!(
                "{} may not be Bindery's: there is no {}; delete the folder by hand",
                folder.display(),
                record.display()
            ));
        }
        self.check_neighbours(&folder, neighbours)?;
        // It opens each folder, this one too, without following a link (O_NOFOLLOW), whatever has been put
        // there meanwhile.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(at(&folder, error)),
            _ => forget(&record),
        }
    }

    /// Fails where a neighbour names the folder, a path in it, or a path above it: by its text, or by where
    /// links lead.
    fn check_neighbours(&self, folder: &Path, neighbours: &[Neighbour]) -> Result<(), String> {
        let (real, text) = (resolve(folder)?, without_dots(folder));
        for Neighbour { volume, path } in neighbours {
            let named = format!("volume {volume:?} names {}", path.display());
            if !path.is_absolute() {
                return Err(format!("{named}, a relative path that may lead to {}", folder.display()));
            }
            let other = resolve(path)
                .map_err(|error| format!("{named}, which may lead to {}: {error}", folder.display()))?;
            if overlap(&real, &other) || overlap(&text, &without_dots(path)) {
                return Err(format!("{named}, so {} is left: delete that volume first", folder.display()));
            }
        }
        Ok(())
    }

    /// The folder of a volume, and its record.
    fn paths(&self, volume: &str) -> Result<(PathBuf, PathBuf), String> {
        let mut parts = Path::new(volume).components();
        let is_plain =
            matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == volume);
        if !is_plain || volume == RECORDS {
            return Err(format!("{volume:?} is not the name of a volume"));
        }
        if !self.root.is_absolute() {
            return Err(format!("{} is a relative path", self.root.display()));
        }
        Ok((self.root.join(volume), self.root.join(RECORDS).join(volume)))
    }
}

/// What there is at a path, a symbolic link itself where it is one.
fn found(path: &Path) -> Result<Option<Metadata>, String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, error)),
    }
}

/// Removes a record.
fn forget(record: &Path) -> Result<(), String> {
    match fs::remove_file(record) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(record, error)),
        _ => Ok(()),
    }
}

fn at(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

/// Whether one of the paths is the other, or is above it.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The path with each `..` applied to the text before it.
fn without_dots(path: &Path) -> PathBuf {
    let mut text = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(text.pop()),
            part => text.push(part),
        }
    }
    text
}

/// Where an absolute path leads. Unlike [`fs::canonicalize`] it also answers for a path that does not exist,
/// or not yet.
///
/// # Errors
///
/// It cannot be known: a folder may not be read, or links lead in a circle.
fn resolve(path: &Path) -> Result<PathBuf, String> {
    let mut real = PathBuf::from("/");
    let (mut rest, mut links) = (parts(path), 0);
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(part);
        match fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(at(&next, "too many symbolic links"));
                }
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(parts(&target));
            }
            Err(error) => match error.kind() {
                // No link, or nothing at all.
                ErrorKind::InvalidInput | ErrorKind::NotFound | ErrorKind::NotADirectory => real = next,
                _ => return Err(at(&next, error)),
            },
        }
    }
    Ok(real)
}

/// The names in a path and its `..`, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let is_part = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let parts = path.components().filter(is_part).map(|part| PathBuf::from(part.as_os_str()));
    parts.rev().collect()
}
