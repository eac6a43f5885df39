//! The folders of hostPath volumes on this machine.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

/// Name of the folder with the markers. No volume has this name: names of objects begin with a letter or a
/// digit.
const MARKERS: &str = ".bindery";
/// Most symbolic links that one path may follow, as in Linux (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// Folders directly below a root, each with the name of its volume.
///
/// The marker `.bindery/NAME` below the root says that the folder `NAME` was made here. Only a folder with a
/// marker is deleted. The marker is outside the folder, because pods can write to the folder and could
/// remove or forge a marker in it.
pub(super) struct Folders {
    root: PathBuf,
}

/// A path that another volume names.
#[derive(Debug)]
pub(super) struct Neighbour {
    /// The volume.
    pub(super) volume: String,
    /// The path.
    pub(super) path: PathBuf,
}

impl Folders {
    /// Folders below `root`. If it is relative, every call fails.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Makes the folder of a volume, and the root if it is missing. Succeeds if an earlier call has made the
    /// folder. Fails where a file or folder of that name was not made here.
    pub(super) fn make(&self, volume: &str) -> Result<PathBuf, String> {
        let (folder, marker) = self.paths(volume)?;
        if found(&folder)?.is_some() && found(&marker)?.is_none() {
            let folder = folder.display();
            return Err(format!("{folder} exists and was not made by Bindery: move it away"));
        }
        let markers = self.root.join(MARKERS);
        let builder = |mode| {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(mode);
            builder
        };
        builder(0o750).create(&self.root).map_err(|error| at(&self.root, error))?;
        builder(0o700).create(&markers).map_err(|error| at(&markers, error))?;
        // The marker comes first: a folder without a marker would never be deleted.
        File::create(&marker).map_err(|error| at(&marker, error))?;
        builder(0o750).create(&folder).map_err(|error| at(&folder, error))?;
        Ok(folder)
    }

    /// Deletes the folder of a volume and everything in it. Succeeds if the folder is gone. Follows no
    /// symbolic link.
    ///
    /// # Errors
    ///
    /// The file system refuses, or the folder may not be this volume's alone and is left as it is: `path` is
    /// another folder, there is no marker, or a neighbour names the folder, a path in it or a path above it.
    pub(super) fn remove(&self, volume: &str, path: &Path, neighbours: &[Neighbour]) -> Result<(), String> {
        let (folder, marker) = self.paths(volume)?;
        if path != folder {
            return Err(format!(
                "only folders directly below {} that have the name of their volume are deleted, and the path \
                 of volume {volume:?} is {}",
                self.root.display(),
                path.display()
            ));
        }
        let Some(metadata) = found(&folder)? else { return remove_marker(&marker) };
        if !metadata.is_dir() {
            return Err(format!("{} is not a folder, and is left", folder.display()));
        }
        if found(&marker)?.is_none() {
            return Err(format!(
                "{} may not be Bindery's: there is no {}; delete the folder by hand",
                folder.display(),
                marker.display()
            ));
        }
        self.check_neighbours(&folder, neighbours)?;
        // This opens each folder with O_NOFOLLOW, so it follows no link that was put there meanwhile.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(at(&folder, error)),
            _ => remove_marker(&marker),
        }
    }

    /// Fails if a neighbour names the folder, a path in it, or a path above it, by its text or through links.
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
                return Err(format!(
                    "{named}, so {} is left: delete that volume first, and set \
                     its reclaim policy to Retain if it stays",
                    folder.display()
                ));
            }
        }
        Ok(())
    }

    /// The folder of a volume, and its marker.
    fn paths(&self, volume: &str) -> Result<(PathBuf, PathBuf), String> {
        let mut parts = Path::new(volume).components();
        let is_plain =
            matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == volume);
        if !is_plain || volume == MARKERS {
            return Err(format!("{volume:?} is not the name of a volume"));
        }
        if !self.root.is_absolute() {
            return Err(format!("{} is a relative path", self.root.display()));
        }
        Ok((self.root.join(volume), self.root.join(MARKERS).join(volume)))
    }
}

/// The file or folder at a path; of a symbolic link, the link itself.
fn found(path: &Path) -> Result<Option<Metadata>, String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, error)),
    }
}

fn remove_marker(marker: &Path) -> Result<(), String> {
    match fs::remove_file(marker) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(marker, error)),
        _ => Ok(()),
    }
}

fn at(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

/// Whether the paths are equal, or one is above the other.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The path with `..` resolved by text alone.
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

/// Where an absolute path leads. Unlike [`fs::canonicalize`], this also resolves a path that does not exist.
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
                // It is not a link, or does not exist.
                ErrorKind::InvalidInput | ErrorKind::NotFound | ErrorKind::NotADirectory => real = next,
                _ => return Err(at(&next, error)),
            },
        }
    }
    Ok(real)
}

/// The names in a path, with `..`, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let is_part = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let parts = path.components().filter(is_part).map(|part| PathBuf::from(part.as_os_str()));
    parts.rev().collect()
}
