//! A module as an artifact of a registry, in the layout of the CNCF that `wkg` reads and writes.
//!
//! The manifest has one configuration and one layer, the module. Golden cases and a page are artifacts of
//! their own whose subject it is. Its annotations name their digests, so that its signature covers them.

use std::collections::BTreeMap;

use serde_json::json;

use crate::digest::Digest;
use crate::error::{RegistryError, Result, invalid};
use crate::limits::{CONFIG_MAX, EXTRA_MAX, EXTRAS_MAX, MODULE_MAX, SIGNATURE_MAX, SIGNATURES_MAX};
use crate::manifest::{Descriptor, EMPTY_CONFIG, Manifest};
use crate::media;
use crate::repository::{Name, Repository};
use crate::signature::signatures_tag;

/// Configurations that an artifact of a module may have.
const CONFIGS: [&str; 2] = [media::WASM_CONFIG, media::OLD_WASM_CONFIG];
/// Layers that a module may be.
const LAYERS: [&str; 2] = [media::WASM_LAYER, media::OLD_WASM_LAYER];
/// When the artifact was made, which its configuration must say: always the same, so that one module has one
/// digest.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// A module with what comes with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artifact {
    /// The component.
    pub module: Vec<u8>,
    /// What the component exports, for the configuration.
    pub exports: Vec<String>,
    /// Files of golden cases.
    pub cases: Vec<Extra>,
    /// A page for people, in Markdown.
    pub page: Option<Extra>,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

/// A file that comes with a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// The name of the file, without folders.
    pub name: String,
    /// What it contains.
    pub bytes: Vec<u8>,
}

impl Artifact {
    fn config(&self) -> Vec<u8> {
        let config = json!({
            "created": CREATED,
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [Digest::of(&self.module)],
            "component": {"exports": self.exports, "imports": []},
        });
        config.to_string().into_bytes()
    }

    fn manifest(&self, config: &[u8]) -> Manifest {
        let mut annotations = self.annotations.clone();
        if !self.cases.is_empty() {
            let digests: Vec<_> = self.cases.iter().map(|file| Digest::of(&file.bytes).to_string()).collect();
            annotations.insert(media::CASES_ANNOTATION.to_owned(), digests.join(","));
        }
        if let Some(page) = &self.page {
            annotations.insert(media::PAGE_ANNOTATION.to_owned(), Digest::of(&page.bytes).to_string());
        }
        let config = Descriptor::of(media::WASM_CONFIG, config);
        let layers = vec![Descriptor::of(media::WASM_LAYER, &self.module)];
        Manifest { annotations, ..Manifest::new(config, layers) }
    }

    fn check(&self) -> Result<()> {
        check_size("the module", self.module.len() as u64)?;
        if self.cases.len() > EXTRAS_MAX {
            return invalid(format!(
                "there are {} files of cases; at most {EXTRAS_MAX} are",
                self.cases.len()
            ));
        }
        match self.cases.iter().chain(&self.page).find(|file| file.bytes.len() > EXTRA_MAX) {
            Some(file) => invalid(format!("{} has more than {EXTRA_MAX} bytes", file.name)),
            None => Ok(()),
        }
    }
}

/// Checks that a module of so many bytes may be written and read; `what` names it.
///
/// # Errors
///
/// It has more than [`MODULE_MAX`].
pub fn check_size(what: &str, bytes: u64) -> Result<()> {
    if bytes <= MODULE_MAX as u64 {
        return Ok(());
    }
    invalid(format!(
        "{what} has {bytes} bytes; at most {MODULE_MAX} are read and written: build it smaller, such as \
         without debug information"
    ))
}

/// Writes an artifact, and tags it if a tag is named. Returns the digest of its manifest.
///
/// # Errors
///
/// It is larger than what [`pull`] reads, or cannot be written.
pub async fn push(to: &dyn Repository, artifact: &Artifact, tag: Option<&str>) -> Result<Digest> {
    artifact.check()?;
    let config = artifact.config();
    let manifest = artifact.manifest(&config);
    let bytes = manifest.to_bytes();
    let digest = Digest::of(&bytes);
    to.put_blob(&artifact.module).await?;
    to.put_blob(&config).await?;
    to.put_manifest(&Name::Digest(digest), &manifest, &bytes).await?;
    let subject = Descriptor::of(media::MANIFEST, &bytes);
    if !artifact.cases.is_empty() {
        put_extras(to, media::CASES, media::CASES_LAYER, &artifact.cases, &subject).await?;
    }
    if let Some(page) = &artifact.page {
        put_extras(to, media::PAGE, media::PAGE_LAYER, std::slice::from_ref(page), &subject).await?;
    }
    // Last, so that what the tag names is complete.
    if let Some(tag) = tag {
        to.put_manifest(&Name::Tag(tag.to_owned()), &manifest, &bytes).await?;
    }
    Ok(digest)
}

async fn put_extras(
    to: &dyn Repository,
    artifact_type: &str,
    media_type: &str,
    files: &[Extra],
    subject: &Descriptor,
) -> Result<()> {
    let mut layers = Vec::new();
    for file in files {
        to.put_blob(&file.bytes).await?;
        layers.push(Descriptor::of(media_type, &file.bytes).annotated(media::TITLE, &*file.name));
    }
    put_referrer(to, &Manifest::referrer(artifact_type, layers, subject.clone())).await
}

/// Writes a manifest whose layers are there, and its empty configuration.
pub(crate) async fn put_referrer(to: &dyn Repository, manifest: &Manifest) -> Result<()> {
    to.put_blob(EMPTY_CONFIG).await?;
    let bytes = manifest.to_bytes();
    to.put_manifest(&Name::Digest(Digest::of(&bytes)), manifest, &bytes).await
}

/// The manifest of a module: its digest, and what it says.
pub async fn pull_manifest(from: &dyn Repository, name: &Name) -> Result<(Digest, Manifest)> {
    let bytes = from.manifest(name).await?;
    let what = format!("manifest {name}");
    let manifest = Manifest::parse(&bytes, &what)?;
    if !CONFIGS.contains(&&*manifest.config.media_type) {
        return invalid(format!(
            "{what} is no module: its configuration is {:?}, not {:?}",
            manifest.config.media_type,
            media::WASM_CONFIG
        ));
    }
    match &*manifest.layers {
        [layer] if LAYERS.contains(&&*layer.media_type) => Ok((Digest::of(&bytes), manifest)),
        [layer] => {
            invalid(format!("{what} is no module: its layer is {:?}, not {:?}", layer.media_type, LAYERS[0]))
        }
        layers => invalid(format!("{what} is no module: it has {} layers, not one", layers.len())),
    }
}

/// Reads an artifact. Cases and page are those that the manifest names by digest; it may come without the
/// page.
///
/// # Errors
///
/// It cannot be read, is not that of a module, or breaks a limit. [`RegistryError::NotFound`]: no referrer
/// has golden cases that the manifest names.
pub async fn pull(from: &dyn Repository, name: &Name) -> Result<(Digest, Artifact)> {
    let (digest, manifest) = pull_manifest(from, name).await?;
    let module = module(from, &digest, &manifest).await?;
    let cases = named(&digest, &manifest, media::CASES_ANNOTATION, EXTRAS_MAX)?;
    let page = named(&digest, &manifest, media::PAGE_ANNOTATION, 1)?;
    let mut artifact = Artifact { module, annotations: manifest.annotations.clone(), ..Artifact::default() };
    if cases.is_empty() && page.is_empty() {
        return Ok((digest, artifact));
    }
    for referrer in extras(from, &digest).await? {
        let wanted = if referrer.kind() == media::CASES { &cases } else { &page };
        for layer in referrer.layers.iter().filter(|layer| wanted.contains(&layer.digest)) {
            let file = Extra { name: file_name(layer), bytes: from.blob(layer, EXTRA_MAX).await? };
            match referrer.kind() {
                media::CASES if !artifact.cases.contains(&file) => artifact.cases.push(file),
                media::PAGE => artifact.page = Some(file),
                _ => {}
            }
        }
    }
    artifact.cases.truncate(EXTRAS_MAX);
    let found: Vec<Digest> = artifact.cases.iter().map(|file| Digest::of(&file.bytes)).collect();
    match cases.iter().find(|digest| !found.contains(digest)) {
        None => Ok((digest, artifact)),
        Some(missing) => Err(RegistryError::NotFound(format!(
            "manifest {digest} names the golden cases {missing}, and no referrer has them; copy the artifact \
             with its referrers, as `bindery policy push` does with a layout, or push it again"
        ))),
    }
}

/// The module of a manifest that [`pull_manifest`] has read.
async fn module(from: &dyn Repository, digest: &Digest, manifest: &Manifest) -> Result<Vec<u8>> {
    let layer = &manifest.layers[0];
    check_size(&format!("the module of manifest {digest}"), layer.size)?;
    from.blob(layer, MODULE_MAX).await
}

/// The digests of files in an annotation of a manifest.
fn named(of: &Digest, manifest: &Manifest, annotation: &str, max: usize) -> Result<Vec<Digest>> {
    let Some(text) = manifest.annotations.get(annotation) else { return Ok(Vec::new()) };
    let digests: std::result::Result<Vec<Digest>, String> = text.split(',').map(str::parse).collect();
    match digests {
        Ok(digests) if digests.len() <= max => Ok(digests),
        Ok(digests) => invalid(format!(
            "manifest {of} names {} files in its annotation {annotation}; at most {max} are read",
            digests.len()
        )),
        Err(_) => invalid(format!("manifest {of} has no list of digests in its annotation {annotation}")),
    }
}

/// The types and digests of the referrers of a manifest. Where a list does not tell a type, the manifest is
/// read; one that cannot be read is left out.
pub(crate) async fn typed_referrers(
    from: &dyn Repository,
    subject: &Digest,
) -> Result<Vec<(String, Digest)>> {
    let (mut typed, mut read) = (Vec::new(), 0);
    for Descriptor { artifact_type, digest, .. } in from.referrers(subject).await? {
        let kind = match artifact_type {
            Some(kind) => kind,
            None if read == EXTRAS_MAX + SIGNATURES_MAX => continue,
            None => {
                read += 1;
                match read_manifest(from, &digest).await {
                    Ok(manifest) => manifest.kind().to_owned(),
                    Err(error @ (RegistryError::Unavailable(_) | RegistryError::Denied(_))) => {
                        return Err(error);
                    }
                    Err(_) => continue,
                }
            }
        };
        typed.push((kind, digest));
    }
    Ok(typed)
}

async fn read_manifest(from: &dyn Repository, digest: &Digest) -> Result<Manifest> {
    let bytes = from.manifest(&Name::Digest(*digest)).await?;
    Manifest::parse(&bytes, &format!("manifest {digest}"))
}

/// The artifacts of cases and pages of a manifest. Not more than there can be files are read.
async fn extras(from: &dyn Repository, subject: &Digest) -> Result<Vec<Manifest>> {
    let is_extra = |(kind, _): &(String, Digest)| [media::CASES, media::PAGE].contains(&&**kind);
    let mut found = Vec::new();
    for (_, referrer) in typed_referrers(from, subject).await?.into_iter().filter(is_extra).take(EXTRAS_MAX) {
        let manifest = read_manifest(from, &referrer).await?;
        let is_about = manifest.subject.as_ref().is_some_and(|of| of.digest == *subject);
        if is_about && [media::CASES, media::PAGE].contains(&manifest.kind()) {
            found.push(manifest);
        }
    }
    Ok(found)
}

/// The name of a layer's file: its last part, so that it leaves no folder, or one made of its digest.
fn file_name(layer: &Descriptor) -> String {
    let title = layer.annotations.get(media::TITLE).map_or("", |title| title);
    let name = title.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.starts_with('.') || name.len() > 128 || !name.chars().all(is_name) {
        return layer.digest.hex();
    }
    name.to_owned()
}

/// Copies an artifact with its cases, its page and its signatures, byte by byte. A bundle that is too large
/// for a signature is left behind. Returns its digest.
pub async fn copy(from: &dyn Repository, to: &dyn Repository, name: &Name) -> Result<Digest> {
    let (digest, manifest) = pull_manifest(from, name).await?;
    to.put_blob(&module(from, &digest, &manifest).await?).await?;
    to.put_blob(&from.blob(&manifest.config, CONFIG_MAX).await?).await?;
    let bytes = from.manifest(&Name::Digest(digest)).await?;
    to.put_manifest(&Name::Digest(digest), &manifest, &bytes).await?;
    let (mut extras, mut bundles) = (0, 0);
    for (kind, referrer) in typed_referrers(from, &digest).await? {
        let (count, max, blob_max) = match &*kind {
            media::CASES | media::PAGE => (&mut extras, EXTRAS_MAX, EXTRA_MAX),
            media::BUNDLE => (&mut bundles, SIGNATURES_MAX, SIGNATURE_MAX),
            _ => continue,
        };
        *count += 1;
        if *count <= max {
            copy_manifest(from, to, &Name::Digest(referrer), EXTRAS_MAX, blob_max).await?;
        }
    }
    let signatures = Name::Tag(signatures_tag(&digest));
    match copy_manifest(from, to, &signatures, SIGNATURES_MAX, SIGNATURE_MAX).await {
        Ok(()) | Err(RegistryError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    // Last, so that what the tag names is complete.
    if let Name::Tag(_) = name {
        to.put_manifest(name, &manifest, &bytes).await?;
    }
    Ok(digest)
}

/// Puts a tag on an artifact that is there.
pub async fn put_tag(at: &dyn Repository, digest: Digest, tag: &str) -> Result<()> {
    let name = Name::Digest(digest);
    let (_, manifest) = pull_manifest(at, &name).await?;
    let bytes = at.manifest(&name).await?;
    at.put_manifest(&Name::Tag(tag.to_owned()), &manifest, &bytes).await
}

/// Copies a manifest with its configuration and its first layers.
async fn copy_manifest(
    from: &dyn Repository,
    to: &dyn Repository,
    name: &Name,
    layers_max: usize,
    blob_max: usize,
) -> Result<()> {
    let bytes = from.manifest(name).await?;
    let manifest = Manifest::parse(&bytes, &format!("manifest {name}"))?;
    // An attestation is a bundle too, and no signature.
    if manifest.kind() == media::BUNDLE && manifest.blobs().any(|blob| blob.size > blob_max as u64) {
        return Ok(());
    }
    for blob in manifest.blobs().take(1 + layers_max) {
        to.put_blob(&from.blob(blob, blob_max).await?).await?;
    }
    to.put_manifest(name, &manifest, &bytes).await
}
