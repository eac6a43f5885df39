//! `bindery policy verify`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_registry::{
    Access, Digest, Reference, RegistryError, Repository, Trust, Verified, pull_manifest, verify,
};

use super::registry::{KeyArguments, PlaceArguments};
use crate::{block_on, output};

/// Check who has signed a policy or an engine in a registry.
///
/// Signatures of cosign 2 and 3 by keys are read. Times, certificates and transparency logs are not. Exits
/// with status 1 if the keys have not signed it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    artifact: PlaceArguments,
    #[command(flatten)]
    keys: KeyArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let trust = arguments.keys.trust()?.context("no key is given; name one by --registry-key")?;
    let Arguments { artifact, .. } = arguments;
    let name = artifact.name()?;
    let (code, text) = block_on(async {
        let repository = artifact.open(Access::Pull)?;
        let (digest, _) = pull_manifest(&*repository, &name).await?;
        report(&artifact.reference, &*repository, digest, &trust).await
    })?;
    output::print(&text)?;
    Ok(code)
}

/// Verifies the signatures of an artifact. Returns the exit status and the text to print.
pub(super) async fn report(
    reference: &Reference,
    repository: &dyn Repository,
    digest: Digest,
    trust: &Trust,
) -> Result<(ExitCode, String)> {
    let verified = match trust.of(reference) {
        Ok(trusted) => verify(repository, &digest, trusted).await,
        Err(error) => Err(error),
    };
    let reference = reference.with_digest(digest);
    match verified {
        Ok(Verified { keys }) => {
            let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
            Ok((ExitCode::SUCCESS, format!("{reference}: signed by {}\n", keys.join(", "))))
        }
        Err(RegistryError::Unverified(why)) => Ok((ExitCode::FAILURE, format!("{reference}: {why}\n"))),
        Err(error) => Err(error.into()),
    }
}
