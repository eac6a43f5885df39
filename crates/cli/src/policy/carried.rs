//! Golden cases that came with a module of a registry.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use bindery_policy::PolicyFault;
use bindery_registry::Extra;

use super::cases::{Case, File};
use super::judge::{ROWS_MAX, Tested};
use super::test::differences;

/// How long all cases of a module may take, and the case during which it ends. Who pushes a module could have
/// it judge without end.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Holds a policy against cases, as `bindery policy test` does. The error names the first case that fails,
/// with its first difference.
pub(crate) fn hold(policy: Tested<'_>, files: &[Extra]) -> Result<()> {
    let until = Instant::now() + TIME_MAX;
    for file in files {
        let parsed = parse(file).map_err(|why| anyhow!("golden cases: {why:#}"))?;
        for (line, case) in &parsed.cases {
            if let Some(difference) = difference(policy, case)? {
                bail!("golden case {}:{line}: {}: {difference}", file.name, case.title);
            }
            if Instant::now() > until {
                bail!("its golden cases take more than {TIME_MAX:?}; push fewer of them with it");
            }
        }
    }
    Ok(())
}

fn parse(Extra { name, bytes }: &Extra) -> Result<File> {
    let text = str::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
    File::parse(name.into(), text.to_owned())
}

/// How what the policy says first differs from what the case expects. The error says that the machine lacked
/// something, so that the policy could not be asked.
fn difference(policy: Tested<'_>, case: &Case) -> Result<Option<String>> {
    if case.volumes.len() > ROWS_MAX {
        return Ok(Some(format!("it has {} volumes; at most {ROWS_MAX} are allowed", case.volumes.len())));
    }
    match policy.answer(case) {
        Ok(answer) => Ok(differences(case.expect.as_ref(), &answer).into_iter().next()),
        Err(error) => match error.downcast_ref::<PolicyFault>() {
            Some(PolicyFault::Unavailable(_)) => Err(error),
            _ => Ok(Some(format!("{error:#}"))),
        },
    }
}
