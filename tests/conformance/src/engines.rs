//! Both engines on every decision: one decides, the other decides again from the same answers.

use std::sync::Arc;
use std::sync::Mutex;

use bindery_core::{Cluster, Decision, Engine, EngineFault, Recorder, Replayer, Request};

/// An engine that decides as `leader` does, and checks that `follower` asks the same questions and decides
/// the same.
pub(crate) struct ComparedEngines {
    leader: Arc<dyn Engine>,
    follower: Arc<dyn Engine>,
    disagreements: Mutex<Vec<String>>,
}

impl ComparedEngines {
    /// An engine that compares these two.
    pub(crate) fn new(leader: Arc<dyn Engine>, follower: Arc<dyn Engine>) -> Self {
        Self { leader, follower, disagreements: Mutex::default() }
    }

    /// The disagreements since the last call.
    pub(crate) fn take_disagreements(&self) -> Vec<String> {
        std::mem::take(&mut self.disagreements.lock().expect("no holder of the lock panics"))
    }

    fn compare(&self, request: &Request, recorder: Recorder<'_>, decided: &Decision) {
        let exchanges = recorder.into_exchanges();
        let mut replayer = Replayer::new(&exchanges);
        let followed = self.follower.decide(request, &mut replayer);
        let difference = match followed {
            Ok(decision) if decision != *decided => format!("decides {decision:?} and not {decided:?}"),
            Ok(_) if !replayer.is_exhausted() => "asks fewer questions".to_owned(),
            Ok(_) => return,
            Err(fault) => format!("does not decide: {fault}"),
        };
        let difference = format!("{} {difference}", self.follower.digest());
        self.disagreements.lock().expect("no holder of the lock panics").push(difference);
    }
}

impl Engine for ComparedEngines {
    fn decide(&self, request: &Request, cluster: &mut dyn Cluster) -> Result<Decision, EngineFault> {
        let mut recorder = Recorder::new(cluster);
        let decision = self.leader.decide(request, &mut recorder)?;
        self.compare(request, recorder, &decision);
        Ok(decision)
    }

    fn digest(&self) -> &str {
        self.leader.digest()
    }
}
