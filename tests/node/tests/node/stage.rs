//! What all tests share: the cluster, and what runs in it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{OnceLock, mpsc};
use std::thread;

use bindery_chart::{built, offered};
use bindery_cluster::Server;
use bindery_node::Node;
use bindery_node::world::World;
use tempfile::TempDir;

/// Where kubelet finds the driver. It gives the path, escaped, as the name of the host that it asks, which no
/// server but Go's takes for one; with an @ in it, all before that is the name of a user, in which escapes
/// are allowed.
const REGISTRATION: &str = "/var/lib/kubelet/plugins_registry/csi@localhost.sock";

/// The cluster with `bindery serve` as its binder, and a CSI driver with its provisioner.
pub(crate) struct Stage {
    pub(crate) node: Node,
    /// Logs, and below `volumes` the folders of the CSI driver.
    folder: TempDir,
    _servers: [Server; 3],
}

/// The stage, raised by whoever comes first. It goes with the process.
pub(crate) fn stage() -> &'static Stage {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    STAGE.get_or_init(|| {
        let (raised, stage) = mpsc::channel();
        // Servers end with the thread that started them: this one stays.
        thread::spawn(move || {
            raised.send(Stage::raise()).unwrap();
            loop {
                thread::park();
            }
        });
        stage.recv().expect("the thread above says why it cannot be raised")
    })
}

/// A client of the stage's cluster. All tests share it; names are each test's own.
pub(crate) async fn world() -> World {
    World::new(stage().node.client().await.unwrap(), || stage().logs())
}

impl Stage {
    fn raise() -> Self {
        let node = Node::start(&format!("tests-{}", std::process::id())).unwrap();
        let folder = TempDir::new().unwrap();
        let root = folder.path().to_owned();
        let log = |name: &str| root.join(format!("{name}.log"));

        let bindery = [
            "serve".to_owned(),
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

    /// The folder of a volume of the CSI driver.
    pub(crate) fn csi_volume(&self, handle: &str) -> PathBuf {
        self.folder.path().join("volumes").join(handle)
    }

    /// The end of every log, for whoever waits in vain.
    pub(crate) fn logs(&self) -> String {
        let mut logs = String::new();
        for name in ["bindery", "csi-driver", "csi-provisioner"] {
            let text = std::fs::read(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
            let end = &text[text.len().saturating_sub(3_000)..];
            logs += &format!("--- {name}\n{}\n", String::from_utf8_lossy(end));
        }
        logs
    }
}

fn words<const N: usize>(arguments: [String; N]) -> [OsString; N] {
    arguments.map(OsString::from)
}
