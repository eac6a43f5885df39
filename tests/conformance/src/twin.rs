//! Both engines on every decision: one decides, the other replays with the first one's answers.

use std::sync::Arc;
use std::sync::Mutex;

use bindery_core::{Cluster, Decision, Engine, EngineFault, Recorder, Replayer, Request};

/// An engine that decides as `leader` does and checks that `follower` would have asked and decided the same.
pub(crate) struct Twin {
    leader: Arc<dyn Engine>,
    follower: Arc<dyn Engine>,
    disagreements: Mutex<Vec<String>>,
}

impl Twin {
    /// Lets `leader` decide and `follower` replay.
    pub(crate) fn new(leader: Arc<dyn Engine>, follower: Arc<dyn Engine>) -> Self {
        Self { leader, follower, disagreements: Mutex::default() }
    }

    /// What the two disagreed about since the last call.
    pub(crate) fn take_disagreements(&self) -> Vec<String> {
        std::mem::take(&mut self.disagreements.lock().expect("no holder of the lock panics"))
    }

    fn compare(&self, request: &Request, recorder: Recorder<'_>, decided: &Decision) {
        let exchanges = recorder.into_exchanges();
        let mut replayer = Replayer::new(&exchanges);
        let followed = self.follower.decide(request, &mut replayer);
        let complaint = match followed {
            Ok(decision) if decision != *decided => format!("decides {decision:?} and not {decided:?}"),
            Ok(_) if !replayer.is_exhausted() => "asks fewer questions".to_owned(),
            Ok(_) => return,
            Err(fault) => format!("does not decide: {fault}"),
        };
        let complaint = format!("{} {complaint}", self.follower.digest());
        self.disagreements.lock().expect("no holder of the lock panics").push(complaint);
    }
}

impl Engine for Twin {
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
