//! Clusters with a CSI driver and its provisioner. One is shared, with the binder in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, mpsc};
use std::thread;

use bindery_chart::{built, offered};
use bindery_cluster::Server;
use bindery_node::objects::Objects;
use bindery_node::{Node, log_ends};
use tempfile::TempDir;

/// The driver's socket for kubelet. kubelet sends the escaped path as the name of the host, which only Go's
/// servers accept. Before an @ it is the name of a user, where escapes are allowed.
const REGISTRATION: &str = "/var/lib/kubelet/plugins_registry/csi@localhost.sock";

/// The driver's name.
pub(crate) const DRIVER: &str = "csi.bindery.test";

/// The class whose volumes reclaimers keep: for good if their claims are labelled with [`KEEP`], else for a
/// day.
pub(crate) const KEPT_CLASS: &str = "csi-kept";
pub(crate) const KEEP: &str = "bindery.dev/keep";

/// The documents of these reclaimers.
const RECLAIMERS: &str = "\
apiVersion: policy.bindery.dev/v1alpha1
kind: ReclaimPolicy
metadata: {name: keep}
spec:
  module: builtin:keep-labelled
  match: {classNames: [csi-kept]}
---
apiVersion: policy.bindery.dev/v1alpha1
kind: ReclaimPolicy
metadata: {name: later}
spec:
  module: builtin:delete-after
  settings: {days: 1}
  match: {classNames: [csi-kept]}
";

/// A cluster with a CSI driver and its provisioner.
pub(crate) struct Servers {
    _storage: [Server; 2],
    pub(crate) node: Node,
    /// Contains logs, and below `volumes` the folders of the CSI driver.
    folder: TempDir,
}

/// The servers that most tests share, with a binder; the first test starts them. They end with the process.
pub(crate) fn servers() -> &'static Servers {
    static SERVERS: OnceLock<(Servers, Server)> = OnceLock::new();
    let (servers, _) = SERVERS.get_or_init(|| {
        let (started, servers) = mpsc::channel();
        // Servers end with the thread that started them, so this one stays.
        thread::spawn(move || {
            let servers = Servers::start("tests");
            let bindery = servers.start_bindery(&servers.node.kubeconfig());
            started.send((servers, bindery)).unwrap();
            loop {
                thread::park();
            }
        });
        servers.recv().expect("the panic of the thread above says why they do not start")
    });
    servers
}

/// The objects of the shared cluster. Each test has its own names.
pub(crate) async fn objects() -> Objects {
    servers().objects().await
}

impl Servers {
    /// Starts the servers of a cluster with this name.
    pub(crate) fn start(name: &str) -> Self {
        let node = Node::start(&format!("{name}-{}", std::process::id())).unwrap();
        let folder = TempDir::new().unwrap();
        let root = folder.path();
        let driver = [
            "--socket=/run/csi.sock".to_owned(),
            format!("--registration-socket={REGISTRATION}"),
            format!("--folder={}", root.join("volumes").display()),
            format!("--node={}", bindery_node::NAME),
        ];
        let (program, log) = (built("bindery-csi-driver"), root.join("csi-driver.log"));
        let driver = node.start_server(&program, words(driver), &log).unwrap();
        let provisioner = [
            format!("--kubeconfig={}", node.kubeconfig_inside().display()),
            "--csi-address=/run/csi.sock".to_owned(),
        ];
        let (program, log) = (offered("BINDERY_CSI_PROVISIONER"), root.join("csi-provisioner.log"));
        let provisioner = node.start_server(&program, words(provisioner), &log).unwrap();
        Self { _storage: [driver, provisioner], node, folder }
    }

    /// Starts `bindery serve` with the reclaimers, as the cluster's binder.
    pub(crate) fn start_bindery(&self, kubeconfig: &Path) -> Server {
        let reclaimers = self.folder.path().join("reclaimers.yaml");
        std::fs::write(&reclaimers, RECLAIMERS).unwrap();
        let arguments = [
            "serve".to_owned(),
            format!("--policy={}", reclaimers.display()),
            format!("--policies={}", offered("BINDERY_POLICIES").display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--listen=127.0.0.1:{}", bindery_cluster::free_port().unwrap()),
        ];
        let log = self.folder.path().join("bindery.log");
        Server::start(&built("bindery"), words(arguments), &log).unwrap()
    }

    /// The cluster's objects.
    pub(crate) async fn objects(&self) -> Objects {
        let folder = self.folder.path().to_owned();
        Objects::new(self.node.client().await.unwrap(), move || log_ends(&folder))
    }

    /// The folder of a volume.
    pub(crate) fn csi_volume(&self, handle: &str) -> PathBuf {
        self.folder.path().join("volumes").join(handle)
    }
}

fn words<const N: usize>(arguments: [String; N]) -> [OsString; N] {
    arguments.map(OsString::from)
}
