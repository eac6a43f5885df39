//! `bindery policy inspect`.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bindery_core::{ClaimFact, Spread, VolumeFact};
use bindery_host::ComponentPolicy;
use bindery_policy::Metadata;

use super::module::ModuleArgument;
use crate::output;

/// Show what a policy reads and answers, and what it never sees.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleArgument,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = arguments.module.path()?;
    let size = fs::metadata(&path).with_context(|| format!("{} cannot be read", path.display()))?.len();
    let policy = arguments.module.load()?;
    output::print(&text(&policy, &format!("{}, {size} bytes", path.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// Everything about a policy, for people.
fn text(policy: &ComponentPolicy, module: &str) -> String {
    let metadata = policy.metadata();
    let mut text = format!("{} {}: {}\n", metadata.name, metadata.version, metadata.description);
    text += &format!("module:  {module}\n");
    text += &format!("digest:  {}\n", policy.digest());
    let scores = if metadata.scores { ", and scores them" } else { "" };
    let (world, claim, request, reasons) = match policy {
        ComponentPolicy::Matcher(_) => (
            format!("matcher: it rejects volumes that could be newly given to a claim{scores}"),
            "reads of the claim",
            Some("the request".to_owned()),
            "rejects volumes for these reasons",
        ),
        ComponentPolicy::Reclaimer(_) => (
            "reclaimer: it says what becomes of volumes whose claims are gone".to_owned(),
            "reads of the claim, as it was last seen",
            None,
            "gives these reasons",
        ),
    };
    text += &format!("world:   {world}\n");
    text += &list(claim, request.into_iter().chain(metadata.claim_facts.iter().map(claim_fact)));
    let columns = metadata.columns.iter().map(VolumeFact::to_string);
    text += &list("reads of each volume", ["the capacity".to_owned()].into_iter().chain(columns));
    if let Some(Spread { by, among }) = &metadata.spread {
        let title = format!("counts volumes that share {by}, of claims with the same");
        let among = among.iter().map(claim_fact);
        text += &list(&title, ["namespace".to_owned()].into_iter().chain(among));
    }
    let sentences = metadata.reasons.iter().map(|reason| format!("{}: {}", reason.name, reason.text));
    text += &list(reasons, sentences);
    text += &list("never sees", unseen(metadata).into_iter());
    text + &format!("\nschema of the settings:\n{}\n", metadata.settings_schema.trim_end())
}

fn list(title: &str, items: impl Iterator<Item = String>) -> String {
    let items: String = items.map(|item| format!("- {item}\n")).collect();
    if items.is_empty() { String::new() } else { format!("\n{title}:\n{items}") }
}

fn claim_fact(fact: &ClaimFact) -> String {
    match fact {
        ClaimFact::Namespace => "the namespace".to_owned(),
        ClaimFact::Name => "the name".to_owned(),
        ClaimFact::Label(key) => format!("label {key}"),
        ClaimFact::Annotation(key) => format!("annotation {key}"),
        ClaimFact::NamespaceLabel(key) => format!("label {key} of its namespace"),
        ClaimFact::ClassParameter(key) => format!("parameter {key} of its class"),
        ClaimFact::OwnerName => "the name of the StatefulSet or pod that it was made for".to_owned(),
        ClaimFact::OwnerOrdinal => "the ordinal at the end of its name".to_owned(),
    }
}

/// What a policy is not shown, of what authors may expect.
fn unseen(metadata: &Metadata) -> Vec<String> {
    let claims =
        [(ClaimFact::Namespace, "the namespace of the claim"), (ClaimFact::Name, "the name of the claim")];
    let volumes = [
        (VolumeFact::ClassName, "the class of a volume"),
        (VolumeFact::Driver, "the driver of a volume"),
        (VolumeFact::ReclaimPolicy, "the reclaim policy of a volume"),
    ];
    let claims = claims.into_iter().filter(|(fact, _)| !metadata.claim_facts.contains(fact));
    let volumes = volumes.into_iter().filter(|(fact, _)| !metadata.columns.contains(fact));
    let undeclared = claims.map(|(_, what)| what).chain(volumes.map(|(_, what)| what));
    let always = [
        "any other label or annotation",
        "names of volumes",
        "volumes that name this claim in claimRef",
        "pods, nodes, secrets, the time, files, the network",
    ];
    undeclared.chain(always).map(str::to_owned).collect()
}
