//! The cluster that all tests share, and the servers in it.

use std::ffi::OsString;
use std::path::PathBuf;
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

/// The class whose volumes a reclaimer keeps, if their claims are labelled.
pub(crate) const KEPT_CLASS: &str = "csi-kept";

/// The document of that reclaimer.
const KEEP: &str = "\
apiVersion: policy.bindery.dev/v1alpha1
kind: ReclaimPolicy
metadata: {name: keep}
spec:
  module: builtin:keep-labelled
  match: {classNames: [csi-kept]}
";

/// A cluster with `bindery serve` as its binder, and a CSI driver with its provisioner.
pub(crate) struct Servers {
    pub(crate) node: Node,
    /// Contains logs, and below `volumes` the folders of the CSI driver.
    folder: TempDir,
    _servers: [Server; 3],
}

/// The servers, which the first test starts. They end with the process.
pub(crate) fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let (started, servers) = mpsc::channel();
        // Servers end with the thread that started them, so this one stays.
        thread::spawn(move || {
            started.send(Servers::start()).unwrap();
            loop {
                thread::park();
            }
        });
        servers.recv().expect("the panic of the thread above says why they do not start")
    })
}

/// The objects of the shared cluster. Each test has its own names.
pub(crate) async fn objects() -> Objects {
    Objects::new(servers().node.client().await.unwrap(), || log_ends(servers().folder.path()))
}

impl Servers {
    fn start() -> Self {
        let node = Node::start(&format!("tests-{}", std::process::id())).unwrap();
        let folder = TempDir::new().unwrap();
        let root = folder.path().to_owned();
        let log = |name: &str| root.join(format!("{name}.log"));

        let keep = root.join("keep.yaml");
        std::fs::write(&keep, KEEP).unwrap();
        let bindery = [
            "serve".to_owned(),
            format!("--policy={}", keep.display()),
            format!("--policies={}", offered("BINDERY_POLICIES").display()),
            format!("--kubeconfig={}", node.kubeconfig().display()),
            format!("--listen=127.0.0.1:{}", bindery_cluster::free_port().unwrap()),
        ];
        let bindery = Server::start(&built("bindery"), words(bindery), &log("bindery")).unwrap();
        let driver = [
            "--socket=/run/csi.sock".to_owned(),
            format!("--registration-socket={REGISTRATION}"),
            format!("--folder={}", root.join("volumes").display()),
            format!("--node={}", bindery_node::NAME),
        ];
        let program = built("bindery-csi-driver");
        let driver = node.start_server(&program, words(driver), &log("csi-driver")).unwrap();
        let provisioner = [
            format!("--kubeconfig={}", node.kubeconfig_inside().display()),
            "--csi-address=/run/csi.sock".to_owned(),
        ];
        let program = offered("BINDERY_CSI_PROVISIONER");
        let provisioner = node.start_server(&program, words(provisioner), &log("csi-provisioner")).unwrap();
        Self { node, folder, _servers: [bindery, driver, provisioner] }
    }

    pub(crate) fn csi_volume(&self, handle: &str) -> PathBuf {
        self.folder.path().join("volumes").join(handle)
    }
}

fn words<const N: usize>(arguments: [String; N]) -> [OsString; N] {
    arguments.map(OsString::from)
}
