//! Tries a component before it is put into effect, so that one that always fails never decides about a claim.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bindery_core::Engine;
use serde_json::{Map, Value};

use crate::manifest;
use crate::plan::load;
use crate::plan::planner::Planner;
use crate::policy::judge::Tested;
use crate::policy::questions;

/// The objects that an engine decides.
const OBJECTS: &str = include_str!("trial.yaml");

/// Asks a policy about a claim and volumes with all facts that it declares, and without any. The error names
/// the function that failed.
pub(super) fn policy(policy: Tested<'_>, settings: &Map<String, Value>) -> Result<()> {
    let object = match policy {
        Tested::Matcher(_) => "claim",
        Tested::Reclaimer(_) => "volume",
    };
    for (with_facts, facts) in [(true, "all facts that it declares"), (false, "no facts")] {
        let asked = |function: &str| format!("{function}, asked about a made-up {object} with {facts}");
        let question = questions::generated(policy, settings, with_facts);
        let question = question.with_context(|| asked("narrow"))?;
        question.narrow().with_context(|| asked("narrow"))?;
        if question.has_rows() {
            question.judge().with_context(|| asked("judge"))?;
        }
    }
    Ok(())
}

/// Has an engine decide the objects. The guard must refuse no decision.
pub(super) fn engine(engine: Arc<dyn Engine>) -> Result<()> {
    let objects = load::sort(manifest::parse("the trial", OBJECTS)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let planner = Planner::new(engine, Arc::default(), objects).await?;
        planner.settle().await?;
        match planner.first_error() {
            Some((key, why)) => bail!("{key}: {why}"),
            None => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use bindery_kit::{AllowsAll, ByLabel, Fails, keeps_labelled};
    use bindery_policy::PolicyFault;

    use super::*;

    #[test]
    fn a_policy_that_fails_is_told_with_the_function_and_the_question() {
        let why = |tested| policy(tested, &Map::new()).err().map(|why| format!("{why:#}"));
        assert_eq!(why(Tested::Matcher(&AllowsAll)), None);
        let told =
            "narrow, asked about a made-up claim with all facts that it declares: it trapped: unreachable";
        assert_eq!(why(Tested::Matcher(&Fails)).as_deref(), Some(told));

        let answers = keeps_labelled();
        let fails = ByLabel(|_| Err(PolicyFault::Trapped("unreachable".to_owned())));
        assert_eq!(why(Tested::Reclaimer(&answers)), None);
        let told =
            "judge, asked about a made-up volume with all facts that it declares: it trapped: unreachable";
        assert_eq!(why(Tested::Reclaimer(&fails)).as_deref(), Some(told));
    }
}
