//! An endpoint gets every record, whatever it answers meanwhile, and what it cannot get is counted.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bindery_journal::{Entry, FolderWriter, Gap, Header, Rotation, Sink as _, What};
use bindery_kit::{Authority, OciRegistry, RegistrySettings, Reply, poll};
use bindery_registry::{Endpoint, Timeouts};
use bytes::Bytes;
use http::{Method, Response};
use serde_json::Value;

use super::worker::Pauses;
use super::{Sending, SendingCounts};

/// Longer than any of these takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A size that no file of these tests reaches.
const LARGE: u64 = 1 << 30;

/// What the endpoint does with a request.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Status(u16),
    /// 429 with `Retry-After: 0`.
    Later,
    Hang,
    Garbage,
    Endless,
}

#[derive(Default)]
struct State {
    /// For the next requests, one each.
    next: VecDeque<Act>,
    /// For all others; `None`: it accepts them.
    always: Option<Act>,
    /// Whether it has accepted each of the requests that it has read.
    accepted: Vec<bool>,
}

/// An endpoint.
struct Receiver {
    server: OciRegistry,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    fn start(certificate: Option<(String, String)>) -> Self {
        let server = OciRegistry::start(RegistrySettings { certificate, ..RegistrySettings::default() });
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        server.intercept(move |method, path, headers| {
            let mut state = shared.lock().unwrap();
            let act = state.next.front().copied().or(state.always);
            if *method == Method::CONNECT {
                return (act == Some(Act::Garbage)).then(|| {
                    state.next.pop_front();
                    Reply::Garbage
                });
            }
            state.next.pop_front();
            assert_eq!((method, path), (&Method::POST, "/journal?of=a"));
            assert_eq!(headers["content-type"], "application/x-ndjson");
            state.accepted.push(act.is_none());
            let mut response = Response::new(Bytes::from_static(b"a message"));
            Some(match act {
                Some(Act::Hang) => Reply::Hang,
                Some(Act::Endless) => Reply::Endless,
                Some(Act::Garbage) => Reply::Garbage,
                Some(Act::Later) => {
                    *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
                    response.headers_mut().insert("retry-after", "0".parse().unwrap());
                    Reply::Answer(response)
                }
                Some(Act::Status(status)) => {
                    *response.status_mut() = status.try_into().unwrap();
                    Reply::Answer(response)
                }
                None => Reply::Answer(response),
            })
        });
        Self { server, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Sends the journals of a folder to it.
    fn sending(&self, folder: &Path) -> Sending {
        self.sending_with(folder, "http", None, None)
    }

    fn sending_with(&self, folder: &Path, scheme: &str, ca: Option<&str>, token: Option<&Path>) -> Sending {
        let uri = format!("{scheme}://{}/journal?of=a", self.server.host()).parse().unwrap();
        let second = Duration::from_secs(1);
        let timeouts = Timeouts { connect: PATIENCE, answer: second, request: second, operation: second };
        let endpoint = Endpoint::new(uri, ca.map(str::as_bytes), timeouts).unwrap();
        let [idle, first, longest] = [1, 1, 4].map(Duration::from_millis);
        let pauses = Pauses { idle, first, longest };
        Sending::start(folder, endpoint, token.map(Path::to_owned), pauses).unwrap()
    }

    /// The lines of all requests that it has accepted, or of the others.
    fn lines(&self, accepted: bool) -> Vec<Value> {
        let bodies = self.server.bodies();
        let state = self.state();
        let of = bodies.iter().zip(&state.accepted).filter(|(_, is)| **is == accepted);
        let texts = of.map(|(body, _)| std::str::from_utf8(body).unwrap());
        texts.flat_map(str::lines).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The numbers of the records that it has accepted, in their order.
    fn numbers(&self) -> Vec<u64> {
        self.lines(true).iter().map(|line| line["gap"]["lost"].as_u64().unwrap()).collect()
    }
}

/// A writer of files that are ended when they have more bytes than this.
fn writer(folder: &Path, size: u64, keep: u64) -> FolderWriter {
    let header = Header { replica: "pod-1".to_owned(), ..Header::default() };
    FolderWriter::new(folder, Rotation { size, age: Duration::from_secs(3_600), keep }, header)
}

/// Writes a block with records of these numbers.
fn write(writer: &mut FolderWriter, numbers: std::ops::Range<u64>) {
    let entry = |lost| Entry { at_ms: 9, what: What::Gap(Gap { lost, from_ms: 1, to_ms: 2 }) };
    let plain: Vec<u8> = numbers.flat_map(|number| entry(number).encode().unwrap()).collect();
    writer.write(&plain).unwrap();
}

async fn until(counts: &SendingCounts, condition: impl Fn(&SendingCounts) -> bool) {
    let every = Duration::from_millis(1);
    let met = poll(every, PATIENCE, async || condition(counts).then_some(())).await;
    assert!(met.is_some(), "{counts:?}");
}

/// Ends the thread as the process does.
async fn end(sending: Sending) {
    sending.ending.cancel();
    tokio::time::timeout(PATIENCE, sending.ended()).await.unwrap();
}

#[tokio::test]
async fn records_come_once_by_tls_with_a_token_and_go_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let receiver = Receiver::start(Some(authority.server("localhost")));
    let token = folder.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    let mut writer = writer(folder.path(), 1, LARGE);
    let (mut sent, pem) = (0, authority.pem());
    for run in 0..3 {
        write(&mut writer, sent..sent + 1_500);
        let sending = receiver.sending_with(folder.path(), "https", Some(&pem), Some(&token));
        let counts = sending.counts();
        until(&counts, |counts| counts.records.get() == 1_500).await;
        write(&mut writer, sent + 1_500..sent + 1_503);
        // The last is found at the end.
        end(sending).await;
        sent += 1_503;
        assert_eq!(receiver.numbers(), (0..sent).collect::<Vec<u64>>(), "run {run}");
        assert_eq!((counts.failures.get(), counts.lost_files(), counts.lag_seconds(99_000)), (0, 0, 0));
    }
    for (_, _, authorization) in receiver.server.requests() {
        assert_eq!(authorization.as_deref(), Some("Bearer secret"));
    }
    let lines = receiver.lines(true);
    let ids: BTreeSet<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len() as u64, sent);
    // A file has 1,500 records and its end, and the next has three.
    let place = |at: usize| ["journal", "file", "number", "replica", "time"].map(|key| &lines[at][key]);
    let known = ["\"replica-1\"", "2", "3", "\"pod-1\"", "\"1970-01-01T00:00:00.009Z\""];
    assert_eq!(place(1_502).map(ToString::to_string), known);
    assert_eq!(lines[1_503]["file"], 3);
}

#[tokio::test]
async fn a_batch_is_repeated_until_it_is_accepted_whatever_the_answers() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let acts = [
        Act::Status(503),
        Act::Later,
        Act::Status(408),
        Act::Status(404),
        Act::Status(401),
        Act::Status(302),
        Act::Garbage,
        Act::Endless,
        Act::Hang,
        Act::Status(500),
    ];
    receiver.state().next.extend(acts);
    write(&mut writer(folder.path(), LARGE, 4 * LARGE), 0..10);
    let sending = receiver.sending(folder.path());
    let counts = sending.counts();
    until(&counts, |counts| counts.records.get() == 10).await;
    assert_eq!((counts.failures.get(), counts.lost_files()), (10, 0));
    assert_eq!(receiver.numbers(), (0..10).collect::<Vec<u64>>());
    // The bytes are the same each time.
    let bodies: BTreeSet<Bytes> = receiver.server.bodies().into_iter().collect();
    assert_eq!(bodies.len(), 1);
    end(sending).await;
}

#[tokio::test]
async fn an_endpoint_that_hangs_holds_one_batch_and_the_rest_stays_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    receiver.state().always = Some(Act::Hang);
    let mut writer = writer(folder.path(), 1 << 10, LARGE);
    write(&mut writer, 0..5_000);
    let sending = receiver.sending(folder.path());
    let counts = sending.counts();
    until(&counts, |counts| counts.failures.get() >= 1).await;
    assert_eq!(counts.lag_seconds(7_009), 7);
    // The writer goes on, and nothing more is read.
    (1..10).for_each(|block| write(&mut writer, block * 5_000..(block + 1) * 5_000));
    let bodies: BTreeSet<Bytes> = receiver.server.bodies().into_iter().collect();
    assert_eq!((bodies.len(), counts.records.get()), (1, 0));
    receiver.state().always = None;
    until(&counts, |counts| counts.records.get() == 50_000).await;
    assert_eq!(receiver.numbers(), (0..50_000).collect::<Vec<u64>>());
    end(sending).await;
    // What was sent is not sent again.
    end(receiver.sending(folder.path())).await;
    assert_eq!(receiver.numbers().len(), 50_000);
}

#[tokio::test]
async fn a_process_that_ends_before_a_batch_is_accepted_sends_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let mut writer = writer(folder.path(), LARGE, 4 * LARGE);
    write(&mut writer, 0..2_500);
    for failed in 1..=3 {
        let sending = receiver.sending(folder.path());
        let counts = sending.counts();
        until(&counts, |counts| counts.records.get() > 0).await;
        receiver.state().always = Some(Act::Status(503));
        write(&mut writer, failed * 2_500..(failed + 1) * 2_500);
        until(&counts, |counts| counts.failures.get() > 0).await;
        end(sending).await;
        receiver.state().always = None;
    }
    // A file of positions that is damaged repeats records, and loses none.
    end(receiver.sending(folder.path())).await;
    assert_eq!(receiver.numbers(), (0..10_000).collect::<Vec<u64>>());
    fs::write(folder.path().join("sent.json"), "{").unwrap();
    end(receiver.sending(folder.path())).await;
    let lines = receiver.lines(true);
    let ids: BTreeSet<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!((lines.len(), ids.len()), (20_000, 10_000));
}

#[tokio::test]
async fn files_that_are_removed_unsent_are_counted_while_the_endpoint_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    receiver.state().always = Some(Act::Status(503));
    // Some ten files are kept.
    let mut writer = writer(folder.path(), 1, 4_000);
    write(&mut writer, 0..1);
    let sending = receiver.sending(folder.path());
    let counts = sending.counts();
    until(&counts, |counts| counts.failures.get() > 0).await;
    (1..100).for_each(|number| write(&mut writer, number..number + 1));
    until(&counts, |counts| counts.lost_files() > 0).await;
    let failures = counts.failures.get();
    // It has looked again since the last file was removed.
    until(&counts, |counts| counts.failures.get() > failures + 1).await;
    let lost = counts.lost_files();
    receiver.state().always = None;
    until(&counts, |counts| counts.records.get() == 100 - lost).await;
    end(sending).await;
    assert_eq!((counts.records.get(), counts.lost_files()), (100 - lost, lost));
    // The receiver sees the hole by the numbers of the files.
    let files: Vec<u64> = receiver.lines(true).iter().map(|line| line["file"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = std::iter::once(1).chain(lost + 2..=100).collect();
    assert_eq!(files, expected);
}

#[tokio::test]
async fn one_process_sends_the_journals_of_a_folder_and_another_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let mut writers = [1, 2].map(|_| writer(folder.path(), 1, LARGE));
    let mut sendings = vec![receiver.sending(folder.path()), receiver.sending(folder.path())];
    for round in 0..2 {
        for (at, writer) in writers.iter_mut().enumerate() {
            let number = round * 2 + at as u64;
            write(writer, number..number + 1);
        }
        // One process has counted its two records, so the endpoint has accepted them.
        let one = async || sendings.iter().position(|sending| sending.counts().records.get() == 2);
        let sender = poll(Duration::from_millis(1), PATIENCE, one).await.unwrap();
        end(sendings.remove(sender)).await;
    }
    let mut numbers = receiver.numbers();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3]);
}
