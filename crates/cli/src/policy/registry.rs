//! What the commands for registries have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use bindery_registry::limits::MODULE_MAX;
use bindery_registry::{
    Access, Credentials, Descriptor, Digest, Layout, Name, Prefix, PublicKey, Reference, Registry,
    RegistryError, Repository, Require, Timeouts, Trust, TrustedKeys, media, pull,
};

use crate::block_on;

/// How registries are reached.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct RegistryArguments {
    /// Credentials of registries, in the format of docker's config.json and podman's auth.json.
    #[arg(long, value_name = "FILE", env = "BINDERY_REGISTRY_AUTH")]
    registry_auth: Option<PathBuf>,
    /// Certificate authorities of registries, in PEM, in place of those of the system.
    #[arg(long, value_name = "FILE", env = "BINDERY_REGISTRY_CA")]
    registry_ca: Option<PathBuf>,
}

/// An artifact in a registry or a layout.
#[derive(clap::Args)]
pub(super) struct PlaceArguments {
    /// The artifact, by tag or digest.
    #[arg(value_name = "oci://HOST/REPOSITORY[:TAG][@sha256:HEX]")]
    pub(super) reference: Reference,
    /// Take the artifact from an OCI layout in this folder, and ask no registry.
    #[arg(long, value_name = "FOLDER")]
    layout: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// The keys that are trusted.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct KeyArguments {
    /// Public keys of who signs modules, in PEM, as cosign makes them. Repeat it for several files, or
    /// separate them by commas. Behind `oci://HOST/REPOSITORY=` they count for the modules there and below,
    /// in place of those without; of several such prefixes the longest counts.
    #[arg(long, value_name = "[PREFIX=]FILE", env = "BINDERY_REGISTRY_KEY", value_delimiter = ',')]
    registry_key: Vec<For<PathBuf>>,
    /// How many of the keys must have signed a module: one of them, or each. A prefix has its own answer,
    /// `any` unless it is given.
    #[arg(
        long,
        value_name = "[PREFIX=]any|all",
        env = "BINDERY_REGISTRY_REQUIRE",
        default_value = "any",
        value_delimiter = ','
    )]
    registry_require: Vec<For<Require>>,
}

/// A value for the modules of a prefix, or for all others.
#[derive(Clone)]
struct For<T> {
    prefix: Option<Prefix>,
    value: T,
}

impl RegistryArguments {
    /// A client with these credentials and no others, which runs no credential helper.
    pub(crate) fn client(&self, timeouts: Timeouts) -> Result<Registry> {
        self.client_with(self.registry_auth.clone().map(Credentials::File), timeouts)
    }

    fn client_with(&self, credentials: Option<Credentials>, timeouts: Timeouts) -> Result<Registry> {
        let authorities = self.registry_ca.as_ref().map(|path| {
            let read = std::fs::read(path);
            read.with_context(|| format!("--registry-ca {} cannot be read", path.display()))
        });
        let authorities = authorities.transpose()?;
        let client = Registry::new(authorities.as_deref(), credentials, timeouts);
        client.context("registries cannot be asked")
    }

    /// The module of a registry, read with the credentials of the user.
    pub(crate) fn module(&self, reference: &Reference) -> Result<Vec<u8>> {
        let name = name(reference)?;
        block_on(async {
            let repository = self.client_of_user()?.repository(reference, Access::Pull)?;
            let (_, artifact) = pull(&repository, &name).await?;
            Ok(artifact.module)
        })
    }

    /// The module of that digest in a repository, whatever names it there, read with the credentials of the
    /// user; `None` if it is not there.
    pub(crate) fn find(&self, repository: &Reference, digest: Digest) -> Result<Option<Vec<u8>>> {
        let blob = Descriptor { digest, size: MODULE_MAX as u64, ..Descriptor::of(media::WASM_LAYER, &[]) };
        block_on(async {
            let repository = self.client_of_user()?.repository(repository, Access::Pull)?;
            match repository.blob(&blob, MODULE_MAX).await {
                Ok(module) => Ok(Some(module)),
                Err(RegistryError::NotFound(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// A client with these credentials, else with those of the user. It runs their credential helpers.
    pub(crate) fn client_of_user(&self) -> Result<Registry> {
        let file = self.registry_auth.clone().or_else(users_credentials);
        self.client_with(file.map(Credentials::UsersFile), Timeouts::default())
    }
}

/// The file of credentials that podman or docker uses, the first that exists.
fn users_credentials() -> Option<PathBuf> {
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let home = folder("HOME");
    let candidates = [
        folder("REGISTRY_AUTH_FILE"),
        folder("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json")),
        home.clone().map(|home| home.join(".config/containers/auth.json")),
        folder("DOCKER_CONFIG")
            .or(home.map(|home| home.join(".docker")))
            .map(|folder| folder.join("config.json")),
    ];
    candidates.into_iter().flatten().find(|path| path.is_file())
}

fn name(reference: &Reference) -> Result<Name> {
    reference.name().with_context(|| format!("{reference}: name a tag or a digest"))
}

impl PlaceArguments {
    /// What names the manifest.
    pub(super) fn name(&self) -> Result<Name> {
        name(&self.reference)
    }

    /// Where the artifact is.
    pub(super) fn open(&self, access: Access) -> Result<Box<dyn Repository>> {
        if let Some(folder) = &self.layout {
            if !folder.is_dir() {
                bail!("--layout {}: there is no such folder", folder.display());
            }
            return Ok(Box::new(Layout::new(folder).with_tags_of(&self.reference)));
        }
        Ok(Box::new(self.registry.client_of_user()?.repository(&self.reference, access)?))
    }
}

impl<T: FromStr<Err: std::fmt::Display>> FromStr for For<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (prefix, value) = match text.split_once('=') {
            Some((prefix, value)) if prefix.starts_with("oci://") => (Some(prefix.parse::<Prefix>()?), value),
            _ if text.starts_with("oci://") => return Err(format!("{text:?} is not PREFIX=VALUE")),
            _ => (None, text),
        };
        Ok(Self { prefix, value: value.parse().map_err(|error: T::Err| error.to_string())? })
    }
}

impl KeyArguments {
    /// The keys, if any are given.
    pub(crate) fn trust(&self) -> Result<Option<Trust>> {
        let mut keys: BTreeMap<&Option<Prefix>, Vec<PublicKey>> = BTreeMap::new();
        for For { prefix, value: path } in &self.registry_key {
            let at = || format!("--registry-key {}", path.display());
            let text = std::fs::read(path).with_context(|| format!("{} cannot be read", at()))?;
            keys.entry(prefix).or_default().extend(PublicKey::read_all(&text).with_context(at)?);
        }
        let mut required = BTreeMap::new();
        for For { prefix, value } in &self.registry_require {
            if let Some(named) = prefix
                && !keys.contains_key(prefix)
            {
                bail!("--registry-require names {named}, and no --registry-key does; give a key for it");
            }
            if required.insert(prefix, *value).is_some_and(|other| other != *value) {
                bail!("--registry-require has any and all for the same modules; give one of them");
            }
        }
        let trusted = keys.into_iter().map(|(prefix, keys)| {
            let require = required.get(prefix).copied().unwrap_or_default();
            Ok((prefix.clone(), TrustedKeys::new(keys, require).context("--registry-key")?))
        });
        let trusted = trusted.collect::<Result<BTreeMap<_, _>>>()?;
        Ok((!trusted.is_empty()).then(|| Trust::new(trusted)))
    }
}
