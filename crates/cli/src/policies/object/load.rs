//! Loads the modules of objects, and tries them.

use std::sync::Arc;

use anyhow::{Context as _, Error, anyhow};
use bindery_core::{Engine as _, EngineFault};
use bindery_host::{ComponentEngine, Limits, LoadError};
use bindery_policy::{ENGINE, EngineDocument, ObservedEngine, PolicyFault};
use bindery_registry::Extra;
use serde_json::Value;

use super::super::{Document, parse};
use super::{Cause, Effect, Fault, Hosts, trial};
use crate::policy::carried;
use crate::policy::judge::Tested;

/// Reads and checks an object; none for an engine, which has no settings.
pub(super) fn document(object: &Value) -> Result<Option<Document>, Fault> {
    let invalid = |error: Error| Fault { cause: Cause::Invalid, why: format!("{error:#}") };
    if object["kind"] == ENGINE {
        let document = parse::<EngineDocument>(object).map_err(invalid)?;
        document.check().map_err(|why| invalid(anyhow!(why)))?;
        return Ok(None);
    }
    Document::of(object).map(Some).map_err(invalid)
}

/// A fault with this cause, unless the machine lacked something: then it is tried again.
fn fault(cause: Cause) -> impl Fn(Error) -> Fault {
    move |error: Error| {
        let is_of_machine = matches!(error.downcast_ref::<LoadError>(), Some(LoadError::Unavailable(_)))
            || matches!(error.downcast_ref::<PolicyFault>(), Some(PolicyFault::Unavailable(_)))
            || matches!(error.downcast_ref::<EngineFault>(), Some(EngineFault::Unavailable(_)));
        let cause = if is_of_machine { Cause::CompilerFailed } else { cause };
        Fault { cause, why: format!("{error:#}") }
    }
}

/// Loads the module of an object, checks its settings, and tries it, also by the golden cases that came with
/// it.
pub(super) fn load(
    object: &Value,
    module: &[u8],
    cases: &[Extra],
    hosts: &Hosts,
) -> Result<(Effect, String), Fault> {
    let Some(document) = document(object)? else {
        let limits = Limits::default();
        let engine = hosts.engines.load(module, limits);
        let engine = engine.map_err(Error::from).map_err(fault(Cause::ModuleInvalid))?;
        let digest = engine.digest().to_owned();
        let engine = Arc::new(engine);
        trial::engine(Arc::<ComponentEngine>::clone(&engine)).map_err(fault(Cause::TrialFailed))?;
        return Ok((Effect::Engine(Arc::new(ObservedEngine::new(engine))), digest));
    };
    let policy = hosts.policies.load(module, Limits::policy()).map_err(Error::from);
    let policy = policy.map_err(fault(Cause::ModuleInvalid))?;
    let digest = policy.digest().to_owned();
    let checked = Tested::from(&policy).checked(document.settings()).context("it did not check its settings");
    let checked = checked.map_err(fault(Cause::ModuleInvalid))?;
    checked.map_err(|why| fault(Cause::SettingsInvalid)(anyhow!(why)))?;
    trial::policy(Tested::from(&policy), document.settings()).map_err(fault(Cause::TrialFailed))?;
    carried::hold(Tested::from(&policy), cases).map_err(fault(Cause::TrialFailed))?;
    let effect = document.load(Ok(policy)).map_err(fault(Cause::ModuleInvalid))?;
    Ok((effect, digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_the_machine_could_not_run_is_tried_again() {
        let lacks = || "no memory".to_owned();
        for of_machine in [
            Error::new(LoadError::Unavailable(lacks())),
            Error::new(PolicyFault::Unavailable(lacks())).context("it did not check its settings"),
            Error::new(EngineFault::Unavailable(lacks())).context("persistentvolume v: no decision"),
        ] {
            let Fault { cause, why } = fault(Cause::TrialFailed)(of_machine);
            assert!(cause == Cause::CompilerFailed && why.contains("no memory"), "{cause:?}: {why}");
        }
        for of_module in [
            Error::new(LoadError::NotWasm),
            Error::new(PolicyFault::Trapped(lacks())),
            Error::new(EngineFault::BadAnswer(lacks())),
            anyhow!(PolicyFault::Unavailable(lacks()).to_string()),
        ] {
            assert_eq!(fault(Cause::TrialFailed)(of_module).cause, Cause::TrialFailed);
        }
    }
}
