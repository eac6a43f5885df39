//! What decides the records of a journal again, and answers again.

use std::sync::Arc;

use anyhow::Result;
use bindery_core::Engine;
use bindery_journal::Record;
use bindery_policy::{AskedAgain, Chain, PolicyEvidence};

use super::Arguments;
use super::answers::{Answers, ask};
use super::modules::Modules;
use super::with::With;
use crate::policies::Purpose;

/// What decides and answers again.
pub(super) struct Deciders {
    engine: Arc<dyn Engine>,
    pub(super) with: Option<With>,
    chain: Arc<Chain>,
    pub(super) modules: Option<Modules>,
}

impl Deciders {
    pub(super) fn new(arguments: &Arguments) -> Result<Self> {
        let Arguments { with, modules, registry, engine, policies, .. } = arguments;
        let with = with.load(engine, registry)?;
        let chain = policies.load(&engine.cache, Purpose::Show)?;
        let has_places = !modules.is_empty() || engine.cache.engine_cache.is_some();
        let modules = has_places.then(|| Modules::new(modules, engine, registry)).transpose()?;
        let engine = match &with {
            Some(With::Engine(engine)) => Arc::clone(engine),
            _ => engine.load()?,
        };
        Ok(Self { engine, with, chain, modules })
    }

    /// The answers to count; `None` if no policy is asked again.
    pub(super) fn answers(&self) -> Option<Answers> {
        let has_others = self.chain.is_loaded() || matches!(self.with, Some(With::Policy(..)));
        let answers = Answers::of(self.chain.digest());
        match has_others {
            true => Some(answers.with_effects()),
            false => self.modules.is_some().then_some(answers),
        }
    }

    /// The engine that decides a record again.
    pub(super) fn engine_of(&mut self, record: &Record) -> Arc<dyn Engine> {
        match (&mut self.modules, &self.with) {
            (Some(modules), None | Some(With::Policy(..))) => {
                modules.engine(&record.evidence.engine, &self.engine)
            }
            _ => Arc::clone(&self.engine),
        }
    }

    /// Asks policies again: the one of `--with`, the modules that are found, and those of the documents.
    pub(super) fn ask(&mut self, evidence: &PolicyEvidence) -> AskedAgain {
        let (mut rest, mut asked) = (evidence.clone(), AskedAgain::default());
        if let Some(With::Policy(name, policy)) = &self.with {
            asked.include(ask(policy, name, evidence));
            rest.matchers.retain(|it| *it.policy.name != **name);
            rest.reclaimers.retain(|it| *it.policy.name != **name);
        }
        if let Some(modules) = &mut self.modules {
            asked.include(modules.ask(&rest, &self.chain));
        } else if self.chain.is_loaded() {
            asked.include(rest.ask_again(&self.chain));
        }
        asked
    }
}
