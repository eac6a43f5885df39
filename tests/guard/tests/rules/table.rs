//! Tables of cases in text.
//!
//! ```text
//! sync volume v claim_ref=c/u-c phase=Bound
//! -> volume v Released
//!     release without proof | | prove-claim
//!     the claim is gone | live claim c absent | allowed
//! ```
//!
//! A line without indentation has a request and facts; the line with an arrow, the decision (see `actions`);
//! each line below, one case: its name, further facts, and what is expected. Facts are separated by
//! semicolons; [`Given::fact`] knows them. An object is the usual one of its name, changed by the words after
//! the name. Titles begin with `#`.

use std::sync::Arc;

use bindery_core::guard::Reclaim;
use bindery_core::{
    Answer, Claim, ClaimKey, Class, Decision, Fate, Handle, Lookup, MatchVerdict, Migration, Operation,
    PluginMatch, Pod, Point, Progress, Question, RECLAIM_POLICY_BEFORE, Request, Returned, Source, Subject,
    Uid, Volume, VolumeFact,
};
use bindery_kit::plugin;
use bindery_kit::words::{self, first};

use crate::actions;
use crate::case::{TestCase, World, claim, volume};

/// The plugin of an operation on a claim, unless a fact names another.
const PLUGIN: &str = "kubernetes.io/p";

/// A row of a table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) case: TestCase,
    pub(crate) expected: &'static str,
}

/// The rows of a table.
pub(crate) fn rows(table: &'static str) -> Vec<Row> {
    let row = |[name, facts, expected]: [&'static str; 3], given: &str, decided: &str| Row {
        name,
        case: case(&format!("{given}; {facts}"), decided),
        expected,
    };
    lines(table).into_iter().map(|(given, decided, columns)| row(columns, given, decided)).collect()
}

/// The lines of a table that have a case, each with what is given and what is decided.
pub(crate) fn lines(table: &'static str) -> Vec<(&'static str, &'static str, [&'static str; 3])> {
    let (mut given, mut decided, mut rows) = ("", "", Vec::new());
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(decision) = line.strip_prefix("->") {
            decided = decision;
        } else if line.starts_with(' ') {
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            let columns = columns.try_into().unwrap_or_else(|_| panic!("not three columns: {line}"));
            rows.push((given, decided, columns));
        } else {
            given = line;
        }
    }
    rows
}

/// The case of a request with facts, and of a decision.
pub(crate) fn case(given: &str, decided: &str) -> TestCase {
    let mut facts = parts(given);
    let mut given = Given::new(facts.next().expect("a request comes first"));
    facts.for_each(|fact| given.fact(fact));
    let mut case = given.0;
    case.decision = actions::decision(&case, parts(decided));
    case
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim).filter(|part| !part.is_empty())
}

/// A case before its decision.
struct Given(TestCase);

impl Given {
    /// A request: `sync`, `review` or the kind of an operation, and the object. A sync has read its object.
    fn new(text: &str) -> Self {
        let (verb, object) = first(text);
        let (kind, object) = first(object);
        let subject = match (verb, kind) {
            ("sync", "claim") => Subject::SyncClaim(a_claim(object).into()),
            ("sync", _) => Subject::SyncVolume(a_volume(object).into()),
            ("review", "claim") => Subject::ReviewClaim { new: a_claim(object).into(), old: None },
            ("review", _) => Subject::ReviewVolume { new: a_volume(object).into(), old: None },
            (_, "claim") => {
                let claim = a_claim(object);
                Subject::SyncClaimOperation(begun(verb, PLUGIN, claim.uid.clone(), claim))
            }
            (_, _) => {
                let volume = a_volume(object);
                Subject::SyncVolumeOperation(begun(verb, "", volume.uid.clone(), volume))
            }
        };
        let request = Request { now: 0, subject };
        let (exchanges, world) = (Vec::new(), World::default());
        let mut given = Self(TestCase { request, exchanges, decision: Decision::done(), world });
        if verb == "sync" {
            given.fact(&format!("{kind} {object}"));
        }
        given
    }

    /// Adds a fact: what the engine was told, what the world has, or how far the operation is.
    fn fact(&mut self, fact: &str) {
        let case = &mut self.0;
        let world = &mut case.world;
        let (what, rest) = first(fact);
        match (what, first(rest)) {
            // Read and there.
            ("claim", _) => case.read_claim(a_claim(rest)),
            ("volume", _) => case.read_volume(a_volume(rest)),
            // Read.
            ("told", ("claim", of)) => self.told_claim(Source::Overlay, of),
            ("live", ("claim", of)) => self.told_claim(Source::Live, of),
            ("told", ("volume", of)) => self.told_volume(Source::Overlay, of),
            ("live", ("volume", of)) => self.told_volume(Source::Live, of),
            ("told", ("class", of)) => {
                let (name, found) = lookup(of, a_class);
                case.tell(Question::Class(name.into()), Answer::Class(found));
            }
            // There.
            ("now", ("claim", of)) => {
                let (name, found) = lookup(of, a_claim);
                world.claims.insert(key(name), found);
            }
            ("now", ("volume", of)) => {
                let (name, found) = lookup(of, a_volume);
                world.volumes.insert(name.into(), found);
            }
            ("class", _) => {
                let (name, found) = lookup(rest, a_class);
                world.classes.insert(name.into(), found);
            }
            // Read live for the guard.
            ("proof", ("claim", of)) => {
                let (name, found) = lookup(of, a_claim);
                world.claim_proofs.insert(key(name), found);
            }
            ("proof", ("volume", of)) => {
                let (name, found) = lookup(of, a_volume);
                world.volume_proofs.insert(name.into(), found);
            }
            ("rejected" | "unjudged" | "failing", _) => self.policies_say(what, rest),
            ("policies", ("unasked", _)) => world.answers = Some(Ok(false)),
            ("policies", ("failing", _)) => world.answers = Some(Err("it trapped".to_owned())),
            ("fate" | "unasked" | "mute" | "before", _) => self.reclaimers_say(what, rest),
            ("own", _) => _ = world.own.insert(rest.into()),
            ("unsynced", _) => world.unsynced = true,
            ("offers-again", _) => world.offers_again = true,
            ("unread", _) => (case.exchanges, *world) = (Vec::new(), World::default()),
            // How far the operation is.
            ("operation", _) => {
                self.operation(|operation, _, _| *operation = words::changed(operation, rest))
            }
            ("at", _) => self.operation(|_, at, _| *at = words::point(rest)),
            ("returned", _) => self.operation(|_, _, returned| *returned = words::returned(rest)),
            ("was", _) => match &mut case.request.subject {
                Subject::ReviewClaim { old, .. } => *old = Some(a_claim(rest).into()),
                Subject::ReviewVolume { old, .. } => *old = Some(a_volume(rest).into()),
                _ => panic!("no review: {fact}"),
            },
            (_, (name, answer)) => self.told(what, name, answer),
        }
    }

    /// What the policies say about giving a volume to the claim.
    fn policies_say(&mut self, what: &str, volume: &str) {
        let verdict = match what {
            "rejected" => {
                Ok(Some(MatchVerdict::Rejected { policy: "own-zone".into(), reason: "another zone".into() }))
            }
            "unjudged" => Ok(None),
            _ => Err("it trapped".to_owned()),
        };
        self.0.world.verdicts.insert(volume.into(), verdict);
    }

    /// What the reclaimers say about a volume, or the reclaim policy that the synced volume had before a
    /// reclaimer set another one.
    fn reclaimers_say(&mut self, what: &str, rest: &str) {
        let case = &mut self.0;
        let (volume, fate) = first(rest);
        let reclaim = match what {
            "before" => {
                let Subject::SyncVolume(volume) = &mut case.request.subject else {
                    panic!("no sync of a volume: {rest}")
                };
                let noted = VolumeFact::Annotation(RECLAIM_POLICY_BEFORE.into());
                let uid = volume.claim_ref.as_ref().and_then(|claim_ref| claim_ref.uid.as_ref());
                let note = format!("{rest} {}", uid.expect("a claimRef with a UID"));
                Arc::make_mut(volume).facts.set(noted, Some(note.into()));
                let volume = Volume::clone(volume);
                case.exchanges.retain(|exchange| !matches!(exchange.question, Question::Volume(..)));
                return case.read_volume(volume);
            }
            "unasked" => Ok(None),
            "mute" => Err("it trapped".to_owned()),
            _ => {
                let (fate, allowed) = first(fate);
                let fate = match fate {
                    "keep" => Fate::Keep,
                    "keep-for" => Fate::KeepFor(1_000),
                    "delete" => Fate::Delete,
                    "recycle" => Fate::Recycle,
                    "offer-again" => Fate::OfferAgain,
                    other => panic!("no fate: {other}"),
                };
                Ok(Some(Reclaim { fate, is_allowed: allowed == "allowed" }))
            }
        };
        case.world.reclaims.insert(volume.into(), reclaim);
    }

    /// The engine was told something that is about no single claim, volume or class.
    fn told(&mut self, question: &str, name: &str, answer: &str) {
        let (word, rest) = first(answer);
        let (question, answer) = match question {
            "default-classes" => (Question::DefaultClasses, Answer::DefaultClasses(Ok(vec![name.into()]))),
            "plugin" => {
                let found = (word != "none").then(|| words::changed(&plugin(name), answer));
                (Question::Plugin(name.into()), Answer::Plugin(found))
            }
            "match" => {
                let found = (word != "none").then(|| words::changed(&plugin(word), rest));
                let found = found.map_or(PluginMatch::None, PluginMatch::One);
                (Question::PluginForVolume(name.into()), Answer::PluginMatch(found))
            }
            "verdict" => {
                let rejected = || MatchVerdict::Rejected { policy: "p".into(), reason: rest.into() };
                let verdict = if word == "allowed" { MatchVerdict::Allowed } else { rejected() };
                (Question::Verdict(name.into()), Answer::Verdict(verdict))
            }
            "migration" => {
                let migration = if word == "off" { Migration::Off } else { Migration::On(rest.into()) };
                (Question::Migration(name.into()), Answer::Migration(migration))
            }
            "provisioning" => (Question::DynamicProvisioning, Answer::DynamicProvisioning(name == "on")),
            "access-sets" => {
                let modes = words::access_modes(name);
                (Question::AccessSets(modes.iter().collect()), Answer::AccessSets(Vec::new()))
            }
            "pods" => {
                let pod = Pod { name: word.into(), scheduled: true, terminated: rest == "ended" };
                let pods = if word.is_empty() { Vec::new() } else { vec![pod] };
                (Question::Pods(key(name)), Answer::Pods(Ok(pods)))
            }
            "identified" => {
                let volume = a_volume(&format!("{name} {answer}"));
                (Question::Identify(Handle(0)), Answer::Identity(volume.target()))
            }
            "described" => {
                let volume = a_volume(&format!("{name} {answer}"));
                (Question::Describe(Handle(0)), Answer::Described(volume.into()))
            }
            _ => panic!("no fact: {question} {name} {answer}"),
        };
        self.0.tell(question, answer);
    }

    fn told_claim(&mut self, source: Source, of: &str) {
        let (name, found) = lookup(of, a_claim);
        self.0.tell(Question::Claim(source, key(name)), Answer::Claim(found));
    }

    fn told_volume(&mut self, source: Source, of: &str) {
        let (name, found) = lookup(of, a_volume);
        self.0.tell(Question::Volume(source, name.into()), Answer::Volume(found));
    }

    fn operation(&mut self, change: impl FnOnce(&mut Operation, &mut Point, &mut Returned)) {
        match &mut self.0.request.subject {
            Subject::SyncClaimOperation(p) => change(&mut p.operation, &mut p.point, &mut p.returned),
            Subject::SyncVolumeOperation(p) => change(&mut p.operation, &mut p.point, &mut p.returned),
            _ => panic!("no operation"),
        }
    }
}

/// The key of the claim of that name.
pub(crate) fn key(name: &str) -> ClaimKey {
    ClaimKey::new("ns", name)
}

fn begun<T>(kind: &str, plugin: &str, uid: Uid, object: T) -> Progress<T> {
    let operation = Operation { kind: words::case(kind), plugin: plugin.into(), uid };
    Progress { operation, object, fresh: None, point: Point::Start, returned: Returned::Success }
}

fn a_claim(text: &str) -> Claim {
    let (name, words) = first(text);
    words::changed(&claim(name), words)
}

fn a_volume(text: &str) -> Volume {
    let (name, words) = first(text);
    words::changed(&volume(name), words)
}

fn a_class(text: &str) -> Class {
    let (name, words) = first(text);
    words::changed(&bindery_kit::class(name, "p", None), words)
}

/// What became of a look-up: a name, and `absent`, `unreadable`, `failed` or the words of the object.
fn lookup<T>(text: &str, found: fn(&str) -> T) -> (&str, Lookup<Arc<T>>) {
    let (name, rest) = first(text);
    let result = match rest {
        "absent" => Lookup::Absent,
        "unreadable" => Lookup::Unreadable("spec is no object".into()),
        "failed" => Lookup::Failed("away".into()),
        _ => Lookup::Found(Arc::new(found(text))),
    };
    (name, result)
}
