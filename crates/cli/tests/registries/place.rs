//! Two registries with TLS and a password, and the programs that use them.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use bindery_cluster::{Server, poll};
use bindery_kit::Authority;
use serde_json::json;
use tokio::net::TcpStream;

use crate::support::{Ended, Home, ended, root};

/// The registry of `distribution`, which has no referrers API.
pub(crate) const WITHOUT_REFERRERS: &str = "192.0.2.1";
/// The registry of go-containerregistry, which has it.
pub(crate) const WITH_REFERRERS: &str = "192.0.2.2";
pub(crate) const HOSTS: [&str; 2] = [WITHOUT_REFERRERS, WITH_REFERRERS];
/// The user of both. The password is also that of all keys.
pub(crate) const USER: &str = "ann";
pub(crate) const PASSWORD: &str = "secret";
/// The password by bcrypt, the only form that `distribution` reads: `htpasswd -nbBC 5 ann secret`.
const HASHED: &str = "$2b$05$AxZ5GuAJ4dI56trv.4AOMeveLq9ivCizk/a7vwzJhX2..oDH2JVWC";

/// A home with credentials, authorities and the policy `same-zone`, and the registries.
pub(crate) struct Place {
    pub(crate) home: Home,
    _servers: [Server; 2],
}

impl Place {
    /// Starts the registries, which have nothing.
    pub(crate) async fn start() -> Self {
        let home = Home::new();
        let authority = Authority::new();
        home.file("ca.pem", authority.pem());
        for host in HOSTS {
            let (certificate, key) = authority.server(host);
            home.file(&format!("{host}.crt"), certificate);
            home.file(&format!("{host}.key"), key);
        }
        let auth = json!({"username": USER, "password": PASSWORD, "auth": "YW5uOnNlY3JldA=="});
        let auths = json!({"auths": {WITHOUT_REFERRERS: auth, WITH_REFERRERS: auth}});
        home.file(".docker/config.json", auths.to_string());
        home.file("nobody.json", r#"{"auths": {}}"#);
        let policies =
            PathBuf::from(std::env::var_os("BINDERY_POLICIES").expect("`cargo xtask soak` sets it"));
        home.file("same-zone.wasm", fs::read(policies.join("same-zone.wasm")).unwrap());
        for file in ["README.md", "cases/cases.yaml"] {
            home.file(file, fs::read(root().join("policies/same-zone").join(file)).unwrap());
        }
        let servers = [distribution(&home), with_referrers(&home)];
        for (host, server) in HOSTS.into_iter().zip(&servers) {
            let started = poll(async || TcpStream::connect((host, 443)).await.ok()).await;
            assert!(started.is_some(), "{host} does not start: {}", server.log().unwrap());
        }
        Self { home, _servers: servers }
    }

    /// Runs a program of others, or `bindery policy`.
    pub(crate) fn run(&self, name: &str, arguments: &[&str]) -> Ended {
        let authorities = self.home.path().join("ca.pem");
        let mut command = match name {
            "bindery" => self.home.command(&["policy"]),
            _ => self.home.program(program(name)),
        };
        command.args(arguments).env("COSIGN_PASSWORD", PASSWORD);
        command.env("BINDERY_REGISTRY_CA", &authorities).env("SSL_CERT_FILE", &authorities);
        ended(command, "")
    }

    /// Runs a program, which must succeed; returns what it prints.
    pub(crate) fn done(&self, name: &str, arguments: &[&str]) -> String {
        let ended = self.run(name, arguments);
        assert_eq!(ended.status, 0, "{name} {arguments:?}: {ended:?}");
        ended.stdout
    }

    /// Pushes `same-zone` to a repository; returns its digest.
    pub(crate) fn push(&self, host: &str, repository: &str) -> String {
        let to = format!("oci://{host}/{repository}:1.0.0");
        let pushed = self.done("bindery", &["push", "same-zone.wasm", &to]);
        pushed.trim_end().split_once('@').unwrap().1.to_owned()
    }

    pub(crate) fn read(&self, file: &str) -> Vec<u8> {
        let path = self.home.path().join(file);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// The path of a program, which is in a variable of its name.
fn program(name: &str) -> PathBuf {
    let variable = format!("BINDERY_{}", name.to_uppercase().replace('-', "_"));
    let missing = || panic!("{variable} is not set: run `cargo xtask soak registries`");
    std::env::var_os(&variable).unwrap_or_else(missing).into()
}

fn distribution(home: &Home) -> Server {
    let path = |name: &str| home.path().join(name);
    let config = json!({
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": path("storage")}},
        "http": {
            "addr": format!("{WITHOUT_REFERRERS}:443"),
            "secret": "of one process",
            "tls": {
                "certificate": path(&format!("{WITHOUT_REFERRERS}.crt")),
                "key": path(&format!("{WITHOUT_REFERRERS}.key")),
            },
        },
        "auth": {"htpasswd": {"realm": "registry", "path": path("htpasswd")}},
    });
    home.file("htpasswd", format!("{USER}:{HASHED}\n"));
    home.file("registry.yaml", config.to_string());
    // It would send traces to a collector on this machine.
    let quiet = [("OTEL_TRACES_EXPORTER", PathBuf::from("none"))];
    let arguments = [OsString::from("serve"), path("registry.yaml").into()];
    Server::start_in(&quiet, &program("registry"), arguments, &path("registry.log")).unwrap()
}

fn with_referrers(home: &Home) -> Server {
    let path = |name: String| home.path().join(name).into_os_string();
    let arguments: [OsString; 5] = [
        format!("{WITH_REFERRERS}:443").into(),
        path(format!("{WITH_REFERRERS}.crt")),
        path(format!("{WITH_REFERRERS}.key")),
        USER.into(),
        PASSWORD.into(),
    ];
    let log = home.path().join("referrers-registry.log");
    Server::start(&program("referrers-registry"), arguments, &log).unwrap()
}
