//! Compiled engines on disk, so that a restart does not compile them again.
//!
//! An artefact is native code, and wasmtime runs any artefact unchecked. So an artefact is trusted for its
//! place and its owner: it is in a folder that is held open, its name is a digest of the component and of
//! every setting, and its file belongs to this user and cannot be written by others. Owner and mode are read
//! from the open handle, so no path can be swapped in between.
//!
//! Each artefact begins with a digest. The digest finds disk errors and artefacts that were moved to another
//! name. It is not a signature: an attacker who can write an artefact can write its digest.
//!
//! The folder has a limit. `room.rs` removes what was used longest ago.

mod room;

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tracing::{debug, warn};
use wasmtime::component::Component;
use wasmtime::{Engine, bail};

pub(crate) use self::room::InUse;
pub use self::room::cache_bytes_in_use;
use crate::HostError;
use crate::load::is_of_machine;

/// Mode bits that let group or world write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Length of the digest that an artefact begins with, in bytes.
const DIGEST_BYTES: usize = 32;

/// A folder of compiled engines.
pub(crate) struct Cache {
    /// Held open, so that a user who may write to a parent folder cannot replace it.
    folder: File,
    /// Path of the folder when it was opened; for logs.
    path: PathBuf,
    /// The user whose files are trusted: the user of this process.
    us: u32,
    /// Digest of every setting that compiling depends on.
    fingerprint: [u8; 32],
    /// Most bytes of all artefacts.
    bytes_max: u64,
}

impl Cache {
    /// Opens or creates the folder.
    ///
    /// # Errors
    ///
    /// The folder cannot be created, or others may write to it.
    pub(crate) fn open(path: &Path, bytes_max: u64, fingerprint: [u8; 32]) -> Result<Self, HostError> {
        let unusable = |reason: String| HostError::CacheFolder { folder: path.to_owned(), reason };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| unusable(format!("it cannot be created: {error}")))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR => {
                unusable("it is not a folder itself; give the folder that the link points to".to_owned())
            }
            _ => unusable(format!("it cannot be opened: {error}")),
        })?;
        let folder = File::from(folder);
        let metadata =
            folder.metadata().map_err(|error| unusable(format!("it cannot be examined: {error}")))?;
        let us = rustix::process::geteuid().as_raw();
        // Changing its mode or owner would not help: files that others put there would stay.
        check_owner(&metadata, us).map_err(|why| unusable(format!("{why}; remove it, or name another")))?;
        Ok(Self { folder, path: path.to_owned(), us, fingerprint, bytes_max })
    }

    /// Whether there is a whole artefact of the component with this digest. Reads and hashes it.
    pub(crate) fn has(&self, digest: &[u8]) -> bool {
        let name = self.name(digest);
        self.read(&name).is_ok_and(|(content, _)| unsealed(&name, &content).is_some())
    }

    /// The component of these bytes, compiled before or now, and its artefact, or why that is not kept.
    ///
    /// # Errors
    ///
    /// It does not compile, or the machine lacks what loading it takes. Any other reason why the cache cannot
    /// be read or written only costs time.
    pub(crate) fn get(
        &self,
        engine: &Engine,
        bytes: &[u8],
        digest: &[u8],
    ) -> wasmtime::Result<(Component, io::Result<InUse>)> {
        let name = self.name(digest);
        let path = self.path.join(&name);
        match self.load(engine, &name) {
            Ok((component, artefact)) => return Ok((component, Ok(artefact))),
            Err(error) if is_missing(&error) => debug!(?path, "not compiled before"),
            // To compile it takes more of what lacks.
            Err(error) if is_of_machine(&error) => return Err(error),
            Err(error) => warn!(?path, %error, "compiling again: the compiled engine is not usable"),
        }
        let artefact = engine.precompile_component(bytes)?;
        let kept = self.store(&name, &artefact);
        if let Err(error) = &kept {
            warn!(?path, %error, "the compiled engine is not kept");
        }
        Ok((deserialize(engine, &artefact)?, kept))
    }

    /// File name of the artefact of the component with this digest, under these settings.
    fn name(&self, digest: &[u8]) -> String {
        let key = Sha256::new().chain_update(digest).chain_update(self.fingerprint).finalize();
        format!("{key:x}.cwasm")
    }

    /// Reads an artefact and deserializes the bytes that were read, if they were written under this name.
    fn load(&self, engine: &Engine, name: &str) -> wasmtime::Result<(Component, InUse)> {
        let (content, file) = self.read(name)?;
        let Some(artefact) = unsealed(name, &content) else {
            bail!("it is not what was written under this name");
        };
        Ok((deserialize(engine, artefact)?, file))
    }

    /// The content of a file of the folder that belongs to this user and that others may not write.
    fn read(&self, name: &str) -> io::Result<(Vec<u8>, InUse)> {
        // NONBLOCK: opening a pipe must not wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.folder, name, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        let untrusted = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
        if !metadata.is_file() {
            return Err(untrusted("it is not a regular file".to_owned()));
        }
        check_owner(&metadata, self.us).map_err(untrusted)?;
        let mut artefact = InUse::new(file);
        let mut content = Vec::new();
        artefact.file().read_to_end(&mut content)?;
        Ok((content, artefact))
    }

    /// Replaces an artefact in one step: writes a new file under a random name, then renames it within the
    /// open folder. First removes the artefacts that were used longest ago, if there is too little room.
    fn store(&self, name: &str, artefact: &[u8]) -> io::Result<InUse> {
        room::make_room(&self.folder, (DIGEST_BYTES + artefact.len()) as u64, self.bytes_max)?;
        // Seeded by the kernel; the standard library has no other random number.
        let new = format!(".{:016x}.new", RandomState::new().build_hasher().finish());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut stored = InUse::new(File::from(rustix::fs::openat(&self.folder, &new, flags, mode)?));
        let file = stored.file();
        let written = file
            .write_all(&seal(name, artefact))
            .and_then(|()| file.write_all(artefact))
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::renameat(&self.folder, &new, &self.folder, name)?));
        if written.is_err() {
            // A leftover file does no harm; the first error is the one to report.
            let _ = rustix::fs::unlinkat(&self.folder, &new, AtFlags::empty());
        }
        written.map(|()| stored)
    }
}

/// Whether the file does not exist.
fn is_missing(error: &wasmtime::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Checks that an open file or folder belongs to this user and that others may not write to it.
fn check_owner(metadata: &Metadata, us: u32) -> Result<(), String> {
    let owner = metadata.uid();
    if owner != us {
        return Err(format!("it belongs to user {owner}, this is user {us}"));
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err("others may write to it, and what they wrote would be run".to_owned());
    }
    Ok(())
}

/// The artefact in the content of a file, if it was written under this name.
fn unsealed<'a>(name: &str, content: &'a [u8]) -> Option<&'a [u8]> {
    let (digest, artefact) = content.split_first_chunk::<DIGEST_BYTES>()?;
    (*digest == seal(name, artefact)).then_some(artefact)
}

/// The digest of an artefact under its name.
fn seal(name: &str, artefact: &[u8]) -> [u8; DIGEST_BYTES] {
    Sha256::new().chain_update(name).chain_update(artefact).finalize().into()
}

#[allow(unsafe_code, reason = "wasmtime cannot check an artefact; the callers' argument is given here")]
fn deserialize(engine: &Engine, artefact: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: these bytes were made by `precompile_component` with these settings: either just now, or they
    // were read from an open regular file that belonged to this user and that others could not write to, in a
    // folder that passed the same check when the host was set up. They carry the digest that `store` wrote
    // over them and their name, which itself is a digest of component and settings. So only this user or root
    // can have written other bytes, and both can run any code as this user anyway.
    unsafe { Component::deserialize(engine, artefact) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use wasmtime::Config;

    use super::*;

    /// The smallest component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    /// A cache with one artefact, and the path of the artefact.
    fn filled() -> (tempfile::TempDir, Engine, Cache, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let engine = Engine::new(&Config::new()).unwrap();
        let cache = Cache::open(&parent.path().join("cache"), u64::MAX, [0; 32]).unwrap();
        cache.get(&engine, EMPTY, b"digest").unwrap().1.unwrap();
        let path = cache.path.join(cache.name(b"digest"));
        (parent, engine, cache, path)
    }

    /// Why the artefact is not run.
    fn refusal(cache: &Cache, engine: &Engine) -> String {
        cache.load(engine, &cache.name(b"digest")).err().expect("it is not to be trusted").to_string()
    }

    #[test]
    fn a_changed_or_moved_artefact_is_compiled_again() {
        let (_parent, engine, cache, path) = filled();
        let files: Vec<_> = fs::read_dir(&cache.path).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files, std::slice::from_ref(&path));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(cache.load(&engine, &cache.name(b"digest")).is_ok());

        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for broken in [flipped, whole[..whole.len() / 2].to_vec(), Vec::new()] {
            fs::write(&path, broken).unwrap();
            assert!(refusal(&cache, &engine).contains("not what was written"));
            assert!(!cache.has(b"digest"), "the process that serves would compile it");
            cache.get(&engine, EMPTY, b"digest").unwrap().1.unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole);
            assert!(cache.has(b"digest"));
        }
        // An artefact of another component or of other settings.
        fs::rename(&path, cache.path.join(cache.name(b"other"))).unwrap();
        let moved = cache.load(&engine, &cache.name(b"other")).err().unwrap();
        assert!(moved.to_string().contains("not what was written under this name"), "{moved}");
    }

    /// A planted artefact has the right digest; only its owner and mode give it away.
    #[test]
    fn an_artefact_that_others_may_have_written_is_compiled_again() {
        let (_parent, engine, mut cache, path) = filled();
        let us = cache.us;
        let replaced = |cache: &mut Cache, why: &str| {
            assert!(refusal(cache, &engine).contains(why));
            let planted = fs::symlink_metadata(&path).unwrap().ino();
            cache.get(&engine, EMPTY, b"digest").unwrap().1.unwrap();
            assert_ne!(fs::symlink_metadata(&path).unwrap().ino(), planted);
            cache.us = us;
            assert!(cache.load(&engine, &cache.name(b"digest")).is_ok());
        };
        // The file of this user is foreign to another user.
        cache.us = us + 1;
        replaced(&mut cache, &format!("it belongs to user {us}, this is user {}", us + 1));
        for mode in [0o666, 0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            replaced(&mut cache, "others may write to it");
        }
        let elsewhere = cache.path.join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        replaced(&mut cache, "symbolic links");
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(&cache.folder, cache.name(b"digest"), Mode::RUSR).unwrap();
        replaced(&mut cache, "it is not a regular file");
    }

    #[test]
    fn a_folder_that_replaces_the_open_one_is_not_used() {
        let (parent, engine, cache, path) = filled();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let held = parent.path().join("held");
        fs::rename(&cache.path, &held).unwrap();
        fs::create_dir(&cache.path).unwrap();
        fs::write(&path, b"planted").unwrap();
        assert!(cache.load(&engine, &cache.name(b"digest")).is_ok());
        fs::remove_file(held.join(cache.name(b"digest"))).unwrap();
        cache.get(&engine, EMPTY, b"digest").unwrap().1.unwrap();
        assert!(held.join(cache.name(b"digest")).exists());
        assert_eq!(fs::read(&path).unwrap(), b"planted");
    }

    #[test]
    fn an_artefact_makes_room_for_another_unless_it_is_in_use() {
        let (_parent, engine, mut cache, path) = filled();
        cache.bytes_max = fs::metadata(&path).unwrap().len();
        let (_component, in_use) = cache.get(&engine, EMPTY, b"digest").unwrap();
        assert!(cache.get(&engine, EMPTY, b"other").unwrap().1.is_err());
        assert!(path.exists());
        drop(in_use);
        cache.get(&engine, EMPTY, b"other").unwrap().1.unwrap();
        assert!(!path.exists() && cache.has(b"other"));
    }

    #[test]
    fn other_settings_and_other_components_have_other_artefacts() {
        let folder = tempfile::tempdir().unwrap();
        let cache = |fingerprint| Cache::open(folder.path(), 0, fingerprint).unwrap();
        assert_ne!(cache([0; 32]).name(b"a"), cache([1; 32]).name(b"a"));
        assert_ne!(cache([0; 32]).name(b"a"), cache([0; 32]).name(b"b"));
    }

    #[test]
    fn every_setting_is_in_the_fingerprint() {
        let fingerprint = |change: fn(&mut Config)| {
            let mut config = crate::settings::config(1, &crate::settings::ENGINE);
            change(&mut config);
            crate::settings::fingerprint(&config, &Engine::new(&config).unwrap())
        };
        let changes: [fn(&mut Config); 6] = [
            |_| {},
            |config| _ = config.cranelift_nan_canonicalization(false),
            |config| _ = config.consume_fuel(false),
            |config| _ = config.operator_cost(wasmtime::OperatorCost::new()),
            |config| _ = config.wasm_simd(true),
            |config| _ = config.memory_guard_size(1 << 20),
        ];
        let found: BTreeSet<_> = changes.map(fingerprint).into_iter().collect();
        assert_eq!(found.len(), changes.len());
        // Nothing else is in it: another process finds the artefact of this one.
        let same: BTreeSet<_> = (0..32).map(|_| fingerprint(|_| {})).collect();
        assert_eq!(same.len(), 1);
    }

    #[test]
    fn a_link_or_a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let link = folder.path().join("link");
        symlink(folder.path(), &link).unwrap();
        let shares = "others may write to it, and what they wrote would be run; remove it, or name another";
        for (path, reason) in [(&shared, shares), (&link, "not a folder itself")] {
            let error = Cache::open(path, 0, [0; 32]).err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let new = folder.path().join("a/b");
        Cache::open(&new, 0, [0; 32]).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o700);
    }
}
