//! The order of turns, backoff and timers.

use super::*;

fn key(name: &str) -> Key {
    Key::Volume(name.into())
}

fn queue() -> Arc<Queue> {
    Arc::default()
}

/// The next turn, which comes within an hour.
async fn next(queue: &Arc<Queue>) -> KeyLock {
    tokio::time::timeout(Duration::from_secs(3_600), queue.next()).await.expect("a key is added")
}

async fn idle(queue: &Arc<Queue>) -> bool {
    tokio::time::timeout(Duration::ZERO, queue.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_once_and_has_one_turn_in_flight() {
    let queue = queue();
    queue.add_all([key("a"), key("b"), key("a")]);
    assert_eq!(queue.len(), 2);
    let a = next(&queue).await;
    assert_eq!(*a.key(), key("a"));
    queue.add(key("a"));
    let b = next(&queue).await;
    assert_eq!(*b.key(), key("b"));
    assert!(idle(&queue).await);
    drop(a);
    let a = next(&queue).await;
    assert_eq!(*a.key(), key("a"));
    drop(a);
    assert!(idle(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_deferred_key_waits_once_and_lets_others_pass() {
    let queue = queue();
    queue.add_all([key("a"), key("b")]);
    next(&queue).await.defer();
    queue.add(key("a"));
    assert_eq!((queue.has_deferred(), queue.len()), (true, 2));
    let b = next(&queue).await;
    assert_eq!(*b.key(), key("b"));
    assert!(idle(&queue).await);
    let a = queue.next_deferred().expect("it is deferred");
    assert_eq!((a.key(), queue.has_deferred()), (&key("a"), false));
    // An operation has taken the lock meanwhile.
    a.defer();
    let operation = queue.lock(&key("a")).await;
    assert!(queue.next_deferred().is_none());
    drop(operation);
    drop(next(&queue).await);
    assert!(idle(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_no_key_would_take_is_not_kept() {
    let queue = queue();
    queue.add_all_to([(key("a"), Lane::Fast), (key("b"), Lane::Slow)]);
    let taken = next(&queue).await;
    queue.failed(&key("c"), None);
    queue.close();
    queue.add_all_to([(key("d"), Lane::Fast), (key("e"), Lane::Slow)]);
    queue.add_after(key("f"), Timer::Requeue, Duration::ZERO);
    queue.add(taken.key().clone());
    drop(taken);
    assert!(queue.len() == 0 && idle(&queue).await);
    queue.open();
    assert!(idle(&queue).await);
    queue.add(key("g"));
    assert_eq!(*next(&queue).await.key(), key("g"));
}

#[tokio::test(start_paused = true)]
async fn what_a_list_brings_waits_behind_what_changes_and_is_not_forgotten() {
    let queue = queue();
    let names = |prefix: &str| -> Vec<Key> { (0..8).map(|i| key(&format!("{prefix}{i}"))).collect() };
    queue.add_all_to(names("slow").into_iter().map(|key| (key, Lane::Slow)));
    queue.add_all(names("fast"));
    // It has changed while it waited.
    queue.add(key("slow7"));
    let mut order = Vec::new();
    for _ in 0..17 {
        order.push(next(&queue).await.key().to_string());
    }
    let fast: Vec<_> = order.iter().enumerate().filter(|(_, name)| name.contains("fast")).collect();
    assert!(fast.last().is_some_and(|(at, _)| *at < 11), "{order:?}");
    assert!(order[..4].iter().any(|name| name.contains("slow")), "{order:?}");
    let moved = order.iter().position(|name| name.contains("slow7"));
    assert!(moved < order.iter().position(|name| name.contains("slow6")), "{order:?}");
    assert!(idle(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_list_that_still_waits_is_not_added_by_the_next_list() {
    let queue = queue();
    let list = || ["a", "b", "c"].map(|name| (key(name), Lane::Slow));
    queue.add_all_to(list());
    drop(next(&queue).await);
    queue.add_all_to(list());
    assert_eq!(queue.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_up_to_the_most_and_success_forgets_them() {
    let (queue, a) = (queue(), key("a"));
    queue.add(a.clone());
    let mut expected = RETRY_BACKOFF;
    for _ in 0..40 {
        let lock = next(&queue).await;
        let before = Instant::now();
        assert_eq!(queue.failed(lock.key(), None), expected);
        drop(lock);
        drop(next(&queue).await);
        assert!(Instant::now() - before >= expected);
        queue.add(a.clone());
        expected = (expected * 2).min(RETRY_BACKOFF_MAX);
    }
    drop(next(&queue).await);
    queue.succeeded(&a, None);
    assert!(idle(&queue).await);
    assert_eq!(queue.failed(&a, Some(Duration::from_secs(7))), Duration::from_secs(7));
    assert_eq!(queue.failed(&a, None), RETRY_BACKOFF * 2);
}

#[test]
fn many_failing_keys_are_retried_at_most_at_the_rate_of_client_go() {
    for (failing, longest) in [(0, 15), (1, 15), (300, 15), (1_200, 60), (6_000, 300), (usize::MAX, 300)] {
        assert_eq!(longest_backoff(failing), Duration::from_secs(longest), "{failing} fail");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_offered_to_waiting_keys_and_not_again_to_those_backing_off() {
    let (queue, a) = (queue(), key("a"));
    assert!(queue.offer(&a, Offer::Returned));
    let lock = next(&queue).await;
    // Its turn succeeds: it gets another one.
    assert!(!queue.offer(&a, Offer::New));
    queue.postponed(&a, None);
    drop(lock);
    let lock = next(&queue).await;
    // Its turn fails: it is left to its timer.
    assert!(!queue.offer(&a, Offer::Returned));
    assert_eq!(queue.failed(&a, None), RETRY_BACKOFF);
    drop(lock);
    assert!(!queue.offer(&a, Offer::Returned));
    assert!(idle(&queue).await);
    // A new volume may be what it lacks.
    assert!(queue.offer(&a, Offer::New));
    drop(next(&queue).await);
    queue.postponed(&a, None);
    assert!(queue.offer(&a, Offer::Returned));
    drop(next(&queue).await);
    assert_eq!(queue.failed(&a, None), RETRY_BACKOFF * 2);
}

#[tokio::test(start_paused = true)]
async fn a_returned_volume_is_not_offered_to_a_key_that_awaits_a_list() {
    let (queue, a) = (queue(), key("a"));
    let lock = queue.lock(&a).await;
    assert!(!queue.offer(&a, Offer::Returned));
    queue.awaits_list(&a);
    drop(lock);
    assert!(!queue.offer(&a, Offer::Returned) && idle(&queue).await);
    queue.list_complete();
    drop(next(&queue).await);
    queue.postponed(&a, None);
    queue.list_complete();
    assert!(idle(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_timer_is_replaced_by_one_of_the_same_purpose_only() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after(key("a"), Timer::Requeue, Duration::from_secs(1));
    queue.add_after(key("a"), Timer::Requeue, Duration::from_secs(5));
    queue.add_after(key("a"), Timer::Operation, Duration::from_secs(3));
    for seconds in [3, 5] {
        drop(next(&queue).await);
        assert_eq!((Instant::now() - start).as_secs(), seconds);
    }
    assert!(queue.state.lock().timers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn success_clears_the_retry_but_not_the_operation() {
    let (queue, a) = (queue(), key("a"));
    queue.add_after(a.clone(), Timer::Operation, Duration::from_secs(3));
    queue.failed(&a, Some(Duration::from_secs(1)));
    queue.succeeded(&a, Some(Duration::from_secs(9)));
    let start = Instant::now();
    drop(next(&queue).await);
    assert_eq!((Instant::now() - start).as_secs(), 3);
    queue.succeeded(&a, None);
    assert!(queue.state.lock().due.is_empty());
}
