//! The pinned programs that tests and checks use, built once from packages into the tools cache.
//!
//! A tool is at `<cache>/tools/<content key>/NAME`, with a stable link at `<cache>/tools/NAME`. The key
//! covers everything that decides what is built, so a new version gets a new folder. A program is built
//! beside its place and then renamed, so what is there is complete. A build waits for another process that
//! builds the same tool.
//!
//! Each version is pinned in one place: Go programs in `tools/*/go.mod` and its checksum file, Python
//! packages in `tools/*/requirements.txt`, cargo programs in [`Tool::source`], and the programs that make
//! components of JavaScript and Python by the policies in these languages.

mod cargo;
pub(crate) mod debian;
pub(crate) mod go;
mod javascript;
mod python;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::workspace;

/// Install tools into the cache and print their paths.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The tools to install.
    #[arg(required = true)]
    tools: Vec<Tool>,
}

/// A program that the automation can install. Its file has the name of the value on the command line.
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
    Helm3,
    K9s,
    Actionlint,
    CertManagerController,
    CertManagerCainjector,
    KubeRouter,
    Promtool,
    Registry,
    ReferrersRegistry,
    Crane,
    Cosign2,
    Cosign3,
    Wkg,
    CargoDeny,
    CargoFuzz,
    CargoMutants,
}

/// The origin of a tool.
enum Source {
    Go(go::Package),
    Cargo(cargo::Package),
}

impl Tool {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no tool is hidden from the command line");
        value.get_name().to_owned()
    }

    fn source(self) -> Source {
        let name = &self.name();
        let cargo = |version| Source::Cargo(cargo::Package { name: name.clone(), version });
        Source::Go(match self {
            Self::Kubectl
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy => go::KUBERNETES.command(name),
            Self::Containerd | Self::ContainerdShimRuncV2 | Self::Ctr => go::CONTAINERD.command(name),
            Self::CsiProvisioner => go::CSI_PROVISIONER.command(name),
            Self::Etcd => go::ETCD.package("go.etcd.io/etcd/server/v3"),
            Self::Etcdutl => go::ETCD.package("go.etcd.io/etcd/etcdutl/v3"),
            Self::Helm => go::HELM.command(name),
            Self::Helm3 => go::HELM_3.command("helm"),
            Self::K9s => go::K9S.package("github.com/derailed/k9s"),
            Self::Actionlint => go::ACTIONLINT.command(name),
            Self::CertManagerController => go::CERT_MANAGER.command("controller"),
            Self::CertManagerCainjector => go::CERT_MANAGER.command("cainjector"),
            Self::KubeRouter => go::KUBE_ROUTER.command(name),
            Self::Promtool => go::PROMETHEUS.command(name),
            Self::Registry => go::REGISTRY.command(name),
            Self::ReferrersRegistry => go::CRANE.own(),
            Self::Crane => go::CRANE.command(name),
            Self::Cosign2 => go::COSIGN_2.command("cosign"),
            Self::Cosign3 => go::COSIGN_3.command("cosign"),
            Self::Wkg => return cargo("0.16.1"),
            Self::CargoDeny => return cargo("0.20.2"),
            Self::CargoFuzz => return cargo("0.13.2"),
            Self::CargoMutants => return cargo("27.1.0"),
        })
    }

    /// Whether `KUBEBUILDER_ASSETS`, the ecosystem's convention, may name a folder with this tool.
    fn may_be_an_asset(self) -> bool {
        matches!(self, Self::Kubectl | Self::Etcd | Self::KubeApiserver)
    }
}

/// The oldest and the newest Kubernetes that Bindery supports, by the folders below `tools/` that pin them.
/// Every change is tested on a version between them.
pub(crate) const SUPPORTED_ENDS: [&str; 2] = ["kubernetes-oldest", "kubernetes-newest"];

/// Installs the programs of a control plane, and passes their paths to a command in variables.
pub(crate) fn offer_control_plane(command: &mut Command) -> Result<()> {
    command.env("BINDERY_KUBE_APISERVER", install(Tool::KubeApiserver)?);
    command.env("BINDERY_KUBE_CONTROLLER_MANAGER", install(Tool::KubeControllerManager)?);
    command.env("BINDERY_KUBE_SCHEDULER", install(Tool::KubeScheduler)?);
    offer_etcd(command)
}

/// As [`offer_control_plane`], with the Kubernetes of one of [`SUPPORTED_ENDS`]. Returns its version.
pub(crate) fn offer_control_plane_of(command: &mut Command, end: &'static str) -> Result<String> {
    for (variable, name) in [
        ("BINDERY_KUBE_APISERVER", "kube-apiserver"),
        ("BINDERY_KUBE_CONTROLLER_MANAGER", "kube-controller-manager"),
    ] {
        command.env(variable, build(name, &Source::Go(go::kubernetes(end).command(name)))?.program);
    }
    offer_etcd(command)?;
    go::kubernetes(end).version()
}

fn offer_etcd(command: &mut Command) -> Result<()> {
    command.env("BINDERY_ETCD", install(Tool::Etcd)?);
    command.env("BINDERY_ETCDUTL", install(Tool::Etcdutl)?);
    Ok(())
}

/// Installs cert-manager, and passes to a command the paths of its programs and of its resource definitions.
pub(crate) fn offer_cert_manager(command: &mut Command) -> Result<()> {
    command.env("BINDERY_CERT_MANAGER_CONTROLLER", install(Tool::CertManagerController)?);
    command.env("BINDERY_CERT_MANAGER_CAINJECTOR", install(Tool::CertManagerCainjector)?);
    let folder = go::CERT_MANAGER.fetch()?.join("deploy/crds");
    let kinds = ["certificaterequests", "certificates", "challenges", "clusterissuers", "issuers", "orders"];
    let files = kinds.map(|kind| folder.join(format!("crd-{kind}.yaml")));
    command.env("BINDERY_CERT_MANAGER_DEFINITIONS", std::env::join_paths(files)?);
    Ok(())
}

/// Installs kube-router, which enforces NetworkPolicies on a node, and passes its path to a command.
pub(crate) fn offer_kube_router(command: &mut Command) -> Result<()> {
    debian::install(&["ipset", "iptables"], "kube-router enforces NetworkPolicies with them")?;
    command.env("BINDERY_KUBE_ROUTER", install(Tool::KubeRouter)?);
    Ok(())
}

/// Installs registries and their clients, and passes their paths to a command, in variables of their names.
pub(crate) fn offer_registries(command: &mut Command) -> Result<()> {
    use Tool::{Cosign2, Cosign3, Crane, ReferrersRegistry, Registry, Wkg};
    for tool in [Registry, ReferrersRegistry, Crane, Cosign2, Cosign3, Wkg] {
        let variable = format!("BINDERY_{}", tool.name().to_uppercase().replace('-', "_"));
        command.env(variable, install(tool)?);
    }
    Ok(())
}

/// A folder with `bin/cargo-zigbuild`, which compiles for other targets, and `ziglang/zig`, its C compiler
/// and linker.
pub(crate) fn zigbuild() -> Result<PathBuf> {
    python::install("zigbuild", "tools/zigbuild".as_ref())
}

/// A folder with Kubernetes' client for Python.
pub(crate) fn python_client() -> Result<PathBuf> {
    python::install("python-client", "tools/python-client".as_ref())
}

/// The programs that make components of JavaScript and Python, which policies pin.
pub(crate) struct Componentize {
    /// A folder with `node_modules`, for policies in JavaScript.
    pub(crate) js: PathBuf,
    /// A folder of Python's packages with `bin/componentize-py`, for policies in Python.
    pub(crate) py: PathBuf,
}

/// Installs the programs of [`Componentize`].
pub(crate) fn componentize() -> Result<Componentize> {
    let js = javascript::install("componentize-js", "policies/prefer-owner".as_ref())?;
    let py = python::install("componentize-py", "policies/wear".as_ref())?;
    Ok(Componentize { js, py })
}

/// The definitions of the custom resources of cert-manager and of the Prometheus operator that the chart
/// contains.
pub(crate) fn definitions() -> Result<Vec<PathBuf>> {
    let [cert_manager, prometheus] = go::DEFINITIONS.map(|module| module.fetch());
    let (certificates, monitoring) =
        (cert_manager?.join("deploy/crds"), prometheus?.join("example/prometheus-operator-crd"));
    Ok(vec![
        certificates.join("cert-manager.io_certificates.yaml"),
        certificates.join("cert-manager.io_issuers.yaml"),
        monitoring.join("monitoring.coreos.com_prometheusrules.yaml"),
        monitoring.join("monitoring.coreos.com_servicemonitors.yaml"),
    ])
}

/// Carries out `cargo xtask tools NAME…`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for tool in &arguments.tools {
        crate::say(format_args!("{}", install(*tool)?.display()));
    }
    Ok(())
}

/// The path of a tool, which is built first if the cache lacks it.
pub(crate) fn install(tool: Tool) -> Result<PathBuf> {
    let name = &tool.name();
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

/// Builds a program if the cache lacks it.
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
            let _part = crate::timing::begin(&format!("build {name}"));
            eprintln!("building {name} ({key}) once, into {}", tools.display());
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

/// Points the link at the target in one step; a correct link is left alone.
fn link(target: &Path, link: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|current| current == target) {
        return Ok(());
    }
    let unfinished = workspace::beside(link);
    // An interrupted run with the same process id may have left one.
    let _ = fs::remove_file(&unfinished);
    std::os::unix::fs::symlink(target, &unfinished)
        .and_then(|()| fs::rename(&unfinished, link))
        .with_context(|| format!("cannot point {} at {}", link.display(), target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_go_tool_has_a_module_that_pins_its_version() {
        let tools = Tool::value_variants().iter().map(|tool| tool.source());
        let ends = SUPPORTED_ENDS.map(|end| Source::Go(go::kubernetes(end).command("kube-apiserver")));
        for source in tools.chain(ends) {
            if let Source::Go(package) = source {
                let key = package.key().unwrap();
                assert!(key.contains("-v"), "{key}");
            }
        }
    }
}
