//! `bindery policy pull`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bindery_core::is_dns_label;
use bindery_registry::{
    Access, Artifact, Digest, Layout, Name, Reference, Trust, copy, pull, put_tag, verify,
};

use super::registry::{KeyArguments, PlaceArguments};
use super::verify::report;
use crate::{block_on, output};

/// Annotation of an artifact: its name.
const TITLE: &str = "org.opencontainers.image.title";

/// Pull a policy or an engine from a registry.
///
/// With keys (`--registry-key`), nothing is written that they have not signed.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: PlaceArguments,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    keys: KeyArguments,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct Destination {
    /// Keep the artifact with its cases, its page and its signatures in an OCI layout in this folder, which
    /// `--layout` reads again without a registry. If a running server uses the folder, first apply the object
    /// that names the module: the server removes what no object names when it needs room.
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
    /// Write the module, the folder `cases` and README.md into this folder.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { from, destination, keys } = arguments;
    let (name, trust) = (from.name()?, keys.trust()?);
    let mut text = String::new();
    let outcome = block_on(async {
        let repository = from.open(Access::Pull)?;
        let (digest, artifact) = pull(&*repository, &name).await?;
        if let Some(trust) = &trust {
            match report(&from.reference, &*repository, digest, trust).await? {
                (code, told) if code != ExitCode::SUCCESS => return Ok((code, told)),
                (_, told) => text += &told,
            }
        }
        if let Some(folder) = &destination.to {
            let layout = Layout::new(folder).with_tags_of(&from.reference);
            copy(&*repository, &layout, &Name::Digest(digest)).await?;
            let kept = read_back(&layout, digest, &from.reference, trust.as_ref()).await;
            kept.with_context(|| {
                let folder = folder.display();
                format!("{folder} lacks a part: a server may have made room there; run the command again")
            })?;
            text += &format!("{}: {}\n", folder.display(), from.reference.with_digest(digest));
        }
        if let Some(folder) = &destination.output {
            text += &write(folder, &artifact, from.reference.repository())?;
        }
        Ok((ExitCode::SUCCESS, text))
    });
    let (code, text) = outcome?;
    output::print(&text)?;
    Ok(code)
}

/// Reads an artifact and its signatures back from a layout, and tags it there if the reference names a tag.
/// The registry is not asked again: the tag may name another artifact there by now.
async fn read_back(
    layout: &Layout,
    digest: Digest,
    reference: &Reference,
    trust: Option<&Trust>,
) -> Result<()> {
    pull(layout, &Name::Digest(digest)).await?;
    if let Some(trust) = trust {
        verify(layout, &digest, trust.of(reference)?).await?;
    }
    if let Some(Name::Tag(tag)) = reference.name() {
        put_tag(layout, digest, &tag).await?;
    }
    Ok(())
}

/// Writes the files of an artifact; returns what was written. Where two files of cases have one name, nothing
/// is written.
fn write(folder: &Path, artifact: &Artifact, repository: &str) -> Result<String> {
    let title = artifact.annotations.get(TITLE).filter(|title| is_dns_label(title));
    let name = title.map_or(repository.rsplit('/').next().unwrap_or(repository), |title| title);
    let mut names = BTreeSet::new();
    if let Some(twice) = artifact.cases.iter().find(|file| !names.insert(&file.name)) {
        bail!(
            "{}: two files of golden cases have this name: give them other names, and push again; \
             `bindery policy pull --to` keeps both",
            folder.join("cases").join(&twice.name).display()
        );
    }
    let mut files = vec![(folder.join(format!("{name}.wasm")), &artifact.module)];
    files.extend(artifact.page.iter().map(|page| (folder.join("README.md"), &page.bytes)));
    files.extend(artifact.cases.iter().map(|file| (folder.join("cases").join(&file.name), &file.bytes)));
    let mut text = String::new();
    for (path, bytes) in files {
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(&path, bytes)
        };
        write().with_context(|| format!("{} cannot be written", path.display()))?;
        text += &format!("{}: {} bytes\n", path.display(), bytes.len());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use bindery_registry::Extra;

    use super::*;

    #[test]
    fn given_two_files_of_cases_with_one_name_neither_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = |text: &str| Extra { name: "a.yaml".to_owned(), bytes: text.into() };
        let artifact = Artifact { cases: vec![file("case: a"), file("case: b")], ..Artifact::default() };
        let error = write(folder.path(), &artifact, "team/policy").unwrap_err().to_string();
        assert!(error.contains("cases/a.yaml: two files of golden cases have this name: "), "{error}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
