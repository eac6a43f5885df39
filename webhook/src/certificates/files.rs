//! Certificates that somebody else keeps in files and changes whenever it likes, as cert-manager does.
//!
//! Files are looked at by their content, every few seconds: a Secret that is mounted changes by a symbolic
//! link that is swapped, others copy over what is there, and no way of being told of it works for all of
//! them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::authorities::Authorities;
use super::identity::{Identity, IdentityError};
use super::record::CertificateRecord;

/// How often files are looked at. A kubelet takes up to a minute to bring a changed Secret to a pod.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// `N` files whose content makes a `T`.
pub struct Files<T, const N: usize> {
    paths: [PathBuf; N],
    read: Read<T, N>,
    /// What was there when they were last looked at, whether it made sense or not.
    seen: Result<[Vec<u8>; N], FilesError>,
}

/// Makes a `T` of the content of files; their paths are for errors.
type Read<T, const N: usize> = fn(&[PathBuf; N], &[Vec<u8>; N]) -> Result<T, FilesError>;

/// A certificate, with those that vouch for it after it, and its key.
pub type IdentityFiles = Files<Identity, 2>;

/// Authorities.
pub type AuthorityFiles = Files<Authorities, 1>;

/// Why files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// A file cannot be read.
    #[error("{} cannot be read: {why}; is it mounted, and may user {user} read it?", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        why: String,
        /// The number of the user who tried.
        user: u32,
    },
    /// A file makes no sense.
    #[error("{} {why}", path.display())]
    Nonsense {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: IdentityError,
    },
    /// A key is that of another certificate.
    #[error("{} is not the key of the certificate in {}: give both of one certificate", key.display(), certificate.display())]
    Mismatch {
        /// The path of the key.
        key: PathBuf,
        /// That of the certificate.
        certificate: PathBuf,
    },
}

impl IdentityFiles {
    /// The files of a certificate and of its key.
    pub fn identity(certificate: PathBuf, key: PathBuf) -> Self {
        Self::new([certificate, key], read_identity)
    }
}

impl AuthorityFiles {
    /// The file of one authority or more.
    pub fn authorities(path: PathBuf) -> Self {
        Self::new([path], read_authorities)
    }
}

impl<T, const N: usize> Files<T, N> {
    fn new(paths: [PathBuf; N], read: Read<T, N>) -> Self {
        Self { paths, read, seen: Ok([const { Vec::new() }; N]) }
    }

    /// What the files make now.
    ///
    /// # Errors
    ///
    /// A file cannot be read or makes no sense.
    pub fn load(&mut self) -> Result<T, FilesError> {
        self.seen = self.content();
        (self.read)(&self.paths, self.seen.as_ref().map_err(Clone::clone)?)
    }

    /// What the files make, where they are not what they were when they were last looked at.
    fn load_if_changed(&mut self) -> Option<Result<T, FilesError>> {
        let content = self.content();
        if content == self.seen {
            return None;
        }
        self.seen = content;
        Some(self.seen.as_ref().map_err(Clone::clone).and_then(|content| (self.read)(&self.paths, content)))
    }

    fn content(&self) -> Result<[Vec<u8>; N], FilesError> {
        let mut content = [const { Vec::new() }; N];
        for (content, path) in content.iter_mut().zip(&self.paths) {
            *content = fs::read(path).map_err(|error| unreadable(path, &error))?;
        }
        Ok(content)
    }

    /// Looks at the files for as long as it is polled, and hands over what they make each time that they have
    /// changed. Where they make no sense, that is told and counted once, and what was handed over before
    /// holds.
    pub async fn run(mut self, record: Arc<CertificateRecord>, changed: impl Fn(T)) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            looks.tick().await;
            match self.load_if_changed() {
                None => {}
                Some(Ok(content)) => {
                    tracing::info!(paths = ?self.paths, "the files have changed, and are used from now on");
                    changed(content);
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "the files have changed, and cannot be used; what was in use stays");
                    record.fail();
                }
            }
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> FilesError {
    FilesError::Unreadable {
        path: path.to_owned(),
        why: error.to_string(),
        user: rustix::process::getuid().as_raw(),
    }
}

fn read_identity(
    [certificate, key]: &[PathBuf; 2],
    [chain, secret]: &[Vec<u8>; 2],
) -> Result<Identity, FilesError> {
    Identity::from_pem(chain, secret).map_err(|why| match why {
        IdentityError::Mismatch => {
            FilesError::Mismatch { key: key.clone(), certificate: certificate.clone() }
        }
        why => {
            let path = if why.is_of_key() { key } else { certificate };
            FilesError::Nonsense { path: path.clone(), why }
        }
    })
}

fn read_authorities([path]: &[PathBuf; 1], [pem]: &[Vec<u8>; 1]) -> Result<Authorities, FilesError> {
    Authorities::from_pem(pem).map_err(|why| FilesError::Nonsense { path: path.clone(), why })
}
