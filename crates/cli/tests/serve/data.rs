//! The data of tenants, in folders that name their owner.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// How often a change of a full disk is tried again.
const AGAIN: Duration = Duration::from_millis(40);
/// File in a volume with the UID of the claim that owns the data.
const OWNER: &str = "owner";

/// The tenants that stay, by the names of their claims.
pub(crate) type Staying = BTreeMap<String, Home>;

/// Where the data of a tenant are.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// UID of the claim.
    pub(crate) uid: String,
    /// Folder of its volume.
    pub(crate) folder: PathBuf,
}

/// The data of tenants that are gone.
pub(crate) fn missing(staying: &Staying) -> Vec<String> {
    let mut missing = Vec::new();
    for Home { uid, folder } in staying.values() {
        let owner = fs::read_to_string(folder.join(OWNER));
        if !owner.as_ref().is_ok_and(|owner| owner == uid) {
            let folder = folder.display();
            missing.push(format!("{folder} should hold the data of claim {uid}, and has {owner:?}"));
        }
    }
    missing
}

/// Writes the owner into a volume, as a pod of the claim would. Fails if the volume has an owner.
pub(crate) fn move_in(Home { uid, folder }: &Home) -> io::Result<()> {
    let path = folder.join(OWNER);
    match fs::File::options().write(true).create_new(true).open(&path) {
        Ok(mut file) => file.write_all(uid.as_bytes()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            panic!("{} has two tenants: {:?} and {uid}", folder.display(), fs::read_to_string(path))
        }
        Err(error) => Err(error),
    }
}

/// Repeats a change of the disk while that is full.
pub(crate) async fn until_space<T>(change: impl Fn() -> io::Result<T>) -> T {
    let mut ticks = tokio::time::interval(AGAIN);
    loop {
        ticks.tick().await;
        match change() {
            Err(error) if error.kind() == ErrorKind::StorageFull => {}
            changed => return changed.unwrap(),
        }
    }
}
