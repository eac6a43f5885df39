//! Tools from Go modules. Each is a `tool` of a module below `tools/`, which pins all that it is built from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::python;
use crate::{process, workspace};

/// A module below `tools/`.
pub(crate) struct Module {
    /// The folder with its go.mod.
    folder: &'static str,
    /// The module that it pins, which contains the commands.
    path: &'static str,
    /// A string variable that the linker sets to the version. Without it upstream's programs call themselves
    /// v0.0.0.
    version_variable: Option<&'static str>,
    /// A build tag.
    tag: Option<&'static str>,
}

const fn module(folder: &'static str, path: &'static str, version_variable: &'static str) -> Module {
    Module { version_variable: Some(version_variable), ..plain(folder, path) }
}

const fn plain(folder: &'static str, path: &'static str) -> Module {
    Module { folder, path, version_variable: None, tag: None }
}

/// The Kubernetes that Bindery is compared with.
pub(crate) const KUBERNETES: Module = kubernetes("kubernetes");

pub(super) const fn kubernetes(folder: &'static str) -> Module {
    module(folder, "k8s.io/kubernetes", "k8s.io/component-base/version.gitVersion")
}

pub(super) const ETCD: Module = plain("etcd", "go.etcd.io/etcd/server/v3");
pub(super) const CONTAINERD: Module = module(
    "containerd",
    "github.com/containerd/containerd/v2",
    "github.com/containerd/containerd/v2/version.Version",
);
pub(super) const CSI_PROVISIONER: Module =
    module("csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6", "main.version");
pub(super) const HELM: Module = module("helm", "helm.sh/helm/v4", "helm.sh/helm/v4/internal/version.version");
pub(super) const HELM_3: Module =
    module("helm3", "helm.sh/helm/v3", "helm.sh/helm/v3/internal/version.version");
pub(super) const K9S: Module =
    module("k9s", "github.com/derailed/k9s", "github.com/derailed/k9s/cmd.version");
pub(super) const ACTIONLINT: Module = plain("actionlint", "github.com/rhysd/actionlint");
/// Version 1.11 is the last whose commands belong to the main module. The Go proxy does not serve the modules
/// of the later commands.
pub(super) const CERT_MANAGER: Module = module(
    "cert-manager",
    "github.com/cert-manager/cert-manager",
    "github.com/cert-manager/cert-manager/pkg/util.AppVersion",
);
pub(super) const KUBE_ROUTER: Module = module(
    "kube-router",
    "github.com/cloudnativelabs/kube-router/v2",
    "github.com/cloudnativelabs/kube-router/v2/pkg/version.Version",
);
/// Built without service discovery: it scrapes nothing, and the Go proxy lacks some of those dependencies.
pub(super) const PROMETHEUS: Module = Module {
    tag: Some("remove_all_sd"),
    ..module("prometheus", "github.com/prometheus/prometheus", "github.com/prometheus/common/version.Version")
};
/// Clients of registries, and a registry with the referrers API.
pub(super) const CRANE: Module = module(
    "crane",
    "github.com/google/go-containerregistry",
    "github.com/google/go-containerregistry/cmd/crane/cmd.Version",
);
/// The registry that most others are made of. It has no referrers API.
pub(super) const REGISTRY: Module = module(
    "registry",
    "github.com/distribution/distribution/v3",
    "github.com/distribution/distribution/v3/version.version",
);
pub(super) const COSIGN_2: Module =
    module("cosign2", "github.com/sigstore/cosign/v2", "sigs.k8s.io/release-utils/version.gitVersion");
pub(super) const COSIGN_3: Module =
    module("cosign3", "github.com/sigstore/cosign/v3", "sigs.k8s.io/release-utils/version.gitVersion");
/// Definitions of custom resources; no command is built.
pub(super) const DEFINITIONS: [Module; 2] = [
    plain("definitions", "github.com/cert-manager/cert-manager"),
    plain("definitions", "github.com/prometheus-operator/prometheus-operator"),
];

/// A command of a Go module.
pub(super) struct Package {
    module: Module,
    path: String,
}

impl Module {
    /// The command of this name below `cmd`.
    pub(super) fn command(self, name: &str) -> Package {
        let path = format!("{}/cmd/{name}", self.path);
        self.package(path)
    }

    /// The program in the folder itself.
    pub(super) fn own(self) -> Package {
        let path = format!("bindery/tools/{}", self.folder);
        self.package(path)
    }

    /// The command at an import path.
    pub(super) fn package(self, path: impl Into<String>) -> Package {
        Package { module: self, path: path.into() }
    }

    /// The pinned version.
    pub(super) fn version(&self) -> Result<String> {
        Ok(required_version(&read(self.folder, "go.mod")?, self.path)?.to_owned())
    }

    /// The files of the pinned module, downloaded if the module cache lacks them.
    pub(crate) fn fetch(&self) -> Result<PathBuf> {
        let mut command = Command::new(go()?);
        command.args(["mod", "download", "-json", self.path]).current_dir(folder(self.folder));
        let printed: Value = serde_json::from_str(&process::output(command.env_remove("GOFLAGS"))?)
            .with_context(|| format!("go printed no JSON about {}", self.path))?;
        Ok(printed["Dir"].as_str().with_context(|| format!("go names no folder of {}", self.path))?.into())
    }

    fn linker_flags(&self) -> Result<String> {
        Ok(match self.version_variable {
            Some(variable) => format!("-s -w -X {variable}={}", self.version()?),
            None => "-s -w".to_owned(),
        })
    }
}

impl Package {
    /// Names what is built, such as `kubernetes-v1.36.2-0123456789ab`. The end is a digest of the module's
    /// files and the flags.
    pub(super) fn key(&self) -> Result<String> {
        let Module { folder, tag, .. } = self.module;
        let parts = [read(folder, "go.mod")?, read(folder, "go.sum")?, self.module.linker_flags()?];
        // Few folders have a program of their own.
        let own = read(folder, "main.go").ok();
        let key = workspace::content_key(parts.into_iter().chain(tag.map(str::to_owned)).chain(own));
        Ok(format!("{folder}-{}-{}", self.module.version()?, &key[..12]))
    }

    /// Builds the command to `program`.
    pub(super) fn build(&self, program: &Path) -> Result<()> {
        let mut command = command()?;
        command.args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags"]);
        command.arg(self.module.linker_flags()?).args(self.module.tag.map(|tag| format!("-tags={tag}")));
        command.arg("-o").arg(program).arg(&self.path);
        process::run(command.current_dir(folder(self.module.folder)))
    }
}

/// A folder below `tools/`.
fn folder(name: &str) -> PathBuf {
    workspace::root().join("tools").join(name)
}

fn read(folder_name: &str, name: &str) -> Result<String> {
    let path = folder(folder_name).join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Go, as all tools are built by it.
pub(crate) fn command() -> Result<Command> {
    // A build takes minutes of every core; other work goes first.
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(go()?).env("CGO_ENABLED", "0").env_remove("GOFLAGS");
    if std::env::var_os("GOCACHE").is_none() {
        // The modules share most of their packages, so one build's results serve the next.
        command.env("GOCACHE", workspace::cache_folder()?.join("go-build"));
    }
    Ok(command)
}

/// The Go on the path, which fetches a newer one if a module requires it, else that of `tools/go`.
fn go() -> Result<PathBuf> {
    if process::exists("go", "version")? {
        return Ok("go".into());
    }
    Ok(python::install("go", "tools/go".as_ref())?.join("go/bin/go"))
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

    #[test]
    fn the_version_of_a_module_is_the_required_one() {
        let go_mod = "module m\n\ngo 1.26.0\n\nreplace a.io/api => a.io/api v0.1.0\n\ntool a.io/main\n\n\
                      require (\n\ta.io/api v0.0.0\n\ta.io/main v1.2.3 // indirect\n)\n";
        assert_eq!(required_version(go_mod, "a.io/main").unwrap(), "v1.2.3");
        assert_eq!(required_version("require a.io/main v2.0.0", "a.io/main").unwrap(), "v2.0.0");
        assert!(required_version(go_mod, "a.io/other").is_err());
    }
}
