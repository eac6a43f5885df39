//! Compiled engines on disk, so that a restart does not compile them again.
//!
//! Running an artefact is running native code, so nothing here is trusted from elsewhere: the folder must be ours
//! and writable by nobody else, artefacts are found by the digest of the component and of every setting, and each
//! is held against a digest written beside it, because wasmtime itself runs one with a flipped byte.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tracing::{debug, warn};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::{HostError, hex};

/// Others may not write: group and world.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A folder of compiled engines.
pub(crate) struct Cache {
    folder: PathBuf,
    /// Digest of every setting that compiling depends on.
    fingerprint: [u8; 32],
}

impl Cache {
    /// Opens or creates the folder.
    ///
    /// # Errors
    ///
    /// It cannot be created, or is not ours alone.
    pub(crate) fn open(folder: &Path, fingerprint: [u8; 32]) -> Result<Self, HostError> {
        let unusable = |reason: String| HostError::CacheFolder { folder: folder.to_owned(), reason };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| unusable(format!("it cannot be created: {error}")))?;
        let metadata = fs::symlink_metadata(folder)
            .map_err(|error| unusable(format!("it cannot be examined: {error}")))?;
        if !metadata.is_dir() {
            return Err(unusable(
                "it is not a folder itself; give the folder that the link points to".to_owned(),
            ));
        }
        let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != us {
            return Err(unusable(format!(
                "it belongs to user {owner}, this is user {us}; chown it or name another"
            )));
        }
        if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(unusable("others may write to it; chmod it to 0700".to_owned()));
        }
        Ok(Self { folder: folder.to_owned(), fingerprint })
    }

    /// The component of these bytes, compiled before or now.
    ///
    /// # Errors
    ///
    /// It does not compile. A cache that cannot be read or written costs time and nothing else.
    pub(crate) fn get(&self, engine: &Engine, bytes: &[u8], digest: &[u8]) -> wasmtime::Result<Component> {
        let path = self.path(digest);
        match load(engine, &path) {
            Ok(component) => return Ok(component),
            Err(error) if error.kind() == io::ErrorKind::NotFound => debug!(?path, "not compiled before"),
            Err(error) => warn!(?path, %error, "compiling again: the compiled engine is not usable"),
        }
        let artefact = engine.precompile_component(bytes)?;
        if let Err(error) = self.store(&path, &artefact) {
            warn!(?path, %error, "the compiled engine is not kept: writing it failed");
        }
        deserialize(engine, &artefact)
    }

    /// Where the artefact of the component of this digest lies under these settings.
    fn path(&self, digest: &[u8]) -> PathBuf {
        let key = Sha256::new().chain_update(digest).chain_update(self.fingerprint).finalize();
        self.folder.join(format!("{}.cwasm", hex(&key)))
    }

    /// Writes the digest first: an artefact without its digest is never there to be found.
    fn store(&self, path: &Path, artefact: &[u8]) -> io::Result<()> {
        self.write(&sidecar(path), hex(&Sha256::digest(artefact)).as_bytes())?;
        self.write(path, artefact)
    }

    /// Puts a file in place in one step; temporary files are readable by us alone, and stay so.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

/// The file that holds the digest of an artefact.
fn sidecar(path: &Path) -> PathBuf {
    path.with_extension("sha256")
}

/// Reads an artefact, once, and runs what was read only if it has the digest that was written for it.
fn load(engine: &Engine, path: &Path) -> io::Result<Component> {
    let artefact = fs::read(path)?;
    let expected = fs::read_to_string(sidecar(path))?;
    if hex(&Sha256::digest(&artefact)) != expected {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not what was written"));
    }
    deserialize(engine, &artefact)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

#[allow(unsafe_code, reason = "wasmtime cannot check an artefact; the callers' argument is given here")]
fn deserialize(engine: &Engine, artefact: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the artefact was made by `precompile_component` with these settings: either just now, or it comes
    // from a folder that only we can write to, under a name that digests all settings, with an equal digest.
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

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    #[test]
    fn an_artefact_that_is_not_what_was_written_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::new(&Config::new()).unwrap();
        let cache = Cache::open(folder.path(), [0; 32]).unwrap();
        cache.get(&engine, EMPTY, b"digest").unwrap();
        let path = cache.path(b"digest");
        assert_eq!(files(folder.path()), [path.clone(), sidecar(&path)]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(load(&engine, &path).is_ok());

        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for broken in [flipped, whole[..whole.len() / 2].to_vec(), Vec::new()] {
            fs::write(&path, broken).unwrap();
            assert!(load(&engine, &path).is_err());
            cache.get(&engine, EMPTY, b"digest").unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
        fs::remove_file(sidecar(&path)).unwrap();
        assert!(load(&engine, &path).is_err());
    }

    #[test]
    fn other_settings_and_other_components_have_other_artefacts() {
        let folder = tempfile::tempdir().unwrap();
        let cache = |fingerprint| Cache::open(folder.path(), fingerprint).unwrap();
        assert_ne!(cache([0; 32]).path(b"a"), cache([1; 32]).path(b"a"));
        assert_ne!(cache([0; 32]).path(b"a"), cache([0; 32]).path(b"b"));
    }

    #[test]
    fn every_setting_is_in_the_fingerprint() {
        let fingerprint = |change: fn(&mut Config)| {
            let mut config = crate::settings::config(1);
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
        // And nothing else is: another process finds what this one made.
        let same: BTreeSet<_> = (0..32).map(|_| fingerprint(|_| {})).collect();
        assert_eq!(same.len(), 1);
    }

    #[test]
    fn a_folder_that_others_may_write_to_or_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let link = folder.path().join("link");
        symlink(folder.path(), &link).unwrap();
        for (path, reason) in [(&shared, "others may write"), (&link, "not a folder itself")] {
            let error = Cache::open(path, [0; 32]).err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let new = folder.path().join("a/b");
        Cache::open(&new, [0; 32]).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o700);
    }
}
