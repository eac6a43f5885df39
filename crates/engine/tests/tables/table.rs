//! Tables of decisions in text.
//!
//! ```text
//! # U4: nothing fits, and no class provisions.
//! sync claim c
//!     volume v capacity=1Gi | Normal FailedBinding on c; done
//! ```
//!
//! A line without indentation has a request and facts; each line below, one case: further facts, the decision
//! ([`lines`](crate::lines)), and where it matters the questions of the engine, in order. Facts are separated
//! by semicolons and change a [`ListCluster`]; [`Given::fact`] knows them. An object is the usual one of its
//! name, changed by the words after the name; `bound=VOLUME` makes a claim bound, with its status.

use bindery_core::{
    Claim, ClaimKey, Class, Decision, Fate, Migration, Operation, PluginMatch, Pod, Point, Progress,
    Returned, Subject, Volume,
};
use bindery_kit::words::{self, first};
use bindery_kit::{gib, plugin};

use crate::cluster::ListCluster;
use crate::{decide, lines};

/// A case of a table.
struct Row {
    title: &'static str,
    given: String,
    decided: &'static str,
    asked: Option<&'static str>,
}

fn rows(table: &'static str) -> Vec<Row> {
    let (mut title, mut given, mut rows) = ("", "", Vec::new());
    for line in table.lines().filter(|line| !line.is_empty()) {
        if let Some(text) = line.strip_prefix("# ") {
            title = text;
        } else if line.starts_with(' ') {
            let mut columns = line.split('|').map(str::trim);
            let given = format!("{given}; {}", columns.next().unwrap_or_default());
            let decided = columns.next().unwrap_or_else(|| panic!("no decision: {line}"));
            rows.push(Row { title, given, decided, asked: columns.next() });
        } else {
            given = line;
        }
    }
    rows
}

/// Decides every case of a table.
///
/// # Panics
///
/// A decision is not the table's; the message has all of them.
#[track_caller]
pub(crate) fn check(table: &'static str) {
    let mut wrong = String::new();
    for Row { title, given, decided, asked } in rows(table) {
        let (decision, questions) = self::decided(&given);
        let (found, questions) = (lines::decision(&decision).join("; "), questions.join("; "));
        if found != decided || asked.is_some_and(|asked| asked != questions) {
            wrong += &format!("{title}\n  {given}\n    {found} | {questions}\n");
        }
    }
    assert!(wrong.is_empty(), "these decisions differ:\n{wrong}");
}

/// The decision of a case, and the questions.
pub(crate) fn decided(given: &str) -> (Decision, Vec<String>) {
    let mut facts = given.split(';').map(str::trim).filter(|fact| !fact.is_empty());
    let mut given = Given::new(facts.next().expect("a request comes first"));
    facts.for_each(|fact| given.fact(fact));
    given.place_volume();
    let decision = decide(&mut given.cluster, given.subject);
    (decision, given.cluster.asked)
}

/// A request and a cluster.
struct Given {
    subject: Subject,
    cluster: ListCluster,
}

impl Given {
    /// A request: `sync`, `review` or the kind of an operation, and the object.
    fn new(text: &str) -> Self {
        let (verb, object) = first(text);
        let (kind, object) = first(object);
        let subject = match (verb, kind) {
            ("sync", "claim") => Subject::SyncClaim(claim(object).into()),
            ("sync", _) => Subject::SyncVolume(volume(object).into()),
            ("review", "claim") => Subject::ReviewClaim { new: claim(object).into(), old: None },
            ("review", _) => Subject::ReviewVolume { new: volume(object).into(), old: None },
            (_, "claim") => {
                let plugin = if verb == "Provision" { PLUGIN } else { "vendor.example/disk" };
                Subject::SyncClaimOperation(begun(verb, plugin, claim(object)))
            }
            (_, _) => {
                let volume = volume(object);
                Subject::SyncVolumeOperation(Progress {
                    fresh: Some(volume.clone()),
                    ..begun(verb, "", volume)
                })
            }
        };
        Self { subject, cluster: ListCluster::new([], []) }
    }

    /// Adds a fact about the cluster, or how far the operation is.
    fn fact(&mut self, fact: &str) {
        let cluster = &mut self.cluster;
        let (what, rest) = first(fact);
        match (what, rest) {
            ("claim", _) => cluster.claims.push(claim(rest)),
            ("volume", _) => cluster.volumes.push(volume(rest)),
            ("cached", _) => cluster.cached_claims.push(claim(first(rest).1)),
            ("live", "no-claim") => cluster.live_claims = Some(Vec::new()),
            ("live", "no-volume") => cluster.live_volumes = Some(Vec::new()),
            ("live", _) => match first(rest) {
                ("claim", of) => cluster.live_claims.get_or_insert_default().push(claim(of)),
                (_, of) => cluster.live_volumes.get_or_insert_default().push(volume(of)),
            },
            ("live-error", _) => cluster.live_error = Some("timeout"),
            ("unreadable", _) => cluster.unreadable.push(rest.to_owned()),
            ("class", _) => cluster.classes.push(class(rest)),
            ("pod", _) => {
                let (name, words) = first(rest);
                let pod = Pod { name: name.into(), scheduled: false, terminated: false };
                cluster.pods.as_mut().expect("no error before").push(words::changed(&pod, words));
            }
            ("pods-error", _) => cluster.pods = Err("the index is gone".into()),
            ("plugin", _) => {
                let (name, words) = first(rest);
                cluster.plugins.push(words::changed(&plugin(name), words));
            }
            ("plugins-match", _) => {
                cluster.plugin_match =
                    Some(PluginMatch::Several(rest.split_whitespace().map(Into::into).collect()));
            }
            ("not-ready", _) => cluster.not_ready = Some(rest.to_owned()),
            ("migration", "untranslatable") => cluster.migration = Migration::Untranslatable,
            ("migration", driver) => cluster.migration = Migration::On(driver.into()),
            ("no-provisioning", _) => cluster.dynamic_provisioning = false,
            ("operation", state) => cluster.operation = words::case(state),
            ("in-flight", _) => cluster.in_flight.push(rest.into()),
            ("rejected", _) => cluster.rejected.push(rest.into()),
            ("fate", "KeepFor") => cluster.fate = Fate::KeepFor(60_000),
            ("fate", fate) => cluster.fate = words::case(fate),
            ("at", _) | ("returned", _) | ("was", _) => self.request(what, rest),
            _ => panic!("no fact: {fact}"),
        }
    }

    /// The volume of an operation is in the cluster as it is, unless a fact says otherwise.
    fn place_volume(&mut self) {
        if let (Subject::SyncVolumeOperation(progress), []) = (&self.subject, &self.cluster.volumes[..]) {
            self.cluster.volumes = vec![progress.object.clone()];
        }
    }

    /// Changes the request: how far the operation is, or the object before the review.
    fn request(&mut self, what: &str, rest: &str) {
        let (point, returned) = match &mut self.subject {
            Subject::SyncClaimOperation(progress) => (&mut progress.point, &mut progress.returned),
            Subject::SyncVolumeOperation(progress) => (&mut progress.point, &mut progress.returned),
            Subject::ReviewClaim { old, .. } => return *old = Some(claim(rest).into()),
            Subject::ReviewVolume { old, .. } => return *old = Some(volume(rest).into()),
            Subject::SyncClaim(_) | Subject::SyncVolume(_) => panic!("a sync has no {what}"),
        };
        if what == "at" {
            *point = words::point(rest);
        } else {
            *returned = words::returned(rest);
        }
    }
}

/// The in-tree plugin that provisions.
const PLUGIN: &str = "kubernetes.io/mock";

fn begun<T>(kind: &str, plugin: &str, object: T) -> Progress<T> {
    let operation = Operation { kind: words::case(kind), plugin: plugin.into(), uid: "uid".into() };
    Progress { operation, object, fresh: None, point: Point::Start, returned: Returned::Success }
}

/// What `bound=` stands for.
const BOUND: &str = "bind_completed status.phase=Bound status.access_modes=RWO status.has_capacity \
                     status.capacity=5Gi volume_name=";

/// A pending claim in namespace `ns` for 5Gi with ReadWriteOnce and no class, changed.
pub(crate) fn claim(text: &str) -> Claim {
    let (name, words) = first(text);
    let claim = Claim { request: gib(5), ..bindery_kit::claim(ClaimKey::new("ns", name)) };
    words::changed(&claim, &words.replace("bound=", BOUND))
}

/// An available 5Gi volume with ReadWriteOnce and no class, changed.
pub(crate) fn volume(text: &str) -> Volume {
    let (name, words) = first(text);
    let volume = Volume { capacity: Some(gib(5)), ..bindery_kit::volume(name) };
    words::changed(&volume, words)
}

/// A class of an external provisioner with immediate binding, changed.
fn class(text: &str) -> Class {
    let (name, words) = first(text);
    let immediate = Some(bindery_core::BindingMode::Immediate);
    words::changed(&bindery_kit::class(name, "vendor.example/disk", immediate), words)
}
