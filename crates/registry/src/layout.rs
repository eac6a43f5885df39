//! A layout of OCI images in a folder: `oci-layout`, `index.json` and `blobs/sha256`. The format is that of
//! the OCI image specification, as oras, crane and skopeo read and write it.

mod writer;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use parking_lot::Mutex;

pub use self::writer::Writer;
use self::writer::Writers;
use crate::artifact::{Artifact, pull, push};
use crate::digest::Digest;
use crate::error::{RegistryError, Result, invalid, too_large};
use crate::limits::{MANIFEST_MAX, REFERRERS_MAX};
use crate::manifest::{Descriptor, Index, Manifest};
use crate::media;
use crate::reference::Reference;
use crate::repository::{Name, Repository};

/// The file that is locked while the index is changed.
const LOCK: &str = ".lock";
/// How tags of modules end that are kept by the digest of their bytes.
const MODULE: &str = ".module";
/// Most bytes of `index.json`.
const INDEX_MAX: usize = 4 << 20;
/// The longest type of an artifact that the index has. A reader takes a longer one from the manifest.
const KIND_MAX: usize = 255;

/// A layout. What is in it is checked as if it came from a registry.
pub struct Layout {
    folder: PathBuf,
    /// Most bytes of all blobs.
    bytes_max: u64,
    /// Host and repository of its tags; `None` for any.
    place: Option<String>,
    /// Who writes to it; held while the index is changed.
    writing: Mutex<Writers>,
}

impl Layout {
    /// The layout in a folder, which may not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), bytes_max: u64::MAX, place: None, writing: Mutex::default() }
    }

    /// The same with a limit, in bytes of all blobs: what is more is [`RegistryError::Full`].
    #[must_use]
    pub fn with_limit(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    /// The same with the tags of the repository of this reference. Tags of layouts that name no repository
    /// are read as its own.
    #[must_use]
    pub fn with_tags_of(self, reference: &Reference) -> Self {
        Self { place: Some(reference.place()), ..self }
    }

    /// Writes to it; what is written stays until the writer is dropped.
    pub fn writer(&self) -> Writer<'_> {
        Writer::new(self)
    }

    /// The entries of the index: every manifest, by digest and tag.
    ///
    /// # Errors
    ///
    /// There is no layout.
    pub fn entries(&self) -> Result<Vec<Descriptor>> {
        let bytes = self.read(&self.folder.join("index.json"), INDEX_MAX)?;
        Ok(Index::parse(&bytes, &self.name("index.json"))?.descriptors().collect())
    }

    /// Whether a blob or a manifest is there.
    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// How many bytes its blobs have.
    pub fn size(&self) -> u64 {
        let files = fs::read_dir(self.blobs()).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs").join("sha256")
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    fn name(&self, what: &str) -> String {
        format!("{}: {what}", self.folder.display())
    }

    fn read(&self, path: &Path, max: usize) -> Result<Vec<u8>> {
        let failed = |error: std::io::Error| {
            let why = format!("{} cannot be read: {error}", path.display());
            match error.kind() {
                ErrorKind::NotFound => RegistryError::NotFound(why),
                _ => RegistryError::Unavailable(why),
            }
        };
        // Reading a pipe or a device may never end.
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return invalid(format!("{} is not a regular file", path.display()));
        }
        if metadata.len() > max as u64 {
            return Err(too_large(&path.display().to_string(), max));
        }
        fs::read(path).map_err(failed)
    }

    /// Writes a file so that no reader sees a part of it.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let folder = path.parent().unwrap_or(&self.folder);
        let write = || {
            fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().or_else(|error: std::io::Error| {
            invalid(format!("{} cannot be written: {error}", path.display()))
        })
    }

    /// Locks the folder for other processes, until the file is dropped. Where the file system has no locks,
    /// it keeps none of them out.
    fn lock(&self) -> Result<File> {
        let path = self.folder.join(LOCK);
        let open = || {
            fs::create_dir_all(&self.folder)?;
            File::options().read(true).write(true).create(true).truncate(false).open(&path)
        };
        let file =
            open().or_else(|error| invalid(format!("{} cannot be opened: {error}", path.display())))?;
        _ = file.lock();
        Ok(file)
    }

    fn write_index(&self, index: &Index) -> Result<()> {
        let bytes = serde_json::to_vec(index).unwrap_or_default();
        if bytes.len() > INDEX_MAX {
            let why = format!("index.json would have {} bytes, and {INDEX_MAX} is the most", bytes.len());
            return Err(RegistryError::Full(self.name(&why)));
        }
        self.write(&self.folder.join("index.json"), &bytes)
    }

    /// Keeps a module that comes from no registry, by the digest of its bytes.
    pub async fn put_module(&self, module: Vec<u8>) -> Result<()> {
        let digest = Digest::of(&module);
        if self.module(&digest).await.is_ok() {
            return Ok(());
        }
        let artifact = Artifact { module, ..Artifact::default() };
        push(&self.writer(), &artifact, Some(&module_tag(&digest))).await.map(drop)
    }

    /// A module that [`Layout::put_module`] has kept.
    ///
    /// # Errors
    ///
    /// It is not there, or was changed.
    pub async fn module(&self, digest: &Digest) -> Result<Vec<u8>> {
        let (_, artifact) = pull(self, &Name::Tag(module_tag(digest))).await?;
        digest.check(&artifact.module, &self.name("the module"))?;
        Ok(artifact.module)
    }

    /// Removes every manifest that is not kept, and every blob that no kept one has. A referrer and the
    /// signatures of a manifest are kept with it; one of [`Layout::put_module`] by the digest of the module.
    /// If the index breaks a rule or a limit, nothing is kept. What a [`Writer`] has written stays.
    pub fn retain(&self, keep: impl Fn(&Digest) -> bool) -> Result<()> {
        let writing = self.writing.lock();
        let _locked = self.lock()?;
        let mut index = Index::default();
        let written = writing.written();
        let mut blobs: BTreeSet<String> = written.iter().map(Digest::hex).collect();
        let entries = match self.entries() {
            Err(RegistryError::NotFound(_) | RegistryError::Invalid(_)) => Vec::new(),
            entries => entries?,
        };
        for entry in entries.into_iter().map(short) {
            let Ok(manifest) = self.parsed(&entry.digest) else { continue };
            let is_about = manifest.subject.as_ref().map(|subject| subject.digest);
            let tagged = entry.annotations.get(media::REF_NAME).and_then(|tag| named_by_tag(tag));
            if written.contains(&entry.digest) || keep(&is_about.or(tagged).unwrap_or(entry.digest)) {
                blobs.insert(entry.digest.hex());
                blobs.extend(manifest.blobs().map(|blob| blob.digest.hex()));
                index.add(&entry);
            }
        }
        self.write_index(&index)?;
        for file in fs::read_dir(self.blobs()).into_iter().flatten().flatten() {
            let is_kept = file.file_name().to_str().is_some_and(|name| blobs.contains(name));
            if !is_kept && let Err(error) = fs::remove_file(file.path()) {
                return invalid(format!("{} cannot be removed: {error}", file.path().display()));
            }
        }
        Ok(())
    }

    /// The whole name of a tag. Tags that name a digest are those of any repository.
    fn image_name(&self, tag: &str) -> Option<String> {
        let place = self.place.as_ref().filter(|_| named_by_tag(tag).is_none())?;
        Some(format!("{place}:{tag}"))
    }

    /// The digest of a tag.
    fn tagged(&self, tag: &str) -> Result<Digest> {
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.annotations.get(media::REF_NAME).is_some_and(|name| name == tag));
        let image = |entry: &Descriptor| entry.annotations.get(media::IMAGE_NAME).cloned();
        let wanted = self.image_name(tag);
        let found = match &wanted {
            Some(_) => [wanted.clone(), None]
                .into_iter()
                .find_map(|name| entries.iter().find(|entry| image(entry) == name)),
            None => entries.first().filter(|one| {
                entries.iter().all(|other| other.digest == one.digest || image(other) == image(one))
            }),
        };
        if let Some(found) = found {
            return Ok(found.digest);
        }
        let known: Vec<String> = entries.iter().filter_map(image).collect();
        let known = known.join(", ");
        let why = match wanted {
            _ if entries.is_empty() => format!("there is no tag {tag:?}"),
            Some(wanted) => format!("there is no {wanted}; the tag is that of {known}: name one of these"),
            None => {
                return invalid(self.name(&format!("the tag {tag:?} is that of {known}: name the digest")));
            }
        };
        Err(RegistryError::NotFound(self.name(&why)))
    }

    fn parsed(&self, digest: &Digest) -> Result<Manifest> {
        let bytes = self.read(&self.path(digest), MANIFEST_MAX)?;
        let what = self.name(&format!("manifest {digest}"));
        digest.check(&bytes, &what)?;
        Manifest::parse(&bytes, &what)
    }
}

/// An entry with what readers of a layout use. The rest of a manifest that is not signed may be as large as
/// a manifest may be.
fn short(mut entry: Descriptor) -> Descriptor {
    entry.annotations.retain(|key, _| [media::REF_NAME, media::IMAGE_NAME].contains(&&**key));
    entry.artifact_type = entry.artifact_type.filter(|kind| kind.len() <= KIND_MAX);
    entry
}

/// The tag of a module that is kept by the digest of its bytes.
fn module_tag(digest: &Digest) -> String {
    format!("sha256-{}{MODULE}", digest.hex())
}

/// The digest that a tag names: of the manifest with these signatures of cosign 2, or of a module.
fn named_by_tag(tag: &str) -> Option<Digest> {
    let name = tag.strip_prefix("sha256-")?;
    let hex = name.strip_suffix(".sig").or_else(|| name.strip_suffix(MODULE))?;
    format!("sha256:{hex}").parse().ok()
}

#[async_trait]
impl Repository for Layout {
    async fn manifest(&self, name: &Name) -> Result<Vec<u8>> {
        let digest = match name {
            Name::Digest(digest) => *digest,
            Name::Tag(tag) => self.tagged(tag)?,
        };
        let bytes = self.read(&self.path(&digest), MANIFEST_MAX)?;
        digest.check(&bytes, &self.name(&format!("manifest {digest}")))?;
        Ok(bytes)
    }

    async fn blob(&self, blob: &Descriptor, max: usize) -> Result<Vec<u8>> {
        let what = self.name(&format!("blob {}", blob.digest));
        if blob.size > max as u64 {
            return Err(too_large(&what, max));
        }
        let bytes = self.read(&self.path(&blob.digest), max)?;
        blob.digest.check(&bytes, &what)?;
        Ok(bytes)
    }

    async fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>> {
        let mut found = Vec::new();
        for entry in self.entries()? {
            if found.len() == REFERRERS_MAX {
                break;
            }
            let is_about = |manifest: Manifest| manifest.subject.is_some_and(|of| of.digest == *subject);
            if entry.digest != *subject && self.parsed(&entry.digest).is_ok_and(is_about) {
                found.push(entry);
            }
        }
        Ok(found)
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<()> {
        let path = self.path(&Digest::of(bytes));
        // A file that is there may be broken.
        if self.read(&path, bytes.len()).is_ok_and(|known| known == bytes) {
            return Ok(());
        }
        let _writing = self.writing.lock();
        let (kept, max) = (self.size(), self.bytes_max);
        if kept.saturating_add(bytes.len() as u64) > max {
            let why = format!("it has {kept} of at most {max} bytes, no room for {} more", bytes.len());
            return Err(RegistryError::Full(self.name(&why)));
        }
        self.write(&path, bytes)
    }

    async fn put_manifest(&self, name: &Name, manifest: &Manifest, bytes: &[u8]) -> Result<()> {
        self.put_blob(bytes).await?;
        let _writing = self.writing.lock();
        let _locked = self.lock()?;
        let mut index = match self.read(&self.folder.join("index.json"), INDEX_MAX) {
            Ok(known) => Index::parse(&known, &self.name("index.json")),
            Err(RegistryError::NotFound(_)) => Ok(Index::default()),
            Err(error) => Err(error),
        }
        .map_err(|error| match error {
            // [`Layout::retain`] makes room by a new one.
            RegistryError::Invalid(why) => RegistryError::Full(why),
            error => error,
        })?;
        let mut entry = manifest.entry(bytes);
        // Only a tag that was asked for names it.
        entry.annotations.clear();
        if let Name::Tag(tag) = name {
            entry = entry.annotated(media::REF_NAME, tag.clone());
            entry.annotations.extend(self.image_name(tag).map(|name| (media::IMAGE_NAME.to_owned(), name)));
        }
        index.add(&short(entry));
        self.write(&self.folder.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        self.write_index(&index)
    }
}
