//! A running `bindery serve`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use bindery_servers::{built, free_port, without_tools};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{ControlPlane, PATIENCE, Proxy, Server, poll, run};

/// The journal in the folder of a replica.
const JOURNAL: &str = "journal";
/// The compiled components in the folder of a replica.
const CACHE: &str = "cache";
/// What replays have compiled, beside the programs under test.
const COMPILED: &str = "compiled";

/// A running `bindery serve`, which is killed when this is dropped. What it has journaled is then replayed.
#[derive(Debug)]
pub struct Replica {
    server: Server,
    /// The folder of its log and its journal.
    folder: TempDir,
    /// The port of health and metrics.
    pub port: u16,
}

impl Replica {
    /// Starts a replica that reaches the API server through a proxy, with further arguments.
    pub fn behind(proxy: &Proxy, identity: &str, further: &[&str]) -> Self {
        Self::start(&proxy.kubeconfig(), identity, further, &[])
    }

    /// Starts a replica with this kubeconfig, further arguments and environment.
    pub fn start(
        kubeconfig: &Path,
        identity: &str,
        further: &[&str],
        environment: &[(&str, PathBuf)],
    ) -> Self {
        let usual = [format!("--kubeconfig={}", kubeconfig.display()), format!("--identity={identity}")];
        // Short, so that the next replica soon leads; a setting may be given once.
        let has_lease = further.iter().any(|argument| argument.starts_with("--lease-duration="));
        let lease = (!has_lease).then_some("--lease-duration=3");
        let usual = usual.iter().map(String::as_str);
        Self::run(usual.chain(lease).chain(further.iter().copied()), environment)
    }

    /// Starts a replica with these arguments only, beside the address of health and metrics, a journal, and
    /// what replays have compiled.
    pub fn run(arguments: impl IntoIterator<Item: AsRef<OsStr>>, environment: &[(&str, PathBuf)]) -> Self {
        let mut arguments: Vec<OsString> =
            arguments.into_iter().map(|argument| argument.as_ref().into()).collect();
        let folder = TempDir::new().unwrap();
        let (journal, cache) = (folder.path().join(JOURNAL), cache(folder.path()));
        for (flag, path) in [("--journal", journal), ("--engine-cache", cache)] {
            let is_it = |argument: &OsString| argument.as_encoded_bytes().starts_with(flag.as_bytes());
            // A setting may be given once.
            if !arguments.iter().any(is_it) {
                arguments.extend([flag.into(), path.into()]);
            }
        }
        Self::run_by(&[&built("bindery"), "--log=info".as_ref()], arguments, environment, folder)
    }

    /// Starts a replica on a control plane, by a command to which `serve` is added, with further arguments.
    pub fn on(plane: &ControlPlane, command: &[&Path], further: &[String]) -> Self {
        let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig().display());
        Self::run_by(command, further.iter().chain([&kubeconfig]), &[], TempDir::new().unwrap())
    }

    fn run_by(
        command: &[&Path],
        arguments: impl IntoIterator<Item: AsRef<OsStr>>,
        environment: &[(&str, PathBuf)],
        folder: TempDir,
    ) -> Self {
        let port = free_port().unwrap();
        let serve = ["serve".to_owned(), format!("--listen=127.0.0.1:{port}")].map(OsString::from);
        let words = command[1..].iter().map(|word| OsString::from(*word)).chain(serve);
        let words = words.chain(arguments.into_iter().map(|argument| argument.as_ref().into()));
        let log = folder.path().join("log");
        let server = Server::start_in(environment, command[0], words, &log).unwrap();
        Self { server, folder, port }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// The folder of its journal, unless its arguments name another one.
    pub fn journal(&self) -> PathBuf {
        self.folder.path().join(JOURNAL)
    }

    /// Polls until `probe` returns a value, while the process runs.
    pub async fn until<T>(&mut self, what: &str, mut probe: impl AsyncFnMut(&Self) -> Option<T>) -> T {
        let found = poll(async || {
            self.server.check().unwrap();
            probe(self).await
        });
        found.await.unwrap_or_else(|| panic!("it does not happen: {what}: {}", self.log()))
    }

    /// Waits until this replica leads.
    pub async fn until_leading(&mut self) {
        self.until_metrics("bindery_leader 1\n").await;
    }

    /// Waits until this replica does not lead.
    pub async fn until_following(&mut self) {
        self.until_metrics("bindery_leader 0\n").await;
    }

    /// Waits until its caches hold all lists.
    pub async fn until_listed(&mut self) {
        self.until_metrics("bindery_lists_complete 1\n").await;
    }

    /// Waits until this replica or another one leads; returns whether the other does.
    pub async fn until_any_leads(&mut self, other: &mut Self) -> bool {
        tokio::select! {
            () = self.until_leading() => false,
            () = other.until_leading() => true,
        }
    }

    /// Waits until the metrics contain this sample.
    pub async fn until_metrics(&mut self, sample: &str) {
        let has_sample = async |replica: &Self| {
            replica.try_get("/metrics").await.filter(|metrics| metrics.contains(sample))
        };
        self.until(sample, has_sample).await;
    }

    /// Waits until a metric satisfies a condition; returns its value.
    pub async fn until_metric(&mut self, name: &str, holds: impl Fn(u64) -> bool) -> u64 {
        let value = async |replica: &Self| {
            let metrics = replica.try_get("/metrics").await?;
            sample(&metrics, name).filter(|value| holds(*value))
        };
        self.until(name, value).await
    }

    /// Waits for a line of the log with this text; returns the first.
    pub async fn until_logged(&mut self, text: &str) -> String {
        let line = async |replica: &Self| {
            let log = replica.log();
            // A line without an end is still being written.
            let mut lines = log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            lines.find(|line| line.contains(text)).map(str::to_owned)
        };
        self.until(text, line).await
    }

    /// Waits until its answer begins with this text; returns status and body. It may not listen yet.
    pub async fn until_answer(&self, path: &str, text: &str) -> (StatusCode, String) {
        let answer = poll(async || self.try_probe(path).await.filter(|answer| answer.1.starts_with(text)));
        answer.await.unwrap_or_else(|| panic!("it never answers {text:?}: {}", self.log()))
    }

    /// Whether it is ready.
    pub async fn is_ready(&self) -> bool {
        self.try_probe("/readyz").await.is_some_and(|(status, _)| status == StatusCode::OK)
    }

    /// Waits until it is ready.
    pub async fn until_ready(&self) {
        assert_eq!(self.until_answer("/readyz", "ok").await, (StatusCode::OK, "ok".to_owned()));
    }

    /// The body of its answer.
    pub async fn get(&self, path: &str) -> String {
        self.try_get(path).await.unwrap()
    }

    /// The body of its answer; `None` if there is no answer.
    pub async fn try_get(&self, path: &str) -> Option<String> {
        self.try_probe(path).await.map(|(_, text)| text)
    }

    /// Status and body of its answer.
    pub async fn probe(&self, path: &str) -> (StatusCode, String) {
        self.try_probe(path).await.unwrap()
    }

    async fn try_probe(&self, path: &str) -> Option<(StatusCode, String)> {
        let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let uri = format!("http://127.0.0.1:{}{path}", self.port).parse().unwrap();
        let answer = client.get(uri).await.ok()?;
        let status = answer.status();
        let body = answer.into_body().collect().await.ok()?;
        Some((status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
    }

    /// The value of a metric.
    pub async fn metric(&self, name: &str) -> u64 {
        let metrics = self.get("/metrics").await;
        sample(&metrics, name).unwrap_or_else(|| panic!("no {name} in {metrics}"))
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.server.log().unwrap()
    }

    /// Fails if the process has ended.
    pub fn check(&mut self) {
        self.server.check().unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.server.signal(signal).unwrap();
    }

    /// Waits until the process has ended by itself.
    pub async fn wait(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.server.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end: {}", self.log())).unwrap()
    }

    /// Ends the process by SIGTERM; it must succeed.
    pub async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.wait().await.success(), "{}", self.log());
    }
}

impl Drop for Replica {
    /// Whatever the test is about: what was decided replays.
    fn drop(&mut self) {
        // A second panic would end the tests; the server ends with its field.
        if !std::thread::panicking() {
            self.server.kill().unwrap();
            assert_replays(&self.journal());
        }
    }
}

/// The value of a metric; `None` if these have none of that name.
fn sample(metrics: &str, name: &str) -> Option<u64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
}

/// A new folder of compiled components in a folder, with a copy of what replays have compiled.
fn cache(folder: &Path) -> PathBuf {
    let cache = folder.join(CACHE);
    DirBuilder::new().mode(0o700).create(&cache).unwrap();
    for entry in built("bindery").with_file_name(COMPILED).read_dir().into_iter().flatten() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.extension().is_some_and(|ends| ends == "cwasm") {
            std::fs::copy(path, cache.join(name)).unwrap();
        }
    }
    cache
}

/// Fails unless all decisions of a journal replay to the byte and to the unit of fuel, and all policies that
/// they rest on say the same again. That of a replica that has decided nothing has no file.
pub fn assert_replays(journal: &Path) {
    let mut names = journal.read_dir().into_iter().flatten().map(|entry| entry.unwrap().path());
    if !names.any(|path| path.extension().is_some_and(|ends| ends == "bjournal")) {
        return;
    }
    let program = built("bindery");
    let mut command = Command::new(&program);
    command.args(["replay", "--output=json"]).arg(journal);
    command.arg("--engine-cache").arg(program.with_file_name(COMPILED));
    let policies = std::env::var_os("BINDERY_POLICIES").map(PathBuf::from);
    let example = std::env::var_os("BINDERY_EXAMPLE_ENGINE").map(PathBuf::from);
    let example = example.and_then(|engine| Some(engine.parent()?.to_owned()));
    // What the replica has fetched from registries and from ConfigMaps.
    let kept = Some(journal.with_file_name(CACHE).join("registry")).filter(|folder| folder.is_dir());
    // The engine of an earlier contract.
    let contract = Some(Path::new(env!("BINDERY_CHECKOUT")).join("tests/contract"));
    for folder in [policies, example, kept, contract].into_iter().flatten() {
        command.arg("--modules").arg(folder);
    }
    let replayed = run(&mut command, "");
    assert!(replayed.status.success(), "{replayed:?}");
    assert_whole(&serde_json::from_slice(&replayed.stdout).unwrap());
}

/// Fails if a replay has left anything out.
fn assert_whole(report: &Value) {
    let number = |count: &Value| count.as_u64().unwrap_or_default();
    assert_eq!(report["missingModules"], json!([]), "{report}");
    assert_eq!(report["notReplayable"], 0, "{report}");
    // A native engine counts no fuel.
    let engines = report["engines"].as_object().unwrap().iter();
    let of_components = engines.filter(|(digest, _)| digest.starts_with("sha256:"));
    let counted: u64 = of_components.map(|(_, records)| number(records)).sum();
    assert_eq!(number(&report["fuelCompared"]), counted, "{report}");
    let asked = &report["askedAgain"];
    assert_eq!((number(&asked["notAsked"]), number(&asked["redacted"])), (0, 0), "{report}");
    assert!(number(&asked["fuelCompared"]) > 0 || asked["same"] == 0, "{report}");
}

/// Runs `bindery serve` with arguments that it must refuse with status 2; returns its error.
pub fn refused(arguments: &[&str]) -> String {
    let mut command = Command::new(built("bindery"));
    without_tools(&mut command).arg("serve").args(["--listen", "127.0.0.1:0"]).args(arguments);
    let output = command.env_remove("KUBECONFIG").env("BINDERY_ENGINE", "native").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    error
}
