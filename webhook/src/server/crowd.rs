//! Who is connected, and who has to go where one more wants to come in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::traffic::Traffic;

/// All that are connected.
pub(super) struct Crowd {
    members: Arc<Mutex<BTreeMap<u64, Arc<Member>>>>,
    next: AtomicU64,
    connections_max: usize,
    traffic: Arc<Traffic>,
}

/// One that is connected.
pub(super) struct Member {
    standing: Mutex<Standing>,
    /// Cancelled at the head of the first request.
    asked: CancellationToken,
    evicted: CancellationToken,
}

/// What a connection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    stage: Stage,
    since: Instant,
    /// Requests whose head has come, and that are not answered.
    begun: u32,
    /// Those of them that have come whole. Where there is one, the connection does not have to go. A head
    /// alone keeps no place: it costs its sender nothing, and an API server sends the body with it.
    whole: u32,
}

/// How far a connection has got, in the order in which they have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// No handshake yet.
    Greets,
    /// No whole request yet.
    Silent,
    /// A request came whole and was answered.
    Idle,
}

/// A place in the crowd, left when this is dropped.
pub(super) struct Place {
    id: u64,
    member: Arc<Member>,
    members: Arc<Mutex<BTreeMap<u64, Arc<Member>>>>,
    traffic: Arc<Traffic>,
}

/// A request under way, until this is dropped.
pub(super) struct Asking {
    member: Arc<Member>,
    is_whole: AtomicBool,
}

impl Crowd {
    pub(super) fn new(connections_max: usize, traffic: Arc<Traffic>) -> Self {
        Self { members: Arc::default(), next: AtomicU64::new(0), connections_max, traffic }
    }

    /// Lets one in; another one has to go where there are too many. `None` where all of them await answers.
    pub(super) fn admit(&self) -> Option<Place> {
        let mut members = lock(&self.members);
        if members.len() >= self.connections_max {
            self.traffic.shed_one();
            let standings = members.iter().map(|(id, member)| (*id, *lock(&member.standing)));
            let first_to_go = first_to_go(standings)?;
            let evicted = members.remove(&first_to_go)?;
            evicted.evicted.cancel();
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let standing = Mutex::new(Standing::new(Stage::Greets));
        let [asked, evicted] = [(); 2].map(|()| CancellationToken::new());
        let member = Arc::new(Member { standing, asked, evicted });
        members.insert(id, Arc::clone(&member));
        self.traffic.tell_connections(members.len());
        let (members, traffic) = (Arc::clone(&self.members), Arc::clone(&self.traffic));
        Some(Place { id, member, members, traffic })
    }

    /// Closes all connections, whatever they are about.
    pub(super) fn close_all(&self) {
        lock(&self.members).values().for_each(|member| member.evicted.cancel());
    }
}

impl Place {
    pub(super) fn member(&self) -> &Arc<Member> {
        &self.member
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut members = lock(&self.members);
        members.remove(&self.id);
        self.traffic.tell_connections(members.len());
    }
}

impl Standing {
    fn new(stage: Stage) -> Self {
        Self { stage, since: Instant::now(), begun: 0, whole: 0 }
    }
}

impl Member {
    /// The handshake is done, or there is none.
    pub(super) fn greeted(&self) {
        *lock(&self.standing) = Standing::new(Stage::Silent);
    }

    /// The head of a request has come, which is under way for as long as the answer of this is held.
    pub(super) fn ask(self: &Arc<Self>) -> Asking {
        self.asked.cancel();
        lock(&self.standing).begun += 1;
        Asking { member: Arc::clone(self), is_whole: AtomicBool::new(false) }
    }

    /// Since when no request has been under way; `None` where one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let standing = *lock(&self.standing);
        (standing.begun == 0).then_some(standing.since)
    }

    /// Ends when the first request has come.
    pub(super) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Ends when this one has to go.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Asking {
    /// The rest of the request has come.
    pub(super) fn came_whole(&self) {
        if !self.is_whole.swap(true, Ordering::Relaxed) {
            lock(&self.member.standing).whole += 1;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut standing = lock(&self.member.standing);
        standing.begun -= 1;
        // What never came whole leaves the connection where it was.
        if *self.is_whole.get_mut() {
            standing.whole -= 1;
            (standing.stage, standing.since) = (Stage::Idle, Instant::now());
        }
    }
}

/// Of those that await no answer: who has got least far, and of these who has for longest.
fn first_to_go(standings: impl Iterator<Item = (u64, Standing)>) -> Option<u64> {
    let may_go = standings.filter(|(_, standing)| standing.whole == 0);
    may_go.min_by_key(|(id, standing)| (standing.stage, standing.since, *id)).map(|(id, _)| id)
}

/// What is locked is whole at any moment, so a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn crowd(connections_max: usize) -> (Crowd, Arc<Traffic>) {
        let traffic = Arc::<Traffic>::default();
        (Crowd::new(connections_max, Arc::clone(&traffic)), traffic)
    }

    fn is_evicted(place: &Place) -> bool {
        place.member.evicted.is_cancelled()
    }

    #[test]
    fn who_has_got_least_far_goes_first_and_of_these_who_has_for_longest() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let crowd = [
            (1, Stage::Idle, 0, 0),
            (2, Stage::Silent, 1, 0),
            (3, Stage::Greets, 6, 0),
            (4, Stage::Silent, 0, 1),
            (5, Stage::Greets, 5, 0),
            (6, Stage::Silent, 0, 0),
        ];
        let standing = |stage, since, whole| Standing { stage, since: at(since), begun: 1, whole };
        let mut left: Vec<_> =
            crowd.map(|(id, stage, since, whole)| (id, standing(stage, since, whole))).into();
        let mut gone = Vec::new();
        while let Some(id) = first_to_go(left.iter().copied()) {
            left.retain(|(other, _)| *other != id);
            gone.push(id);
        }
        assert_eq!(gone, [5, 3, 6, 2, 1]);
    }

    #[test]
    fn one_more_than_there_may_be_closes_another() {
        let (crowd, traffic) = crowd(2);
        let (first, second) = (crowd.admit().unwrap(), crowd.admit().unwrap());
        first.member().greeted();
        let third = crowd.admit().unwrap();
        assert_eq!([&first, &second, &third].map(is_evicted), [false, true, false]);
        assert_eq!((traffic.connections(), traffic.shed()), (2, 1));
        drop(second);
        assert_eq!(traffic.connections(), 2);
        drop((first, third));
        assert_eq!(traffic.connections(), 0);
    }

    #[test]
    fn who_awaits_an_answer_is_not_closed_for_another() {
        let (crowd, traffic) = crowd(1);
        let place = crowd.admit().unwrap();
        place.member().greeted();
        let (first, second) = (place.member().ask(), place.member().ask());
        first.came_whole();
        second.came_whole();
        drop(first);
        assert!(crowd.admit().is_none());
        assert_eq!((traffic.connections(), traffic.shed()), (1, 1));
        drop(second);
        assert!(crowd.admit().is_some());
        assert!(is_evicted(&place));
    }

    #[test]
    fn a_head_whose_body_does_not_come_keeps_no_place_and_makes_nobody_younger() {
        let (crowd, _) = crowd(2);
        let (asks, idle) = (crowd.admit().unwrap(), crowd.admit().unwrap());
        asks.member().greeted();
        idle.member().greeted();
        let (head, request) = (asks.member().ask(), idle.member().ask());
        request.came_whole();
        // Told twice, as by the last of a body and by its end, it is one.
        request.came_whole();
        drop(request);
        assert_eq!([&asks, &idle].map(|place| place.member().idle_since().is_none()), [true, false]);
        let _other = crowd.admit().unwrap();
        assert_eq!([&asks, &idle].map(is_evicted), [true, false]);
        let since = idle.member().idle_since();
        drop(idle.member().ask());
        assert_eq!(idle.member().idle_since(), since);
        drop(head);
    }
}
