//! `bindery policy sign`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_registry::{Access, Format, SigningKey, sign};

use super::registry::PlaceArguments;
use crate::{block_on, output};

/// The variable of the password of an encrypted key, as cosign has it.
const PASSWORD: &str = "COSIGN_PASSWORD";

/// Sign a policy or an engine in a registry, as cosign does.
///
/// The signature is written to the registry, and nothing is sent elsewhere: no transparency log has it.
/// `cosign verify --insecure-ignore-tlog --key FILE` accepts it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    artifact: PlaceArguments,
    /// The private key, in PEM: ECDSA on P-256, as `cosign generate-key-pair` or openssl makes it. The
    /// password of an encrypted one is in COSIGN_PASSWORD.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// How the signature is written.
    #[arg(long, value_enum, default_value = "bundle")]
    format: FormatArgument,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatArgument {
    /// As cosign 3 does: a Sigstore bundle that refers to the artifact.
    Bundle,
    /// As cosign 2 did: under the tag sha256-HEX.sig.
    Tag,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let at = || format!("--key {}", arguments.key.display());
    let text = std::fs::read(&arguments.key).with_context(|| format!("{} cannot be read", at()))?;
    let password = std::env::var_os(PASSWORD).map(std::ffi::OsString::into_encoded_bytes);
    let key = SigningKey::read(&text, password.as_deref()).with_context(at)?;
    let format = match arguments.format {
        FormatArgument::Bundle => Format::Bundle,
        FormatArgument::Tag => Format::Tag,
    };
    let reference = &arguments.artifact.reference;
    block_on(async { Ok(sign(&*arguments.artifact.open(Access::Push)?, reference, &key, format).await?) })?;
    output::print(&format!("{reference}: signed by the key {}\n", key.public()?.fingerprint()))?;
    Ok(ExitCode::SUCCESS)
}
