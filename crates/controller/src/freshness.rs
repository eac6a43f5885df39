//! How current the watch of each kind is, and the lists that the binder asks of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bindery_core::Version;
use bindery_store::{Kind, is_newer};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The state of every kind's watch. The watches report to it; takeovers, metrics and decisions read it.
///
/// A replica decides on caches that watches fill. A watch whose connection died silently leaves its cache
/// stale, so callers that must not act on a stale cache wait here until the watch has reached a version, or
/// ask for a new list.
///
/// A version lower than one that was known when it was asked for means that etcd was restored to an earlier
/// state (see [`Regression`]). The versions of one kind are compared with each other only: a kind may have an
/// etcd of its own.
#[derive(Debug, Default)]
pub struct Freshness {
    kinds: [KindFreshness; Kind::ALL.len()],
    /// The version of the Lease, as it was last read or written.
    lease: Mutex<Option<Version>>,
    /// How often versions went back.
    regressions: AtomicU64,
    /// How they did the last time.
    regression: watch::Sender<Option<Regression>>,
}

/// Notifies of versions that went back.
pub type Regressions = watch::Receiver<Option<Regression>>;

/// A version that went back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "resource versions went back, as after a restore of etcd: {kind} was at {}, and is at {}",
    known.0,
    told.0
)]
pub struct Regression {
    /// The kind of object that the versions are of.
    pub kind: &'static str,
    /// The version that was known.
    pub known: Version,
    /// The lower version that came afterwards.
    pub told: Version,
}

/// The version known of a kind when a request was sent. The answer has no lower version, unless etcd was
/// restored.
#[derive(Clone, Debug)]
pub struct Sent {
    kind: Kind,
    known: Option<Version>,
    /// How often versions had gone back. A version that was known before a restore is not compared with one
    /// from after it.
    regressions: u64,
}

/// The freshness of one kind.
#[derive(Debug, Default)]
struct KindFreshness {
    heard: watch::Sender<Heard>,
    /// The highest version in an answer to a read or a write. The watch may not have reached it.
    answered: Mutex<Option<Version>>,
    lists: watch::Sender<Requests>,
    /// Notified when a bookmark is wanted.
    bookmarks: Notify,
}

/// What a watch has told last.
#[derive(Clone, Debug, Default)]
struct Heard {
    /// When the last bytes came, of any kind.
    at: Option<Instant>,
    /// The version that the cache has reached: that of the last list, event or bookmark.
    version: Option<Version>,
}

/// Requests for a list, by number: each raises `wanted`. A list serves all requests that were made before it
/// began.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    wanted: u64,
    /// The number of requests before the last list began.
    begun: u64,
    served: u64,
    /// Whether a list has begun and is not complete.
    is_listing: bool,
}

impl Heard {
    fn has_reached(&self, version: &Version) -> bool {
        self.version.as_ref().is_some_and(|at| !is_newer(version, at))
    }
}

impl Freshness {
    /// Bytes have come on the kind's watch or list.
    pub fn heard(&self, kind: Kind) {
        self.of(kind).heard.send_if_modified(|heard| {
            heard.at = Some(Instant::now());
            false
        });
    }

    /// Records the version of an event. Events of one watch come in the order of their versions, so an older
    /// one is ignored.
    pub fn advanced(&self, kind: Kind, version: &Version) {
        self.of(kind).heard.send_modify(|heard| {
            heard.at = Some(Instant::now());
            if !heard.has_reached(version) {
                heard.version = Some(version.clone());
            }
        });
    }

    /// Records that the cache of the kind has reached a version, by a bookmark or a complete list. Returns
    /// whether the version went back. Must be called in the order in which the versions came: within one
    /// watch they only grow, a watch has no version below the one that it was opened from, and lists are
    /// consistent.
    pub(crate) fn reached(&self, kind: Kind, version: &Version) -> Option<Regression> {
        let mut known = None;
        self.of(kind).heard.send_modify(|heard| {
            heard.at = Some(Instant::now());
            known = heard.version.replace(version.clone());
        });
        regression(kind.name(), known, version)
    }

    /// Records the version of the Lease from a consistent read or a write. Returns whether it went back. Must
    /// be called in the order in which the versions came.
    pub(crate) fn lease_reached(&self, version: &Version) -> Option<Regression> {
        let known = self.lease.lock().replace(version.clone());
        regression("Lease", known, version)
    }

    /// The state of a kind before a request is sent whose answer has a current version: that of a consistent
    /// list, or of an object that the request writes.
    pub fn sent(&self, kind: Kind) -> Sent {
        let answered = self.of(kind).answered.lock().clone();
        let known = match (self.version(kind), answered) {
            (Some(reached), Some(answered)) if is_newer(&answered, &reached) => Some(answered),
            (reached, answered) => reached.or(answered),
        };
        Sent { kind, known, regressions: self.regressions.load(Ordering::SeqCst) }
    }

    /// Whether the version in the answer to a request went back.
    pub(crate) fn answered(&self, sent: &Sent, version: &Version) -> Option<Regression> {
        let is_comparable = sent.regressions == self.regressions.load(Ordering::SeqCst);
        let mut answered = self.of(sent.kind).answered.lock();
        if is_comparable && answered.as_ref().is_none_or(|known| is_newer(version, known)) {
            *answered = Some(version.clone());
        }
        drop(answered);
        regression(sent.kind.name(), sent.known.clone().filter(|_| is_comparable), version)
    }

    /// Versions went back: forgets all known versions, and requests a list of every kind.
    pub(crate) fn go_back(&self, regression: Regression) {
        *self.lease.lock() = None;
        for kind in Kind::ALL {
            *self.of(kind).answered.lock() = None;
            self.of(kind).heard.send_modify(|heard| heard.version = None);
            self.want_list(kind);
        }
        // Afterwards, so that requests sent before do not count.
        self.regressions.fetch_add(1, Ordering::SeqCst);
        self.regression.send_replace(Some(regression));
    }

    /// Subscribes to versions that go back from now on.
    pub fn regressions(&self) -> Regressions {
        self.regression.subscribe()
    }

    /// Time since the last bytes of the kind's watch; `None` before the first.
    pub fn age(&self, kind: Kind) -> Option<Duration> {
        self.of(kind).heard.borrow().at.map(|at| at.elapsed())
    }

    /// The version that the cache of the kind has reached; `None` before the first list.
    pub fn version(&self, kind: Kind) -> Option<Version> {
        self.of(kind).heard.borrow().version.clone()
    }

    /// Whether the cache of the kind has reached a version.
    pub fn has_reached(&self, kind: Kind, version: &Version) -> bool {
        self.of(kind).heard.borrow().has_reached(version)
    }

    /// Waits until the cache of the kind has reached a version.
    pub async fn until_reached(&self, kind: Kind, version: &Version) {
        let mut heard = self.of(kind).heard.subscribe();
        // The sender lives as long as this, so receiving cannot fail.
        let _ = heard.wait_for(|heard| heard.has_reached(version)).await;
    }

    /// Requests a new list of the kind. While a requested list has not begun, another request changes
    /// nothing.
    pub fn want_list(&self, kind: Kind) {
        self.of(kind).lists.send_modify(|lists| lists.wanted += 1);
    }

    /// Whether a list of the kind was asked for and is not complete.
    pub fn is_list_wanted(&self, kind: Kind) -> bool {
        let lists = self.of(kind).lists.borrow();
        lists.served < lists.wanted
    }

    /// Whether a list of the kind has begun and is not complete.
    pub(crate) fn is_listing(&self, kind: Kind) -> bool {
        self.of(kind).lists.borrow().is_listing
    }

    /// Waits until a list of the kind is wanted. Then the kind's watch stops and lists.
    pub async fn until_list_wanted(&self, kind: Kind) {
        let mut lists = self.of(kind).lists.subscribe();
        let _ = lists.wait_for(|lists| lists.served < lists.wanted).await;
    }

    /// A consistent list of the kind is about to be requested.
    pub(crate) fn list_begins(&self, kind: Kind) {
        self.of(kind).lists.send_modify(|lists| (lists.begun, lists.is_listing) = (lists.wanted, true));
    }

    /// The list that began last is complete and in the store.
    pub(crate) fn list_complete(&self, kind: Kind) {
        self.of(kind).lists.send_modify(|lists| {
            (lists.served, lists.is_listing) = (lists.served.max(lists.begun), false);
        });
    }

    /// Waits until no list of the kind is wanted.
    pub async fn until_listed(&self, kind: Kind) {
        let mut lists = self.of(kind).lists.subscribe();
        let _ = lists.wait_for(|lists| lists.served >= lists.wanted).await;
    }

    /// Requests a bookmark of the kind within seconds. Otherwise an idle watch gets one each minute.
    pub fn want_bookmark(&self, kind: Kind) {
        self.of(kind).bookmarks.notify_one();
    }

    /// Waits until a bookmark is wanted: the kind's watch then asks the server for one.
    pub async fn until_bookmark_wanted(&self, kind: Kind) {
        self.of(kind).bookmarks.notified().await;
    }

    fn of(&self, kind: Kind) -> &KindFreshness {
        &self.kinds[kind as usize]
    }
}

fn regression(kind: &'static str, known: Option<Version>, told: &Version) -> Option<Regression> {
    let known = known.filter(|known| is_newer(known, told))?;
    Some(Regression { kind, known, told: told.clone() })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_serves_the_requests_made_before_it_began() {
        let freshness = Freshness::default();
        freshness.want_list(Kind::Volume);
        freshness.list_begins(Kind::Volume);
        freshness.want_list(Kind::Volume);
        freshness.list_complete(Kind::Volume);
        assert!(freshness.is_list_wanted(Kind::Volume), "the second request came after the list began");
        assert!(!freshness.is_list_wanted(Kind::Claim));
        assert!(freshness.until_listed(Kind::Volume).now_or_never().is_none());
        freshness.list_begins(Kind::Volume);
        freshness.list_complete(Kind::Volume);
        assert!(freshness.until_listed(Kind::Volume).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_reaches_versions_by_number() {
        let freshness = Freshness::default();
        assert_eq!(freshness.age(Kind::Volume), None);
        assert_eq!(freshness.reached(Kind::Volume, &Version::from("9")), None);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(freshness.age(Kind::Volume), Some(Duration::from_secs(7)));
        let reached = |version: &str| {
            freshness.until_reached(Kind::Volume, &Version::from(version)).now_or_never().is_some()
        };
        assert!(reached("9"));
        assert!(!reached("10"), "10 is more than 9, though not as text");
        freshness.heard(Kind::Volume);
        assert_eq!(freshness.age(Kind::Volume), Some(Duration::ZERO));
        assert_eq!(freshness.version(Kind::Volume), Some(Version::from("9")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_older_than_a_version_known_at_the_request_went_back() {
        let freshness = Freshness::default();
        let [old, known, own] = ["7", "100", "103"].map(Version::from);
        let early = freshness.sent(Kind::Volume);
        assert_eq!(freshness.reached(Kind::Volume, &known), None);
        let late = freshness.sent(Kind::Volume);
        assert_eq!(
            freshness.answered(&early, &old),
            None,
            "it may have been answered before 100 was written"
        );
        assert_eq!(freshness.answered(&late, &own), None);
        let afterwards = freshness.sent(Kind::Volume);
        let regression = freshness.answered(&afterwards, &known).expect("the own write had a higher version");
        assert_eq!((&regression.known, &regression.told), (&own, &known));
        assert_eq!(freshness.answered(&late, &Version::from("opaque")), None);
        assert_eq!(freshness.reached(Kind::Claim, &old), None, "the kinds' versions are not compared");
        let regression = freshness.answered(&late, &old).expect("7 is lower than 100");
        assert_eq!((&regression.known, &regression.told), (&known, &old));
        assert_eq!(freshness.reached(Kind::Volume, &old).as_ref(), Some(&regression));
        assert_eq!(freshness.lease_reached(&known), None);
        assert!(freshness.lease_reached(&old).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_restore_every_kind_is_listed_and_old_versions_are_forgotten() {
        let freshness = Freshness::default();
        let [old, known] = ["7", "100"].map(Version::from);
        freshness.reached(Kind::Volume, &known);
        freshness.reached(Kind::Node, &known);
        freshness.lease_reached(&known);
        let sent = freshness.sent(Kind::Node);
        let regression = freshness.reached(Kind::Volume, &old).expect("7 is lower than 100");
        freshness.go_back(regression.clone());
        assert_eq!(*freshness.regressions().borrow(), Some(regression));
        assert!(Kind::ALL.into_iter().all(|kind| freshness.is_list_wanted(kind)));
        assert!(freshness.until_reached(Kind::Node, &old).now_or_never().is_none());
        assert_eq!(freshness.reached(Kind::Node, &old), None);
        assert_eq!(freshness.answered(&sent, &old), None);
        assert_eq!(freshness.lease_reached(&old), None);
    }
}
