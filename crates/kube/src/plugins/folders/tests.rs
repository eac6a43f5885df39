use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, symlink};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;

use super::*;

/// Random machines in one run.
const WORLDS: u64 = 400;
/// Names of folders below the root, and of volumes.
const NAMES: [&str; 4] = ["pvc-a", "pvc-b", "pvc-c", "by-hand"];
/// Parts of random paths: folders, files in them, links, and names that do not exist.
const PARTS: [&str; 12] = [
    "pvc-a", "pvc-b", "pvc-c", "by-hand", "inner", "data", "link-0", "link-1", "link-2", "..", ".", "missing",
];

/// A root with folders, a folder outside it, and links between them.
struct Machine {
    folder: TempDir,
    folders: Folders,
    /// Volumes whose folder `Folders::make` has made.
    made: BTreeSet<&'static str>,
    chance: StdRng,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let folders = Folders::new(folder.path().join("root"));
        let mut machine =
            Self { folder, folders, made: BTreeSet::new(), chance: StdRng::seed_from_u64(seed) };
        fs::create_dir_all(machine.path("outside/inner")).unwrap();
        for name in NAMES {
            match machine.chance.random_range(0..4) {
                0 => {}
                1 if name == "by-hand" => fs::create_dir_all(machine.path("root/by-hand")).unwrap(),
                _ => drop(machine.make(name)),
            }
        }
        for name in NAMES {
            let folder = machine.path(&format!("root/{name}"));
            if folder.is_dir() && machine.chance.random_bool(0.7) {
                fs::create_dir_all(folder.join("inner")).unwrap();
                fs::write(folder.join("inner/data"), name).unwrap();
            }
        }
        for number in 0..3 {
            let (place, target) = (machine.any_place(), machine.any_path());
            // This fails if the folder does not exist.
            let _ = symlink(target, place.join(format!("link-{number}")));
        }
        // A folder is moved elsewhere, with a link in its place.
        if machine.chance.random_bool(0.2) {
            let moved = machine.path("root/pvc-a");
            if fs::rename(&moved, machine.path("outside/pvc-a")).is_ok() {
                symlink(machine.path("outside/pvc-a"), moved).unwrap();
            }
        }
        machine
    }

    fn make(&mut self, name: &'static str) -> PathBuf {
        self.made.insert(name);
        self.folders.make(name).unwrap()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn any_place(&mut self) -> PathBuf {
        let place = ["root", "root/pvc-a", "root/pvc-b/inner", "outside", "outside/inner"];
        let place = place.choose(&mut self.chance).unwrap();
        self.path(place)
    }

    /// A path to a folder, into one, above one, or beside it.
    fn any_path(&mut self) -> PathBuf {
        let begin =
            ["", "root", "root", "root", "outside", "outside/inner"].choose(&mut self.chance).unwrap();
        let mut path = self.path(begin);
        for _ in 0..self.chance.random_range(0..4) {
            path.push(PARTS.choose(&mut self.chance).unwrap());
        }
        path
    }

    /// The content of each file and the target of each link, by path; without markers.
    fn contents(&self) -> BTreeSet<(PathBuf, String)> {
        let mut contents = BTreeSet::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let holds = if metadata.is_symlink() {
                    fs::read_link(&path).unwrap().display().to_string()
                } else if metadata.is_dir() {
                    if path.ends_with(MARKERS) {
                        continue;
                    }
                    folders.push(path.clone());
                    "a folder".to_owned()
                } else {
                    fs::read_to_string(&path).unwrap()
                };
                contents.insert((path, holds));
            }
        }
        contents
    }
}

/// Device and inode of what a path leads to, and of each folder from there up to `/`, as the kernel walks
/// them.
fn chain(path: &Path) -> Option<Vec<(u64, u64)>> {
    let metadata = fs::metadata(path).ok()?;
    let mut chain = vec![(metadata.dev(), metadata.ino())];
    let mut folder =
        if metadata.is_dir() { path.join("..") } else { fs::canonicalize(path).ok()?.parent()?.to_owned() };
    loop {
        let metadata = fs::metadata(&folder).ok()?;
        let identity = (metadata.dev(), metadata.ino());
        if chain.last() == Some(&identity) {
            return Some(chain);
        }
        chain.push(identity);
        folder.push("..");
    }
}

/// Whether the kernel finds one path in, at or above a folder. A path that does not exist touches nothing.
fn touches(path: &Path, folder: &Path) -> bool {
    let (Some(path), Some(folder)) = (chain(path), chain(folder)) else { return false };
    path.contains(&folder[0]) || folder.contains(&path[0])
}

/// Whether the text of a path may be at, in or above the folder. A path with `..` or a link may always be.
fn may_touch(path: &Path, folder: &Path) -> bool {
    let text = path.display().to_string();
    let is_plain = !["..", "link-", "missing", "pvc-a"].iter().any(|part| text.contains(part));
    !is_plain || folder.starts_with(path) || path.starts_with(folder)
}

#[test]
fn only_the_volumes_own_folder_that_no_other_volume_names_is_deleted() {
    let first = std::env::var("BINDERY_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or_else(rand::random::<u64>);
    let (mut deleted, mut kept) = (0, 0);
    for seed in (0..WORLDS).map(|world| first.wrapping_add(world)) {
        println!("BINDERY_SEED={seed}");
        let mut machine = Machine::new(seed);
        let volume = *NAMES.choose(&mut machine.chance).unwrap();
        let folder = machine.path("root").join(volume);
        let path = if machine.chance.random_bool(0.7) { folder.clone() } else { machine.any_path() };
        let neighbours: Vec<Neighbour> = (0..machine.chance.random_range(0..4))
            .map(|number| Neighbour { volume: format!("other-{number}"), path: machine.any_path() })
            .collect();
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_dir());
        let is_named = neighbours.iter().any(|neighbour| touches(&neighbour.path, &folder));
        let may_be_named = neighbours.iter().any(|neighbour| may_touch(&neighbour.path, &folder));
        let is_its_own = path == folder && is_folder && machine.made.contains(volume);
        let before = machine.contents();
        let removed = machine.folders.remove(volume, &path, &neighbours);
        let after = machine.contents();
        let story = format!("{volume:?} at {} beside {neighbours:?}: {removed:?}", path.display());
        if before == after {
            kept += 1;
            let is_due = is_its_own && !is_named && !may_be_named;
            assert!(!is_due, "it is left: {story}");
        } else {
            deleted += 1;
            assert!(is_its_own && !is_named, "{story}");
            assert_eq!(removed, Ok(()), "{story}");
            let is_elsewhere = |(path, _): &&(PathBuf, String)| !path.starts_with(&folder);
            assert!(before.iter().filter(is_elsewhere).eq(&after), "more than {}: {story}", folder.display());
        }
    }
    assert!(deleted > WORLDS / 20 && kept > WORLDS / 20, "{deleted} deleted, {kept} kept");
}

#[test]
fn making_or_deleting_a_folder_again_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let folders = Folders::new(folder.path().join("root"));
    let made = folders.make("pvc-a").unwrap();
    fs::write(made.join("data"), "data").unwrap();
    // The volume was not created, and is provisioned again.
    assert_eq!(folders.make("pvc-a").as_ref(), Ok(&made));
    assert_eq!(fs::read_to_string(made.join("data")).unwrap(), "data");
    for _ in 0..2 {
        assert_eq!(folders.remove("pvc-a", &made, &[]), Ok(()));
        assert!(!made.exists());
    }
    let markers = fs::read_dir(folder.path().join("root").join(MARKERS)).unwrap();
    assert_eq!(markers.count(), 0);
}

#[test]
fn a_folder_without_marker_is_neither_used_nor_deleted() {
    let root = TempDir::new().unwrap();
    let folders = Folders::new(root.path().to_owned());
    let folder = root.path().join("pvc-a");
    fs::create_dir(&folder).unwrap();
    assert!(folders.make("pvc-a").unwrap_err().contains("was not made by Bindery"));
    assert!(folders.remove("pvc-a", &folder, &[]).unwrap_err().contains("delete the folder by hand"));
    assert!(folder.is_dir());
}

#[test]
fn a_neighbour_whose_path_cannot_be_resolved_keeps_the_folder() {
    let root = TempDir::new().unwrap();
    let folders = Folders::new(root.path().to_owned());
    let folder = folders.make("pvc-a").unwrap();
    symlink("circle", root.path().join("circle")).unwrap();
    for (path, why) in
        [(root.path().join("circle/x"), "too many symbolic links"), (PathBuf::from("pvc-a"), "relative path")]
    {
        let neighbours = [Neighbour { volume: "other".to_owned(), path }];
        let complaint = folders.remove("pvc-a", &folder, &neighbours).unwrap_err();
        assert!(complaint.contains("volume \"other\" names") && complaint.contains(why), "{complaint}");
        assert!(folder.is_dir());
    }
}

#[test]
fn a_name_that_no_volume_may_have_gets_no_folder() {
    let root = TempDir::new().unwrap();
    let folders = Folders::new(root.path().to_owned());
    for name in ["", ".", "..", "a/b", "/", "a/", MARKERS] {
        assert!(folders.make(name).is_err() && folders.remove(name, &root.path().join(name), &[]).is_err());
    }
}
