//! `bindery policy verify`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_registry::{Access, Digest, Reference, RegistryError, Verified, pull_manifest, verify};

use super::registry::{KeyArguments, PlaceArguments, wait};
use crate::output;

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

/// Runs `bindery policy verify`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let trusted = arguments.keys.trusted()?.context("no key is given; name one by --registry-key")?;
    let Arguments { artifact, .. } = arguments;
    let name = artifact.name()?;
    let (code, text) = wait(async {
        let repository = artifact.open(Access::Pull)?;
        let (digest, _) = pull_manifest(&*repository, &name).await?;
        report(&artifact.reference, digest, verify(&*repository, &digest, &trusted).await)
    })?;
    output::print(&text)?;
    Ok(code)
}

/// What is said of a verification, and the exit status.
pub(super) fn report(
    reference: &Reference,
    digest: Digest,
    outcome: Result<Verified, RegistryError>,
) -> Result<(ExitCode, String)> {
    let reference = reference.with_digest(digest);
    match outcome {
        Ok(Verified { keys }) => {
            let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
            Ok((ExitCode::SUCCESS, format!("{reference}: signed by {}\n", keys.join(", "))))
        }
        Err(RegistryError::Unverified(why)) => Ok((ExitCode::FAILURE, format!("{reference}: {why}\n"))),
        Err(error) => Err(error.into()),
    }
}
