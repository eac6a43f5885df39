//! Tools from Go modules: each is a `tool` of a module of ours below `tools/`, which pins everything it is
//! built of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Module, python};
use crate::{process, workspace};

/// A command of a Go module.
pub(super) struct Package {
    /// The folder below `tools/` with the go.mod that pins the command.
    folder: &'static str,
    /// The module that gives the command its version.
    module: &'static str,
    /// The package's path.
    package: String,
    /// A string variable that the linker sets to the version; without it upstream's programs call themselves
    /// v0.0.0.
    version_variable: Option<&'static str>,
    /// The build tag that leaves out what the command can do beside what it is for.
    tag: Option<&'static str>,
}

impl Package {
    /// A command of the Kubernetes that a folder pins.
    pub(super) fn kubernetes(folder: &'static str, name: &str) -> Self {
        Self {
            folder,
            module: "k8s.io/kubernetes",
            package: format!("k8s.io/kubernetes/cmd/{name}"),
            version_variable: Some("k8s.io/component-base/version.gitVersion"),
            tag: None,
        }
    }

    /// A command of containerd.
    pub(super) fn containerd(name: &str) -> Self {
        Self {
            folder: "containerd",
            module: "github.com/containerd/containerd/v2",
            package: format!("github.com/containerd/containerd/v2/cmd/{name}"),
            version_variable: Some("github.com/containerd/containerd/v2/version.Version"),
            tag: None,
        }
    }

    /// The sidecar that provisions by CSI drivers.
    pub(super) fn csi_provisioner() -> Self {
        Self {
            folder: "csi-provisioner",
            module: "github.com/kubernetes-csi/external-provisioner/v6",
            package: "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner".to_owned(),
            version_variable: Some("main.version"),
            tag: None,
        }
    }

    /// A command of etcd, each of which is the root of a module: `server` is etcd itself.
    pub(super) fn etcd(module: &str) -> Self {
        Self {
            folder: "etcd",
            module: "go.etcd.io/etcd/server/v3",
            package: format!("go.etcd.io/etcd/{module}/v3"),
            version_variable: None,
            tag: None,
        }
    }

    /// Helm, which installs the chart.
    pub(super) fn helm() -> Self {
        Self {
            folder: "helm",
            module: "helm.sh/helm/v4",
            package: "helm.sh/helm/v4/cmd/helm".to_owned(),
            version_variable: Some("helm.sh/helm/v4/internal/version.version"),
            tag: None,
        }
    }

    /// The Helm of before, by which many still install charts.
    pub(super) fn helm3() -> Self {
        Self {
            folder: "helm3",
            module: "helm.sh/helm/v3",
            package: "helm.sh/helm/v3/cmd/helm".to_owned(),
            version_variable: Some("helm.sh/helm/v3/internal/version.version"),
            tag: None,
        }
    }

    /// A command of cert-manager: of 1.11, the last whose commands are packages of its module. Later ones are
    /// modules of their own, which no proxy serves.
    pub(super) fn cert_manager(name: &str) -> Self {
        Self {
            folder: "cert-manager",
            module: "github.com/cert-manager/cert-manager",
            package: format!("github.com/cert-manager/cert-manager/cmd/{name}"),
            version_variable: Some("github.com/cert-manager/cert-manager/pkg/util.AppVersion"),
            tag: None,
        }
    }

    /// kube-router, which enforces NetworkPolicies on a node.
    pub(super) fn kube_router() -> Self {
        Self {
            folder: "kube-router",
            module: "github.com/cloudnativelabs/kube-router/v2",
            package: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router".to_owned(),
            version_variable: Some("github.com/cloudnativelabs/kube-router/v2/pkg/version.Version"),
            tag: None,
        }
    }

    /// promtool, which evaluates alerts as Prometheus does. It is built without ways to find what to scrape:
    /// it scrapes nothing, and what some of them need no proxy serves.
    pub(super) fn promtool() -> Self {
        Self {
            folder: "prometheus",
            module: "github.com/prometheus/prometheus",
            package: "github.com/prometheus/prometheus/cmd/promtool".to_owned(),
            version_variable: Some("github.com/prometheus/common/version.Version"),
            tag: Some("remove_all_sd"),
        }
    }

    /// kubeconform, which holds manifests against the schemas of a version of Kubernetes.
    pub(super) fn kubeconform() -> Self {
        Self {
            folder: "kubeconform",
            module: "github.com/yannh/kubeconform",
            package: "github.com/yannh/kubeconform/cmd/kubeconform".to_owned(),
            version_variable: Some("main.version"),
            tag: None,
        }
    }

    /// Names what is built: `kubernetes-v1.36.2-0123456789ab`, the end made from the module's files and the
    /// flags.
    pub(super) fn key(&self) -> Result<String> {
        let go_mod = read(self.folder, "go.mod")?;
        let version = required_version(&go_mod, self.module)?;
        let (go_sum, flags) = (read(self.folder, "go.sum")?, self.linker_flags(version));
        let parts = [go_mod.as_str(), &go_sum, &flags];
        let key = workspace::content_key(parts.into_iter().chain(self.tag));
        Ok(format!("{}-{version}-{}", self.folder, &key[..12]))
    }

    /// Builds the command to `program`.
    pub(super) fn build(&self, program: &Path) -> Result<()> {
        let flags = self.linker_flags(required_version(&read(self.folder, "go.mod")?, self.module)?);
        let mut command = command()?;
        command.args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", &flags]);
        command.args(self.tag.map(|tag| format!("-tags={tag}")));
        command.arg("-o").arg(program).arg(&self.package);
        process::run(command.current_dir(folder(self.folder)))
    }

    fn linker_flags(&self, version: &str) -> String {
        match self.version_variable {
            Some(variable) => format!("-s -w -X {variable}={version}"),
            None => "-s -w".to_owned(),
        }
    }
}

/// The version of a module that a folder below `tools/` pins.
pub(super) fn version(folder: &str, module: &str) -> Result<String> {
    Ok(required_version(&read(folder, "go.mod")?, module)?.to_owned())
}

/// A folder below `tools/`.
fn folder(name: &str) -> PathBuf {
    workspace::root().join("tools").join(name)
}

fn read(folder_name: &str, name: &str) -> Result<String> {
    let path = folder(folder_name).join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The files of a module that the go.mod of a folder below `tools/` pins, fetched where the module cache
/// lacks them.
pub(super) fn fetch(pinned_by: &str, module: &str) -> Result<Module> {
    let mut command = Command::new(go()?);
    command.args(["mod", "download", "-json", module]).current_dir(folder(pinned_by)).env_remove("GOFLAGS");
    let told: Value = serde_json::from_str(&process::output(&mut command)?)
        .with_context(|| format!("go told nothing of {module}"))?;
    let text = |field: &str| told[field].as_str().with_context(|| format!("go told no {field} of {module}"));
    Ok(Module { version: text("Version")?.to_owned(), folder: text("Dir")?.into() })
}

/// Go, as everything is built by it.
///
/// # Errors
/// There is none and it cannot be installed.
pub(super) fn command() -> Result<Command> {
    // A build takes minutes of every core; whatever else runs goes first.
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(go()?).env("CGO_ENABLED", "0").env_remove("GOFLAGS");
    if std::env::var_os("GOCACHE").is_none() {
        // The modules have most packages in common, and what one build has compiled serves the next.
        command.env("GOCACHE", workspace::cache_folder()?.join("go-build"));
    }
    Ok(command)
}

/// Go: the one on the path, which fetches a newer one where a module asks for it, else that of `tools/go`.
fn go() -> Result<PathBuf> {
    if process::exists("go", "version")? {
        return Ok("go".into());
    }
    Ok(python::install("go")?.join("go/bin/go"))
}

/// The version of a module that a go.mod requires.
fn required_version<'a>(go_mod: &'a str, module: &str) -> Result<&'a str> {
    let requirement = |line: &'a str| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        (words.next() == Some(module)).then(|| words.next()).flatten()
    };
    go_mod.lines().find_map(requirement).with_context(|| format!("go.mod does not require {module}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str = "module m\n\ngo 1.26.0\n\nreplace a.io/api => a.io/api v0.1.0\n\ntool a.io/main\n\n\
                          require (\n\ta.io/api v0.0.0\n\ta.io/main v1.2.3 // indirect\n)\n";

    #[test]
    fn the_version_is_the_required_one() {
        assert_eq!(required_version(GO_MOD, "a.io/main").unwrap(), "v1.2.3");
        assert_eq!(required_version("require a.io/main v2.0.0", "a.io/main").unwrap(), "v2.0.0");
        assert!(required_version(GO_MOD, "a.io/other").is_err());
    }

    #[test]
    fn every_module_pins_its_version() {
        let packages = [
            Package::kubernetes("kubernetes", "kubectl"),
            Package::kubernetes("kubernetes-oldest", "kube-apiserver"),
            Package::kubernetes("kubernetes-newest", "kube-apiserver"),
            Package::containerd("ctr"),
            Package::csi_provisioner(),
            Package::etcd("server"),
            Package::etcd("etcdutl"),
            Package::helm(),
            Package::helm3(),
            Package::kubeconform(),
            Package::promtool(),
            Package::cert_manager("controller"),
            Package::kube_router(),
        ];
        for package in packages {
            assert!(package.key().unwrap().starts_with(&format!("{}-v", package.folder)));
        }
    }
}
