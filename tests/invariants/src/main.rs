//! `kubectl get persistentvolumes,persistentvolumeclaims,storageclasses -A -o json | bindery-invariants`
//! prints how a cluster at rest breaks upstream's invariants. The exit status is 1 if it does.

#![allow(clippy::print_stdout, reason = "a command prints its result")]

use std::process::ExitCode;

use bindery_invariants::Snapshot;
use serde_json::Value;

fn main() -> ExitCode {
    match violations() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the violations and returns their number.
fn violations() -> Result<usize, String> {
    let list: Value = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| format!("the standard input is not JSON: {error}"))?;
    let of_kind = |kind: &str| {
        let items = list["items"].as_array().into_iter().flatten();
        items.filter(|item| item["kind"] == kind).cloned().collect::<Vec<_>>()
    };
    let (volumes, claims) = (of_kind("PersistentVolume"), of_kind("PersistentVolumeClaim"));
    let snapshot = Snapshot::read(&volumes, &claims, &of_kind("StorageClass"))?;
    let violations = snapshot.violations();
    violations.iter().for_each(|violation| println!("{violation}"));
    let (volumes, claims) = snapshot.counts();
    println!("{volumes} volumes, {claims} claims, {} violations", violations.len());
    Ok(violations.len())
}
