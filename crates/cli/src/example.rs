//! `bindery example`: the manifests of `examples/`, compiled into the program.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::output;

/// Print the manifests of an example, for `kubectl apply -f -`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the example. Without a name, all examples are listed.
    name: Option<String>,
    /// Print the README of the example instead.
    #[arg(long, requires = "name")]
    readme: bool,
}

/// An example: one folder of `examples/`.
pub(crate) struct Example {
    /// Name of the folder.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) about: &'static str,
    readme: &'static str,
    /// Name and text of the manifests that the example begins with. Those of later steps are in `then/`.
    pub(crate) files: &'static [(&'static str, &'static str)],
}

macro_rules! example {
    ($name:literal, $about:literal, [$($file:literal),+ $(,)?]) => {
        Example {
            name: $name,
            about: $about,
            readme: include_str!(concat!("../../../examples/", $name, "/README.md")),
            files: &[$(($file, include_str!(concat!("../../../examples/", $name, "/", $file)))),+],
        }
    };
}

/// All examples, in reading order.
pub(crate) const EXAMPLES: [Example; 5] = [
    example!(
        "static-binding",
        "three claims, three volumes: each claim gets the smallest that fits",
        ["1-volumes.yaml", "2-claims.yaml"]
    ),
    example!(
        "pre-bound",
        "a volume reserved for a claim, and a claim that names its volume",
        ["1-volumes.yaml", "2-claims.yaml"]
    ),
    example!(
        "delayed-binding",
        "a claim that waits until a pod is scheduled",
        ["1-class.yaml", "2-nodes.yaml", "3-volumes.yaml", "4-claim.yaml"]
    ),
    example!(
        "release-and-delete",
        "what happens to volumes when their claims are deleted",
        ["1-class.yaml", "2-volume.yaml", "3-claims.yaml"]
    ),
    example!(
        "provisioner",
        "a claim that an external provisioner serves, and what the provisioner writes",
        ["1-class.yaml", "2-claim.yaml"]
    ),
];

/// The example of that name. The error lists all.
pub(crate) fn find(name: &str) -> Result<&'static Example> {
    let Some(example) = EXAMPLES.iter().find(|example| example.name == name) else {
        let names: Vec<&str> = EXAMPLES.iter().map(|example| example.name).collect();
        bail!("there is no example {name:?}; there are {}", names.join(", "));
    };
    Ok(example)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let text = match &arguments.name {
        None => {
            output::table(&EXAMPLES.map(|example| vec![example.name.to_owned(), example.about.to_owned()]))
        }
        Some(name) if arguments.readme => find(name)?.readme.to_owned(),
        Some(name) => find(name)?.files.iter().map(|(file, text)| format!("---\n# {file}\n{text}")).collect(),
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::{manifest, objects};

    fn names(folder: &Path, keep: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let names =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| keep(name)).collect()
    }

    #[test]
    fn every_example_and_every_manifest_is_compiled_in() {
        let folder = Path::new(env!("BINDERY_CHECKOUT")).join("examples");
        // An engine is a crate.
        let here = names(&folder, |name| folder.join(name).join("README.md").is_file());
        assert_eq!(here, EXAMPLES.map(|example| example.name.to_owned()).into_iter().collect());
        for example in &EXAMPLES {
            let manifests = names(&folder.join(example.name), |name| name.ends_with(".yaml"));
            assert_eq!(
                manifests,
                example.files.iter().map(|(file, _)| (*file).to_owned()).collect(),
                "{}",
                example.name
            );
        }
    }

    #[test]
    fn every_manifest_is_of_a_kind_that_plan_and_playground_know() {
        for example in &EXAMPLES {
            for (file, text) in example.files {
                let manifests = manifest::parse(file, text).unwrap();
                assert!(!manifests.is_empty(), "{file}");
                assert!(manifests.iter().all(|m| objects::Resource::of(&m.object).is_some()), "{file}");
            }
        }
    }
}
