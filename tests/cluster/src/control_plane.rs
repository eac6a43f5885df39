//! etcd, kube-apiserver, and upstream's controller manager. An error about a program that has ended shows the
//! end of its log.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_servers::{Accounts, Layout};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Server;

/// How often, and how many times at most, a server is asked whether it is ready. A slow machine takes half a
/// minute.
const READY_EVERY: Duration = Duration::from_millis(100);
const READY_TRIES: usize = 1_200;

/// The namespaces that an API server creates.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager.
    pub kube_controller_manager: PathBuf,
}

/// Which loops of upstream's controller manager run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// No controller manager runs.
    Off,
    /// All but the binder, as in a cluster with Bindery.
    WithoutBinder,
    /// All, as in a cluster whose control plane cannot be changed.
    Whole,
    /// All, with upstream's own limit of requests.
    Untouched,
    /// The binder alone, without rate limits, for comparisons with Bindery.
    BinderAlone,
    /// The two that remove the protection finalizers of deleted volumes and claims. Every binder needs them.
    ProtectionAlone,
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    programs: Programs,
    // Fields are dropped in this order: servers end before their folder is removed.
    manager: Option<Server>,
    /// Which of its loops run.
    controllers: Manager,
    api_server: Server,
    etcd: Server,
    folder: TempDir,
    layout: Layout,
    /// Arguments of the API server.
    arguments: Vec<OsString>,
}

/// The path of a program, in the variable of that name.
fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os(name).filter(|value| !value.is_empty());
    path.map(PathBuf::from).with_context(|| format!("{name} is not set: run this by `cargo xtask`"))
}

impl Programs {
    /// The programs that `cargo xtask` installed: `BINDERY_ETCD`, `BINDERY_KUBE_APISERVER`,
    /// `BINDERY_KUBE_CONTROLLER_MANAGER`.
    pub fn from_env() -> Result<Self> {
        Ok(Self {
            etcd: program("BINDERY_ETCD")?,
            kube_apiserver: program("BINDERY_KUBE_APISERVER")?,
            kube_controller_manager: program("BINDERY_KUBE_CONTROLLER_MANAGER")?,
        })
    }
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready.
    pub async fn start(programs: Programs, manager: Manager) -> Result<Self> {
        Self::start_with(programs, manager, &[]).await
    }

    /// Starts a control plane whose API server has further arguments, and waits until it is ready.
    pub async fn start_with(programs: Programs, manager: Manager, further: &[&str]) -> Result<Self> {
        // Wait before ports are chosen, so that none is kept meanwhile.
        let _turn = turn().await?;
        let folder = tempfile::Builder::new().prefix("bindery-cluster-").tempdir()?;
        let layout = Layout::on_loopback(folder.path())?;
        layout.write_credentials()?;
        let mut arguments = layout.api_server(Accounts::Ignored);
        arguments.extend(further.iter().map(OsString::from));
        let etcd = start_etcd(&programs, &layout)?;
        let api_server = start_api_server(&programs, folder.path(), &arguments)?;
        let mut started = Self {
            programs,
            manager: None,
            controllers: Manager::Off,
            api_server,
            etcd,
            folder,
            layout,
            arguments,
        };
        started.until_ready().await?;
        started.set_manager(manager)?;
        Ok(started)
    }

    /// The kubeconfig of clients.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig.clone()
    }

    /// A client.
    pub async fn client(&self) -> Result<kube::Client> {
        client_of(&self.kubeconfig()).await
    }

    /// A client that sends each request once, whatever the answer.
    pub async fn client_without_retries(&self) -> Result<kube::Client> {
        client_without_retries(&self.kubeconfig()).await
    }

    /// Where etcd listens for clients.
    pub fn etcd_url(&self) -> String {
        self.layout.etcd_url()
    }

    /// The API server.
    pub fn api_server(&mut self) -> &mut Server {
        &mut self.api_server
    }

    /// etcd.
    pub fn etcd(&mut self) -> &mut Server {
        &mut self.etcd
    }

    /// The controller manager, if one runs.
    pub fn manager(&mut self) -> Option<&mut Server> {
        self.manager.as_mut()
    }

    /// Starts these loops of upstream instead of those that run.
    pub fn set_manager(&mut self, manager: Manager) -> Result<()> {
        self.manager = None;
        self.controllers = manager;
        let controllers = match manager {
            Manager::Off => return Ok(()),
            Manager::Whole | Manager::Untouched => "*",
            Manager::WithoutBinder => bindery_servers::ALL_BUT_THE_BINDER,
            Manager::BinderAlone => bindery_servers::THE_BINDER,
            Manager::ProtectionAlone => {
                "persistentvolume-protection-controller,persistentvolumeclaim-protection-controller"
            }
        };
        let mut arguments = self.layout.manager(controllers)?;
        if manager != Manager::Untouched {
            arguments.extend(["--kube-api-qps=10000".into(), "--kube-api-burst=10000".into()]);
        }
        let (program, log) = (&self.programs.kube_controller_manager, self.manager_log_file());
        self.manager = Some(Server::start(program, arguments, &log)?);
        Ok(())
    }

    /// Starts upstream's scheduler (`BINDERY_KUBE_SCHEDULER`).
    pub fn start_scheduler(&self) -> Result<Server> {
        let program = program("BINDERY_KUBE_SCHEDULER")?;
        let log = self.folder.path().join("kube-scheduler.log");
        Server::start(&program, self.layout.scheduler()?, &log)
    }

    /// The output of all controller managers so far.
    pub fn manager_log(&self) -> Result<String> {
        match std::fs::read_to_string(self.manager_log_file()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read.context("the log of the controller manager cannot be read"),
        }
    }

    fn manager_log_file(&self) -> PathBuf {
        self.folder.path().join("kube-controller-manager.log")
    }

    /// Kills the API server, starts it again on the same port, and waits until it is ready.
    pub async fn restart_api_server(&mut self) -> Result<()> {
        self.api_server.kill()?;
        self.api_server = start_api_server(&self.programs, self.folder.path(), &self.arguments)?;
        self.until_ready().await
    }

    /// Kills etcd, starts it again with its data, and waits until the API server is ready.
    pub async fn restart_etcd(&mut self) -> Result<()> {
        self.etcd.kill()?;
        self.etcd = start_etcd(&self.programs, &self.layout)?;
        self.until_ready().await
    }

    /// Saves a snapshot of etcd to a file, as `etcdctl snapshot save` does.
    pub async fn save_snapshot(&self) -> Result<PathBuf> {
        let path = self.folder.path().join("snapshot.db");
        let mut file = File::create(&path)?;
        let answer = self.post_to_etcd("/v3/maintenance/snapshot", &json!({})).await?;
        for part in serde_json::Deserializer::from_slice(&answer).into_iter::<Value>() {
            let mut part = part?;
            let blob: ByteString = serde_json::from_value(part["result"]["blob"].take())?;
            file.write_all(&blob.0)?;
        }
        Ok(path)
    }

    /// Stops etcd and the API server, restores a snapshot by `etcdutl snapshot restore` (`BINDERY_ETCDUTL`)
    /// with further arguments, starts both again, and waits until they are ready. The controller manager is
    /// restarted too, because its watches would wait for versions that etcd does not have.
    pub async fn restore_snapshot(&mut self, snapshot: &Path, further: &[&str]) -> Result<()> {
        let etcdutl = program("BINDERY_ETCDUTL")?;
        self.manager = None;
        self.api_server.kill()?;
        self.etcd.kill()?;
        fs::remove_dir_all(&self.layout.data)?;
        let mut restore = Command::new(etcdutl);
        restore.args(["snapshot", "restore"]).arg(snapshot).arg("--data-dir").arg(&self.layout.data);
        let output = restore.args(further).output()?;
        anyhow::ensure!(
            output.status.success(),
            "etcdutl fails: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        self.etcd = start_etcd(&self.programs, &self.layout)?;
        self.api_server = start_api_server(&self.programs, self.folder.path(), &self.arguments)?;
        self.until_ready().await?;
        self.set_manager(self.controllers)
    }

    /// Advances the revision of etcd by this many writes, as other clients do.
    pub async fn advance_revision(&self, revisions: usize) -> Result<()> {
        for _ in 0..revisions {
            // A key outside the prefix of the API server.
            self.ask_etcd("/v3/kv/put", &json!({"key": "YmluZGVyeQ==", "value": ""})).await?;
        }
        Ok(())
    }

    /// Compacts the history of etcd, as API servers do every five minutes.
    pub async fn compact(&self) -> Result<()> {
        // The answer has the revision, whatever the key.
        let now = self.ask_etcd("/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = now["header"]["revision"].as_str().context("the answer of etcd has no revision")?;
        self.ask_etcd("/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await.map(drop)
    }

    async fn ask_etcd(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&self.post_to_etcd(path, body).await?)?)
    }

    async fn post_to_etcd(&self, path: &str, body: &Value) -> Result<Bytes> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let body = Full::new(Bytes::from(body.to_string()));
        let request = http::Request::post(format!("{}{path}", self.etcd_url())).body(body)?;
        let response = client.request(request).await.context("etcd cannot be reached")?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status.is_success(), "etcd refuses {path}: {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }

    /// Waits until the API server is ready.
    async fn until_ready(&mut self) -> Result<()> {
        let (mut ticks, mut has_ended) = (tokio::time::interval(READY_EVERY), false);
        for _ in 0..READY_TRIES {
            ticks.tick().await;
            self.etcd.check()?;
            if let Err(ended) = self.api_server.check() {
                // Its hooks have 30 s on a busy machine too; it ends itself if one takes longer.
                if has_ended {
                    return Err(ended);
                }
                eprintln!("kube-apiserver is started again: {ended:#}");
                self.api_server = start_api_server(&self.programs, self.folder.path(), &self.arguments)?;
                has_ended = true;
            }
            if self.is_ready().await {
                return Ok(());
            }
        }
        anyhow::bail!("kube-apiserver does not become ready:\n{}", self.api_server.log()?)
    }

    async fn is_ready(&self) -> bool {
        let asked = async {
            let client = self.client().await?;
            let ask = async |path: &str| {
                anyhow::Ok(client.request_text(http::Request::get(path).body(Vec::new())?).await?)
            };
            let is_ready = ask("/readyz").await? == "ok";
            // It may be ready before it has created them.
            for name in NAMESPACES {
                ask(&format!("/api/v1/namespaces/{name}")).await?;
            }
            anyhow::Ok(is_ready)
        };
        asked.await.unwrap_or(false)
    }
}

/// A client with this kubeconfig.
pub async fn client_of(kubeconfig: &Path) -> Result<kube::Client> {
    Ok(kube::Client::try_from(config_of(kubeconfig).await?)?)
}

/// A client with this kubeconfig that sends each request once, whatever the answer.
pub(crate) async fn client_without_retries(kubeconfig: &Path) -> Result<kube::Client> {
    let mut config = config_of(kubeconfig).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

async fn config_of(kubeconfig: &Path) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Control planes of this machine that start at the same time, at most. A start waits most of its time, but
/// an API server whose start takes half a minute ends itself.
const STARTING_MAX: usize = 2;

/// Waits until another control plane may start. It counts as starting until the file is dropped.
async fn turn() -> Result<File> {
    // So that those that wait are spread over the files.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let take = || {
        let mut files = Vec::new();
        for number in 0..STARTING_MAX {
            let path = std::env::temp_dir().join(format!("bindery-cluster-{number}.lock"));
            // The file may belong to another user.
            let file =
                File::open(&path).or_else(|_| File::options().create(true).append(true).open(&path))?;
            if file.try_lock().is_ok() {
                return Ok(file);
            }
            files.push(file);
        }
        let file =
            files.swap_remove((process::id() as usize + NEXT.fetch_add(1, Ordering::Relaxed)) % STARTING_MAX);
        file.lock()?;
        std::io::Result::Ok(file)
    };
    tokio::task::spawn_blocking(take).await?.context("the start of a control plane cannot be locked")
}

fn start_etcd(programs: &Programs, layout: &Layout) -> Result<Server> {
    Server::start(&programs.etcd, layout.etcd(), &layout.folder.join("etcd.log"))
}

fn start_api_server(programs: &Programs, folder: &Path, arguments: &[OsString]) -> Result<Server> {
    let log = folder.join("kube-apiserver.log");
    Server::start(&programs.kube_apiserver, arguments.iter().cloned(), &log)
}
