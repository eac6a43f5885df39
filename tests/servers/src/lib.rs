//! Arguments and credentials of etcd, kube-apiserver and upstream's controller manager on this machine.
//!
//! The caller starts them: servers of `cargo xtask cluster` outlive it, servers of tests end with the tests.
//! This is a crate of its own, without heavy dependencies, because `cargo xtask` is compiled before
//! everything else.

mod credentials;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};

pub use credentials::write_kubeconfig;

/// Upstream's binder, for [`Layout::manager`].
pub const THE_BINDER: &str = "persistentvolume-binder-controller";
/// All controllers but the binder, for [`Layout::manager`].
pub const ALL_BUT_THE_BINDER: &str = "*,-persistentvolume-binder-controller";
/// The variables of tests that are settings of `bindery serve` too.
const SETTINGS: [&str; 2] = ["BINDERY_ENGINE", "BINDERY_POLICIES"];

/// Where a control plane listens and writes.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The folder of keys, tokens and certificates.
    pub folder: PathBuf,
    /// The folder of etcd's data.
    pub data: PathBuf,
    /// etcd's port for clients, on loopback.
    pub etcd_port: u16,
    /// etcd's port for peers. It has none.
    pub peer_port: u16,
    /// kube-apiserver's port.
    pub port: u16,
    /// The address of kube-apiserver for nodes. Without nodes it listens on loopback only.
    pub advertised: Option<Ipv4Addr>,
    /// The kubeconfig of the cluster's own programs.
    pub kubeconfig: PathBuf,
}

/// Whether kube-apiserver gives pods the service account of their namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounts {
    /// It does, and refuses pods until the controller manager has created the account.
    Given,
    /// It does not.
    Ignored,
}

impl Layout {
    /// A control plane on free ports of loopback, with all files in one folder.
    pub fn on_loopback(folder: &Path) -> Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            data: folder.join("etcd"),
            etcd_port: free_port()?,
            peer_port: free_port()?,
            port: free_port()?,
            advertised: None,
            kubeconfig: folder.join("kubeconfig"),
        })
    }

    /// The URL of etcd for clients.
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    /// Writes the key that signs tokens of service accounts, the only user, and the kubeconfig.
    pub fn write_credentials(&self) -> Result<()> {
        credentials::write(&self.folder)?;
        write_kubeconfig(&self.folder, &self.kubeconfig, self.port)
    }

    /// etcd's arguments.
    pub fn etcd(&self) -> Vec<OsString> {
        let url = self.etcd_url();
        vec![
            path("--data-dir", &self.data),
            format!("--listen-client-urls={url}").into(),
            format!("--advertise-client-urls={url}").into(),
            format!("--listen-peer-urls=http://127.0.0.1:{}", self.peer_port).into(),
            // The data need not survive the machine.
            "--unsafe-no-fsync".into(),
            // The only member elects itself at once.
            "--heartbeat-interval=10".into(),
            "--election-timeout=100".into(),
        ]
    }

    /// kube-apiserver's arguments.
    pub fn api_server(&self, accounts: Accounts) -> Vec<OsString> {
        let mut arguments = vec![
            format!("--etcd-servers={}", self.etcd_url()).into(),
            format!("--secure-port={}", self.port).into(),
            path("--cert-dir", &self.folder),
            path("--token-auth-file", &self.folder.join(credentials::TOKENS)),
            "--authorization-mode=RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            path("--service-account-key-file", &self.folder.join(credentials::PUBLIC_KEY)),
            path("--service-account-signing-key-file", &self.folder.join(credentials::KEY)),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
        ];
        match self.advertised {
            Some(address) => arguments.extend([
                "--bind-address=0.0.0.0".into(),
                format!("--advertise-address={address}").into(),
                "--allow-privileged".into(),
                "--kubelet-preferred-address-types=InternalIP".into(),
            ]),
            None => arguments.push("--bind-address=127.0.0.1".into()),
        }
        if accounts == Accounts::Ignored {
            arguments.push("--disable-admission-plugins=ServiceAccount".into());
        }
        arguments
    }

    /// The controller manager's arguments. `controllers` is the value of `--controllers`.
    pub fn manager(&self, controllers: &str) -> Result<Vec<OsString>> {
        Ok(vec![
            path("--kubeconfig", &self.kubeconfig),
            format!("--controllers={controllers}").into(),
            "--leader-elect=false".into(),
            path("--service-account-private-key-file", &self.folder.join(credentials::KEY)),
            path("--root-ca-file", &self.folder.join(credentials::CERTIFICATE)),
            path("--cert-dir", &self.folder),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", free_port()?).into(),
        ])
    }

    /// The arguments of kube-scheduler.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub fn scheduler(&self) -> Result<Vec<OsString>> {
        Ok(vec![
            path("--kubeconfig", &self.kubeconfig),
            "--leader-elect=false".into(),
            path("--cert-dir", &self.folder),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", free_port()?).into(),
        ])
    }
}

fn path(option: &str, value: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push("=");
    argument.push(value);
    argument
}

/// A port on loopback that is reserved for the caller for a minute: neither this function nor the system
/// assigns it again.
///
/// The port was the closing end of a connection, which the system remembers for a minute (TIME-WAIT, RFC
/// 9293, section 3.6.1). Meanwhile the system does not assign the port to a program that asks for any port,
/// but a program that names the port and sets `SO_REUSEADDR`, as servers do, can listen on it. So two
/// programs that start at the same time never get the same port.
pub fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port on loopback")?;
    let address = listener.local_addr()?;
    let mut client = TcpStream::connect(address).context("a free port cannot be reserved")?;
    let (server, _) = listener.accept().context("a free port cannot be reserved")?;
    drop(server);
    // The end that closes a connection first is the one that the system remembers.
    io::copy(&mut client, &mut io::sink()).context("a free port cannot be reserved")?;
    Ok(address.port())
}

/// A program of the workspace, which cargo built beside the running test.
///
/// # Panics
///
/// The program is missing.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.ancestors().nth(2).expect("cargo puts a test into a folder of its target folder");
    let program = folder.join(name);
    assert!(program.is_file(), "{} is missing: run `cargo xtask test`", program.display());
    program
}

/// Removes from a program's environment the variables by which tests find their tools. `bindery serve`
/// refuses variables of its prefix that are no settings.
pub fn without_tools(command: &mut Command) -> &mut Command {
    let is_tool = |name: &OsString| {
        let is_setting = SETTINGS.iter().any(|setting| name == setting);
        name.as_encoded_bytes().starts_with(b"BINDERY_") && !is_setting
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_tool) {
        command.env_remove(name);
    }
    command
}

/// Runs a program to its end, with a text on its standard input.
///
/// # Panics
///
/// The program cannot be started.
pub fn run(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // An error means that the program has ended before it has read everything.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_port_is_assigned_once_and_a_server_can_listen_on_it() {
        let ports: Vec<_> = (0..1_000).map(|_| free_port().unwrap()).collect();
        let distinct: HashSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
        for &port in &ports {
            for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
                TcpListener::bind((address, port)).unwrap();
            }
        }
    }
}
