//! A running `bindery serve`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use bindery_cluster::{Proxy, Server, free_port};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::{PATIENCE, poll};

pub(crate) struct Replica {
    server: Server,
    /// The folder of its log.
    _folder: TempDir,
    /// The port of health and metrics.
    pub(crate) port: u16,
}

impl Replica {
    /// Starts a replica that reaches the API server through a proxy, with further arguments.
    pub(crate) fn behind(proxy: &Proxy, identity: &str, further: &[&str]) -> Self {
        Self::start(&proxy.kubeconfig(), identity, further, &[])
    }

    /// Starts a replica with this kubeconfig, further arguments and environment.
    pub(crate) fn start(
        kubeconfig: &Path,
        identity: &str,
        further: &[&str],
        environment: &[(&str, PathBuf)],
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let port = free_port().unwrap();
        let arguments = [
            "--log=info".to_owned(),
            "serve".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--listen=127.0.0.1:{port}"),
            format!("--identity={identity}"),
        ];
        // Short, so that the next replica soon leads; a setting may be given once.
        let has_lease = further.iter().any(|argument| argument.starts_with("--lease-duration="));
        let lease = (!has_lease).then_some("--lease-duration=3");
        let log = folder.path().join("log");
        let program = env!("CARGO_BIN_EXE_bindery").as_ref();
        let arguments = arguments.iter().map(String::as_str).chain(lease).chain(further.iter().copied());
        let server = Server::start_in(environment, program, arguments.map(OsString::from), &log).unwrap();
        Self { server, _folder: folder, port }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.server.id()).unwrap()).unwrap()
    }

    /// Waits until this replica leads.
    pub(crate) async fn until_leading(&mut self) {
        self.until_metrics("bindery_leader 1\n").await;
    }

    /// Waits until this replica does not lead.
    pub(crate) async fn until_following(&mut self) {
        self.until_metrics("bindery_leader 0\n").await;
    }

    /// Waits until its caches hold all lists.
    pub(crate) async fn until_listed(&mut self) {
        self.until_metrics("bindery_lists_complete 1\n").await;
    }

    /// Waits until this replica or another one leads; returns whether the other does.
    pub(crate) async fn until_any_leads(&mut self, other: &mut Self) -> bool {
        tokio::select! {
            () = self.until_leading() => false,
            () = other.until_leading() => true,
        }
    }

    /// Waits until the metrics contain this sample.
    pub(crate) async fn until_metrics(&mut self, sample: &str) {
        let seen = poll(async || {
            self.server.check().unwrap();
            self.try_get("/metrics").await.filter(|metrics| metrics.contains(sample))
        });
        assert!(seen.await.is_some(), "no {sample:?}: {}", self.log());
    }

    /// Waits until a metric satisfies a condition; returns its value.
    pub(crate) async fn until_metric(&mut self, name: &str, holds: impl Fn(u64) -> bool) -> u64 {
        let value = poll(async || {
            self.server.check().unwrap();
            Some(self.metric(name).await).filter(|value| holds(*value))
        });
        value.await.unwrap_or_else(|| panic!("{name} stays wrong: {}", self.log()))
    }

    /// Waits for a line of the log with this text; returns the first.
    pub(crate) async fn until_logged(&mut self, text: &str) -> String {
        let logged = poll(async || {
            self.server.check().unwrap();
            let log = self.log();
            // A line without an end is still being written.
            let mut lines = log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            lines.find(|line| line.contains(text)).map(str::to_owned)
        });
        logged.await.unwrap_or_else(|| panic!("no {text:?}: {}", self.log()))
    }

    /// Waits until its answer begins with this text; returns the whole. It may not listen yet.
    pub(crate) async fn until_answer(&self, path: &str, text: &str) -> (StatusCode, String) {
        let answer = poll(async || self.try_probe(path).await.filter(|answer| answer.1.starts_with(text)));
        answer.await.unwrap_or_else(|| panic!("it never answers {text:?}: {}", self.log()))
    }

    /// Waits until it is ready.
    pub(crate) async fn until_ready(&self) {
        assert_eq!(self.until_answer("/readyz", "ok").await, (StatusCode::OK, "ok".to_owned()));
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        self.try_get(path).await.unwrap()
    }

    /// The body of its answer; `None` where there is no answer.
    pub(crate) async fn try_get(&self, path: &str) -> Option<String> {
        self.try_probe(path).await.map(|(_, text)| text)
    }

    /// Status and body of its answer.
    pub(crate) async fn probe(&self, path: &str) -> (StatusCode, String) {
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
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let metrics = self.get("/metrics").await;
        let sample = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sample.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
    }

    pub(crate) fn log(&self) -> String {
        self.server.log().unwrap()
    }

    /// Fails where the process has ended.
    pub(crate) fn check(&mut self) {
        self.server.check().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.server.signal(signal).unwrap();
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.server.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end: {}", self.log())).unwrap()
    }

    /// Ends the process by SIGTERM; it must succeed.
    pub(crate) async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.wait().await.success(), "{}", self.log());
    }
}

/// Runs `bindery serve` with arguments that it must refuse with status 2; returns what it says.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
    command.arg("serve").args(["--listen", "127.0.0.1:0"]).args(arguments);
    let output = command.env_remove("KUBECONFIG").env("BINDERY_ENGINE", "native").output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    complaint
}
