//! Certificates in files that another program changes, such as cert-manager.
//!
//! The content of the files is compared every few seconds: a mounted Secret changes by a symbolic link, other
//! programs overwrite files, and no notification covers both.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::identity::{Authorities, Identity, IdentityError};
use super::status::CertificateStatus;

/// How often files are read. A kubelet takes up to a minute to update a mounted Secret.
const READ_EVERY: Duration = Duration::from_secs(5);

/// `N` files whose content makes a `T`.
pub struct Files<T, const N: usize> {
    paths: [PathBuf; N],
    parse: Parse<T, N>,
    /// The content when it was last read, usable or not.
    seen: Result<[Vec<u8>; N], FilesError>,
}

/// Makes a `T` of the content of files; their paths are for errors.
type Parse<T, const N: usize> = fn(&[PathBuf; N], &[Vec<u8>; N]) -> Result<T, FilesError>;

/// A certificate, followed by its authorities, and its key.
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
        /// The error of the system.
        why: String,
        /// The number of this process' user.
        user: u32,
    },
    /// The content of a file cannot be used.
    #[error("{} {why}", path.display())]
    Unusable {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        why: IdentityError,
    },
    /// The key belongs to another certificate.
    #[error(
        "{} is not the key of the certificate in {}: give both of one certificate",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The path of the key.
        key: PathBuf,
        /// The path of the certificate.
        certificate: PathBuf,
    },
}

impl IdentityFiles {
    /// The files of a certificate and of its key.
    pub fn identity(certificate: PathBuf, key: PathBuf) -> Self {
        Self::new([certificate, key], |[certificate, key], [chain, secret]| {
            Identity::from_pem(chain, secret).map_err(|why| match why {
                IdentityError::Mismatch => {
                    FilesError::Mismatch { key: key.clone(), certificate: certificate.clone() }
                }
                why if why.is_of_key() => FilesError::Unusable { path: key.clone(), why },
                why => FilesError::Unusable { path: certificate.clone(), why },
            })
        })
    }
}

impl AuthorityFiles {
    /// The file of one or more authorities.
    pub fn authorities(path: PathBuf) -> Self {
        Self::new([path], |[path], [pem]| {
            Authorities::from_pem(pem).map_err(|why| FilesError::Unusable { path: path.clone(), why })
        })
    }
}

impl<T, const N: usize> Files<T, N> {
    fn new(paths: [PathBuf; N], parse: Parse<T, N>) -> Self {
        Self { paths, parse, seen: Ok([const { Vec::new() }; N]) }
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used.
    pub fn load(&mut self) -> Result<T, FilesError> {
        self.seen = self.content();
        (self.parse)(&self.paths, self.seen.as_ref().map_err(Clone::clone)?)
    }

    /// Reads the files; `None` if they have not changed.
    fn load_if_changed(&mut self) -> Option<Result<T, FilesError>> {
        (self.content() != self.seen).then(|| self.load())
    }

    fn content(&self) -> Result<[Vec<u8>; N], FilesError> {
        let mut content = [const { Vec::new() }; N];
        for (content, path) in content.iter_mut().zip(&self.paths) {
            *content = fs::read(path).map_err(|error| FilesError::Unreadable {
                path: path.clone(),
                why: error.to_string(),
                user: rustix::process::getuid().as_raw(),
            })?;
        }
        Ok(content)
    }

    /// Reads the files again and again for as long as it is polled, and calls `changed` after each change. If
    /// the files cannot be used, this is logged and counted once, and the earlier content stays in use.
    pub async fn run(mut self, status: Arc<CertificateStatus>, changed: impl Fn(T)) {
        let mut ticks = tokio::time::interval(READ_EVERY);
        loop {
            ticks.tick().await;
            match self.load_if_changed() {
                None => {}
                Some(Ok(content)) => {
                    tracing::info!(paths = ?self.paths, "the files have changed and are used");
                    changed(content);
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "the changed files cannot be used; what was in use stays");
                    status.count_failure();
                }
            }
        }
    }
}
