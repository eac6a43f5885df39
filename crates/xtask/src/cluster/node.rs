//! A node: containerd, kubelet, kube-proxy and the scheduler beside a control plane, in namespaces of their
//! own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use bindery_servers::Layout;
use rustix::process::Pid;
use serde_json::{Value, json};

use super::control_plane;
use super::place::Place;
use super::servers::Servers;
use super::{HOLDER, cgroups, image, namespace};
use crate::process;
use crate::tools::{self, Tool, debian};

/// Debian's packages of programs that are not Go programs or need a C compiler. kube-proxy writes its rules
/// with `nft`, and socat connects this machine with the node's network.
const PACKAGES: [&str; 6] =
    ["busybox-static", "containernetworking-plugins", "iproute2", "nftables", "runc", "socat"];
/// The folder of Debian's CNI plugins.
const CNI_PLUGINS: &str = "/usr/lib/cni";
/// The node's name.
const NAME: &str = "node";
/// containerd's socket, in the node's own `/run`.
const CONTAINERD: &str = "/run/containerd/containerd.sock";
/// Arguments of `ctr` for the images that kubelet sees.
const CTR: [&str; 4] = ["--address", CONTAINERD, "--namespace", "k8s.io"];
/// kube-apiserver's port in the node's network.
const PORT: u16 = 6443;

/// The programs of a node.
pub(super) struct Programs {
    containerd: PathBuf,
    /// containerd looks for it on its path.
    shim: PathBuf,
    ctr: PathBuf,
    kubelet: PathBuf,
    kube_proxy: PathBuf,
    kube_scheduler: PathBuf,
    image: PathBuf,
}

impl Programs {
    /// Installs the missing programs. Needs root.
    pub(super) fn install(place: &Place) -> Result<Self> {
        if !process::is_root() {
            bail!("a node needs root (namespaces, mounts, cgroups); `--control-plane` does not");
        }
        if let Some(hidden) = namespace::FOLDERS.iter().find(|folder| place.folder().starts_with(folder)) {
            bail!("a node has its own {hidden}: set BINDERY_CACHE to a folder outside of {hidden}");
        }
        debian::install(&PACKAGES, "a node needs programs that cannot be built here")?;
        Ok(Self {
            containerd: tools::install(Tool::Containerd)?,
            shim: tools::install(Tool::ContainerdShimRuncV2)?,
            ctr: tools::install(Tool::Ctr)?,
            kubelet: tools::install(Tool::Kubelet)?,
            kube_proxy: tools::install(Tool::KubeProxy)?,
            kube_scheduler: tools::install(Tool::KubeScheduler)?,
            image: image::archive()?,
        })
    }
}

/// Starts a control plane with one node, and returns its record.
pub(super) fn start(
    servers: &mut Servers<'_>,
    control_plane: &control_plane::Programs,
    programs: &Programs,
) -> Result<Value> {
    let place = servers.place();
    cgroups::create(&place.cgroup())?;
    let holder = namespace::start(servers)?;
    namespace::open(servers, holder, PORT)?;
    let layout = Layout {
        folder: place.folder().to_owned(),
        data: "/var/lib/etcd".into(),
        etcd_port: 2379,
        peer_port: 2380,
        port: PORT,
        advertised: Some(namespace::ADDRESS),
        kubeconfig: place.file("inside.kubeconfig"),
    };
    control_plane::start(servers, control_plane, &layout)?;
    start_containerd(servers, programs, holder)?;
    control_plane::until_ready(servers, control_plane)?;
    control_plane::start_manager(servers, control_plane, &layout)?;
    start_kubelet(servers, programs, &layout.kubeconfig)?;
    let mut proxy = servers.command("kube-proxy", &programs.kube_proxy);
    proxy.arg("--kubeconfig").arg(&layout.kubeconfig).args(["--hostname-override", NAME]);
    // Without this it sets a limit of the whole machine.
    proxy.args(["--proxy-mode", "nftables", "--conntrack-max-per-core", "0"]);
    servers.start("kube-proxy", &mut proxy)?;
    let mut scheduler = servers.command("kube-scheduler", &programs.kube_scheduler);
    scheduler.arg("--kubeconfig").arg(&layout.kubeconfig).args(["--leader-elect=false", "--cert-dir"]);
    servers.start("kube-scheduler", scheduler.arg(place.folder()))?;

    let reader = servers.reader(&control_plane.kubectl);
    servers.until("the node is ready", || {
        Ok(reader.get_json(&format!("/api/v1/nodes/{NAME}")).filter(is_ready))
    })?;
    control_plane::until_pods_are_admitted(servers, control_plane)?;
    let mut record = control_plane.composition.record(servers);
    record[HOLDER] = holder.as_raw_nonzero().get().into();
    record["images"] = image::NAMES.into();
    Ok(record)
}

/// Whether a node takes pods: it is ready, and its initial taint is gone.
fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let is_true = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let taints = node["spec"]["taints"].as_array();
    conditions.is_some_and(|conditions| conditions.iter().any(is_true)) && taints.is_none_or(Vec::is_empty)
}

/// Starts containerd and loads the image.
fn start_containerd(servers: &mut Servers<'_>, programs: &Programs, holder: Pid) -> Result<()> {
    let place = servers.place();
    let network = place.file("cni");
    std::fs::create_dir(&network).with_context(|| format!("cannot create {}", network.display()))?;
    place.write("cni/10-node.conflist", format!("{:#}\n", pod_network()))?;
    place.write("containerd.toml", containerd_settings(&network))?;
    let mut containerd = servers.command("containerd", &programs.containerd);
    containerd.arg("--config").arg(place.file("containerd.toml"));
    let shim = programs.shim.parent().context("a program must lie in a folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(shim.to_owned()).chain(std::env::split_paths(&path));
    containerd.env("PATH", std::env::join_paths(path).context("PATH cannot be added to")?);
    servers.start("containerd", &mut containerd)?;

    let mut ask = servers.command("ctr", &programs.ctr);
    ask.args(CTR).arg("version").stdout(Stdio::null()).stderr(Stdio::null());
    servers.until("containerd answers", || Ok(ask.status()?.success().then_some(())))?;
    load(holder, &programs.image)
}

/// Loads an image into a node.
pub(super) fn load(holder: Pid, archive: &Path) -> Result<()> {
    // Opened here, since the node does not see all folders of this machine.
    let input = File::open(archive).with_context(|| format!("cannot open {}", archive.display()))?;
    let mut import = Command::new("nsenter");
    namespace::enter(&mut import, holder);
    import.arg(tools::install(Tool::Ctr)?).args(CTR).args(["images", "import", "-"]);
    let import = import.stdin(input).output().context("cannot start nsenter")?;
    if !import.status.success() {
        let why = String::from_utf8_lossy(&import.stderr);
        bail!("cannot load {}: {}", archive.display(), why.trim_end());
    }
    Ok(())
}

/// Each pod gets a pair of interfaces and an address of the pods' own range.
fn pod_network() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "node",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn containerd_settings(network: &Path) -> String {
    format!(
        r#"version = 3
[grpc]
  address = "{CONTAINERD}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{sandbox}"
[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE runc cannot lower a score, and fails.
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{CNI_PLUGINS}"]
  conf_dir = "{network}"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "/usr/sbin/runc"
  SystemdCgroup = false
"#,
        sandbox = image::NAME,
        network = network.display(),
    )
}

fn start_kubelet(servers: &mut Servers<'_>, programs: &Programs, kubeconfig: &Path) -> Result<()> {
    let place = servers.place();
    let settings = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", place.cgroup()),
        "failCgroupV1": false,
        "failSwapOn": false,
        // The machine and its disk serve other programs too.
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "localStorageCapacityIsolation": false,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // The node has no name server.
        "resolvConf": "",
        // For `kubectl logs` kube-apiserver has no client certificate; only the cluster uses this network.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    });
    place.write("kubelet.json", format!("{settings:#}\n"))?;
    let mut kubelet = servers.command("kubelet", &programs.kubelet);
    kubelet.arg("--config").arg(place.file("kubelet.json")).arg("--kubeconfig").arg(kubeconfig);
    kubelet.args(["--hostname-override", NAME, "--node-ip", &namespace::ADDRESS.to_string()]);
    servers.start("kubelet", &mut kubelet)?;
    Ok(())
}
