//! The pinned programs that tests and checks use, built once from packages into the tools cache.
//!
//! A tool lies at `<cache>/tools/<content key>/NAME`, with a stable link to it at `<cache>/tools/NAME`. The
//! key covers everything that decides what is built, so a new version is a new folder, and a folder is
//! complete: each program is built beside its place and then renamed into it. Building waits for another
//! process that builds the same tool.
//!
//! Versions are pinned in one place each: Go programs by `tools/*/go.mod` and its checksum file, packages of
//! Python by `tools/*/requirements.txt`, cargo programs by their line in [`Tool::source`].

mod cargo;
pub(crate) mod debian;
mod go;
mod python;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::workspace;

/// Install tools into the cache and print where they are.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The tools to install.
    #[arg(required = true)]
    tools: Vec<Tool>,
}

/// A program that the automation can install.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Tool {
    Kubectl,
    Etcd,
    Etcdutl,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubelet,
    KubeProxy,
    Containerd,
    ContainerdShimRuncV2,
    Ctr,
    CsiProvisioner,
    Helm,
    Kubeconform,
    CertManagerController,
    CertManagerCainjector,
    KubeRouter,
    Promtool,
    CargoDeny,
    CargoFuzz,
    CargoMutants,
}

/// Where a tool comes from.
enum Source {
    Go(go::Package),
    Cargo(cargo::Package),
}

impl Tool {
    /// The name of the program's file.
    fn name(self) -> &'static str {
        match self {
            Self::Kubectl => "kubectl",
            Self::Etcd => "etcd",
            Self::Etcdutl => "etcdutl",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Containerd => "containerd",
            Self::ContainerdShimRuncV2 => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::CsiProvisioner => "csi-provisioner",
            Self::Helm => "helm",
            Self::Kubeconform => "kubeconform",
            Self::CertManagerController => "cert-manager-controller",
            Self::CertManagerCainjector => "cert-manager-cainjector",
            Self::KubeRouter => "kube-router",
            Self::Promtool => "promtool",
            Self::CargoDeny => "cargo-deny",
            Self::CargoFuzz => "cargo-fuzz",
            Self::CargoMutants => "cargo-mutants",
        }
    }

    fn source(self) -> Source {
        match self {
            Self::Kubectl
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy => Source::Go(go::Package::kubernetes("kubernetes", self.name())),
            Self::Containerd | Self::ContainerdShimRuncV2 | Self::Ctr => {
                Source::Go(go::Package::containerd(self.name()))
            }
            Self::CsiProvisioner => Source::Go(go::Package::csi_provisioner()),
            Self::Etcd => Source::Go(go::Package::etcd("server")),
            Self::Etcdutl => Source::Go(go::Package::etcd("etcdutl")),
            Self::Helm => Source::Go(go::Package::helm()),
            Self::Kubeconform => Source::Go(go::Package::kubeconform()),
            Self::CertManagerController => Source::Go(go::Package::cert_manager("controller")),
            Self::CertManagerCainjector => Source::Go(go::Package::cert_manager("cainjector")),
            Self::KubeRouter => Source::Go(go::Package::kube_router()),
            Self::Promtool => Source::Go(go::Package::promtool()),
            Self::CargoDeny => Source::Cargo(cargo::Package { name: "cargo-deny", version: "0.20.2" }),
            Self::CargoFuzz => Source::Cargo(cargo::Package { name: "cargo-fuzz", version: "0.13.2" }),
            Self::CargoMutants => Source::Cargo(cargo::Package { name: "cargo-mutants", version: "27.1.0" }),
        }
    }

    /// Whether `KUBEBUILDER_ASSETS`, the ecosystem's convention, may name a folder that holds this tool.
    fn may_be_an_asset(self) -> bool {
        matches!(self, Self::Kubectl | Self::Etcd | Self::KubeApiserver)
    }
}

/// The oldest and the newest Kubernetes that Bindery supports, by the folders below `tools/` that pin them.
/// Every change is tried on one between them.
pub(crate) const SUPPORTED_ENDS: [&str; 2] = ["kubernetes-oldest", "kubernetes-newest"];

/// Installs what a control plane is made of, and tells a command where it is, in variables of the programs'
/// names.
///
/// # Errors
/// As [`install`].
pub(crate) fn offer_control_plane(command: &mut Command) -> Result<()> {
    let programs = [
        ("BINDERY_ETCD", Tool::Etcd),
        ("BINDERY_ETCDUTL", Tool::Etcdutl),
        ("BINDERY_KUBE_APISERVER", Tool::KubeApiserver),
        ("BINDERY_KUBE_CONTROLLER_MANAGER", Tool::KubeControllerManager),
    ];
    for (variable, tool) in programs {
        command.env(variable, install(tool)?);
    }
    Ok(())
}

/// As [`offer_control_plane`], with an API server and a controller manager of one of [`SUPPORTED_ENDS`].
/// Answers its version.
///
/// # Errors
/// As [`install`].
pub(crate) fn offer_control_plane_of(command: &mut Command, end: &'static str) -> Result<String> {
    command.env("BINDERY_ETCD", install(Tool::Etcd)?);
    command.env("BINDERY_ETCDUTL", install(Tool::Etcdutl)?);
    for (variable, name) in [
        ("BINDERY_KUBE_APISERVER", "kube-apiserver"),
        ("BINDERY_KUBE_CONTROLLER_MANAGER", "kube-controller-manager"),
    ] {
        command.env(variable, build(name, &Source::Go(go::Package::kubernetes(end, name)))?.program);
    }
    go::version(end, "k8s.io/kubernetes")
}

/// Installs Helm 3, and tells a command that it is the Helm to use.
///
/// # Errors
/// As [`install`].
pub(crate) fn offer_helm3(command: &mut Command) -> Result<()> {
    command.env("BINDERY_HELM", build("helm3", &Source::Go(go::Package::helm3()))?.program);
    Ok(())
}

/// The sources of the Kubernetes that Bindery is compared with.
///
/// # Errors
/// When the module cannot be fetched.
pub(crate) fn kubernetes_sources() -> Result<PathBuf> {
    Ok(go::fetch("kubernetes", "k8s.io/kubernetes")?.folder)
}

/// Go, for who builds what is no tool.
///
/// # Errors
/// When there is none and it cannot be installed.
pub(crate) fn go_command() -> Result<Command> {
    go::command()
}

/// Installs cert-manager, and tells a command where its programs and the definitions of its resources are.
///
/// # Errors
/// As [`install`], and when the module cannot be fetched.
pub(crate) fn offer_cert_manager(command: &mut Command) -> Result<()> {
    command.env("BINDERY_CERT_MANAGER_CONTROLLER", install(Tool::CertManagerController)?);
    command.env("BINDERY_CERT_MANAGER_CAINJECTOR", install(Tool::CertManagerCainjector)?);
    let folder =
        go::fetch("cert-manager", "github.com/cert-manager/cert-manager")?.folder.join("deploy/crds");
    let kinds = ["certificaterequests", "certificates", "challenges", "clusterissuers", "issuers", "orders"];
    let files = kinds.map(|kind| folder.join(format!("crd-{kind}.yaml")));
    let joined = std::env::join_paths(files).context("the module cache lies where a path has a colon")?;
    command.env("BINDERY_CERT_MANAGER_DEFINITIONS", joined);
    Ok(())
}

/// Installs what enforces NetworkPolicies on a node, and tells a command where it is.
///
/// # Errors
/// As [`install`], and when the packages that it calls cannot be installed.
pub(crate) fn offer_kube_router(command: &mut Command) -> Result<()> {
    debian::install(&["ipset", "iptables"], "kube-router enforces NetworkPolicies by them")?;
    command.env("BINDERY_KUBE_ROUTER", install(Tool::KubeRouter)?);
    Ok(())
}

/// A folder with `bin/cargo-zigbuild`, which compiles for other targets, and `ziglang/zig`, which it compiles
/// C and links with.
///
/// # Errors
/// When Python's pip is missing or fails.
pub(crate) fn zigbuild() -> Result<PathBuf> {
    python::install("zigbuild")
}

/// A Go module as the module cache has it.
pub(crate) struct Module {
    /// Its version, `v1.36.2`.
    pub(crate) version: String,
    /// Its files.
    pub(crate) folder: PathBuf,
}

/// The module of Kubernetes that its programs are built from: it holds more than programs.
///
/// # Errors
/// When Go is missing and cannot be installed, or the module cannot be fetched.
pub(crate) fn kubernetes_module() -> Result<Module> {
    go::fetch("kubernetes", "k8s.io/kubernetes")
}

/// The definitions of the custom resources of cert-manager and of the Prometheus operator that the chart
/// makes.
///
/// # Errors
/// As [`kubernetes_module`].
pub(crate) fn definitions() -> Result<Vec<PathBuf>> {
    let cert_manager = go::fetch("definitions", "github.com/cert-manager/cert-manager")?;
    let prometheus = go::fetch("definitions", "github.com/prometheus-operator/prometheus-operator")?;
    let certificates = cert_manager.folder.join("deploy/crds");
    let watching = prometheus.folder.join("example/prometheus-operator-crd");
    Ok(vec![
        certificates.join("cert-manager.io_certificates.yaml"),
        certificates.join("cert-manager.io_issuers.yaml"),
        watching.join("monitoring.coreos.com_prometheusrules.yaml"),
        watching.join("monitoring.coreos.com_servicemonitors.yaml"),
    ])
}

/// Carries out `cargo xtask tools NAME…`.
///
/// # Errors
/// As [`install`].
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for tool in &arguments.tools {
        crate::say(format_args!("{}", install(*tool)?.display()));
    }
    Ok(())
}

/// The path of a tool, built first where the cache does not have it.
///
/// # Errors
/// When `KUBEBUILDER_ASSETS` is set but lacks the tool, when what builds it is missing (the error says what
/// to install), or when the build fails.
pub(crate) fn install(tool: Tool) -> Result<PathBuf> {
    let name = tool.name();
    if tool.may_be_an_asset()
        && let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty())
    {
        return asset(Path::new(&assets), name);
    }
    let Built { program, relative } = build(name, &tool.source())?;
    link(&relative, &workspace::cache_folder()?.join("tools").join(name))?;
    Ok(program)
}

/// A program in the cache.
struct Built {
    program: PathBuf,
    /// Its path within the folder of the tools.
    relative: PathBuf,
}

/// Builds a program where the cache does not have it.
fn build(name: &str, source: &Source) -> Result<Built> {
    let key = match source {
        Source::Go(package) => package.key()?,
        Source::Cargo(package) => package.key(),
    };
    let tools = workspace::cache_folder()?.join("tools");
    let relative = Path::new(&key).join(name);
    let program = tools.join(&relative);
    if !program.is_file() {
        fs::create_dir_all(tools.join(&key)).with_context(|| format!("cannot create {}", tools.display()))?;
        let lock_path = tools.join(format!(".{name}.lock"));
        let lock =
            File::create(&lock_path).with_context(|| format!("cannot create {}", lock_path.display()))?;
        lock.lock().with_context(|| format!("cannot lock {}", lock_path.display()))?;
        if !program.is_file() {
            eprintln!("building {name} ({key}), once; it is kept in {}", tools.display());
            let unfinished = workspace::beside(&program);
            match source {
                Source::Go(package) => package.build(&unfinished)?,
                Source::Cargo(package) => package.build(&unfinished)?,
            }
            fs::rename(&unfinished, &program)
                .with_context(|| format!("cannot put {name} at {}", program.display()))?;
        }
    }
    Ok(Built { program, relative })
}

fn asset(assets: &Path, name: &str) -> Result<PathBuf> {
    let program = assets.join(name);
    if !program.is_file() {
        bail!(
            "KUBEBUILDER_ASSETS is {}, which has no {name}: unset it to have {name} built, or put it there",
            assets.display()
        );
    }
    Ok(program)
}

/// Points the link at the target, in one step; a link that is right is left alone.
fn link(target: &Path, link: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|current| current == target) {
        return Ok(());
    }
    let unfinished = workspace::beside(link);
    // A run that ended at this point under the same process id may have left one.
    let _ = fs::remove_file(&unfinished);
    std::os::unix::fs::symlink(target, &unfinished)
        .and_then(|()| fs::rename(&unfinished, link))
        .with_context(|| format!("cannot point {} at {}", link.display(), target.display()))
}
