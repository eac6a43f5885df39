//! Credentials that rotate, for each way to give them in a kubeconfig, and credentials that are refused at
//! the start.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bindery_cluster::{Cluster, Manager, Replica, Server, kubeconfig, poll, refused, request};
use bindery_kit::Authority;
use futures::future::select_all;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// A certificate of version 1, which rcgen does not make, and its key.
const VERSION_1: [&str; 2] = [
    "-----BEGIN CERTIFICATE-----
MIIBFzCBvQIUZ7PuhwKPfAykFqD9BB9VNeuuZzcwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCdjEwIBcNMjYxMTIzMTcxNjA0WhgPMjEyNjEwMzAxNzE2MDRaMA0xCzAJ
BgNVBAMMAnYxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEr3PtnYF5spguAe8u
0k5X8Cz3y1XwVVEozaXj37HVMX0Ztq8adlvaFlwwqVwzCYEGmbTOTJQJ6nhycgUA
UD+IgDAKBggqhkjOPQQDAgNJADBGAiEA8potmciNu4MqUonBjKksAeNEqO07m44H
MgVJinL6USoCIQD64ZPFeChX0vD1JeXsD+Af+iyrMicA4hiazaArtlcmqA==
-----END CERTIFICATE-----
",
    "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgzQPWVusO8sZphCbf
9jlhgIc9PzwrdgZJIqkGnxDMlAehRANCAASvc+2dgXmymC4B7y7STlfwLPfLVfBV
USjNpePfsdUxfRm2rxp2W9oWXDCpXDMJgQaZtM5MlAnqeHJyBQBQP4iA
-----END PRIVATE KEY-----
",
];

/// A command in a mount namespace of its own, which has the folder `$0` where a pod has its service account.
const POD: &str = r#"mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io &&
    ln -s "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@""#;

/// The authority that an API server trusts at one time, and the credentials that it accepts.
struct Generation {
    number: u8,
    authority: Authority,
    certificate: String,
    key: String,
}

impl Generation {
    fn new(number: u8) -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.client("bindery", "bindery");
        Self { number, authority, certificate, key }
    }

    fn token(&self) -> String {
        format!("token-{}", self.number)
    }

    /// The output of a credential plugin.
    fn issued(&self, further: Value) -> String {
        let mut status = json!({"token": self.token()});
        status.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        credential(status)
    }
}

fn credential(status: Value) -> String {
    json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
        .to_string()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Replaces a file by renaming, as most programs do that renew certificates.
    fn replace(&self, name: &str, text: &str) {
        self.write("next", text);
        fs::rename(self.path("next"), self.path(name)).unwrap();
    }

    /// Swaps the files of a mounted Secret, as a kubelet does.
    fn mount(&self, generation: &Generation) {
        let folder = format!("mounted/..{}", generation.number);
        fs::create_dir_all(self.path(&folder)).unwrap();
        let issued = generation.issued(json!({}));
        let (certificate, key) = (&generation.certificate, &generation.key);
        let identity = credential(json!({"clientCertificateData": certificate, "clientKeyData": key}));
        // With the newline of editors and `echo`.
        let token = format!("{}\n", generation.token());
        for (name, text) in [
            ("tls.crt", certificate),
            ("tls.key", key),
            ("token", &token),
            ("plugin.json", &issued),
            ("identity.json", &identity),
        ] {
            self.write(&format!("{folder}/{name}"), text);
            // Links of the first generation exist already, and lead through the link that is swapped.
            let _ = symlink(format!("..data/{name}"), self.path(&format!("mounted/{name}")));
        }
        symlink(format!("..{}", generation.number), self.path("mounted/..next")).unwrap();
        fs::rename(self.path("mounted/..next"), self.path("mounted/..data")).unwrap();
    }

    /// Writes the files by which a starting API server accepts these credentials and the test's own.
    fn trust(&self, generation: &Generation) {
        self.write("clients.crt", &generation.authority.pem());
        let tokens =
            format!("bindery,admin,admin,system:masters\n{},b,b,system:masters\n", generation.token());
        self.write("tokens.csv", &tokens);
    }

    fn kubeconfig(&self, name: &str, cluster: &Value, user: &Value) -> PathBuf {
        self.write(name, &kubeconfig(cluster, user).to_string());
        self.path(name)
    }

    /// A user whose credential plugin prints a file.
    fn plugin(&self, file: &str) -> Value {
        exec("cat", &[self.path(file).to_str().unwrap()])
    }
}

pub(crate) fn exec(command: &str, arguments: &[&str]) -> Value {
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "args": arguments,
        "interactiveMode": "Never",
    }})
}

fn start(kubeconfig: &Path, identity: &str) -> Replica {
    Replica::start(kubeconfig, identity, &[], &[("BINDERY_ENGINE", "native".into())])
}

/// Each of these replicas leads and binds, one after the other.
async fn bind_in_turn(cluster: &Cluster, mut replicas: Vec<Replica>) {
    while !replicas.is_empty() {
        let name = format!("v{}", replicas.len());
        let leading = replicas.iter_mut().map(|replica| Box::pin(replica.until_leading()));
        let (_, leader, _) = select_all(leading).await;
        cluster.bind_pair(&name).await;
        replicas.swap_remove(leader).terminate().await;
    }
}

/// The API server changes its certificate, the authority of clients and the tokens at the same time. The
/// credentials of the replicas change later, so that all are seen to be refused first.
#[tokio::test]
async fn credentials_that_rotate_are_used_without_a_restart() {
    let folder = Folder::new();
    let [first, second] = [1, 2].map(Generation::new);
    folder.mount(&first);
    folder.trust(&first);
    folder.write("single.crt", &first.certificate);
    folder.write("single.key", &first.key);
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(15);
    folder.write("expires.json", &first.issued(json!({"expirationTimestamp": soon.to_string()})));
    let further = [
        format!("--client-ca-file={}", folder.path("clients.crt").display()),
        format!("--token-auth-file={}", folder.path("tokens.csv").display()),
    ];
    let further = further.each_ref().map(String::as_str);
    let mut cluster = Cluster::start_with(Manager::Off, &further).await;

    // The cluster of the test's own kubeconfig.
    let own: Value = serde_json::from_str(&fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let server = &own["clusters"][0]["cluster"];
    let users = [
        json!({"client-certificate": "mounted/tls.crt", "client-key": "mounted/tls.key"}),
        json!({"tokenFile": "mounted/token"}),
        folder.plugin("mounted/plugin.json"),
        folder.plugin("mounted/identity.json"),
        json!({"client-certificate": "single.crt", "client-key": "single.key"}),
        folder.plugin("expires.json"),
    ];
    let mut replicas = Vec::new();
    for (at, user) in users.iter().enumerate() {
        replicas.push(start(&folder.kubeconfig(&format!("kubeconfig-{at}"), server, user), &at.to_string()));
    }
    for replica in &mut replicas {
        replica.until_listed().await;
        replica.until_ready().await;
    }
    let expiring = &mut replicas[5];
    expiring.until_logged("the credential plugin has run again").await;
    assert!(!expiring.get("/metrics").await.contains("code=\"401\""), "{}", expiring.log());
    folder.replace("expires.json", &first.issued(json!({})));

    folder.trust(&second);
    for own in ["apiserver.crt", "apiserver.key"] {
        fs::remove_file(cluster.kubeconfig().with_file_name(own)).unwrap();
    }
    cluster.plane.restart_api_server().await.unwrap();
    let cluster = Cluster::connect(cluster.plane).await;
    let not_ready = "[+]lists ok\n[-]credentials failed: the API server refuses them: it answers 401";
    for replica in &mut replicas {
        replica.until_answer("/readyz", not_ready).await;
        replica.until_metrics("bindery_credentials_refused 1\n").await;
    }

    folder.mount(&second);
    folder.replace("expires.json", &second.issued(json!({})));
    folder.replace("single.key", &second.key);
    replicas[4].until_logged("single.key of user \"u\" is not the key of the client certificate").await;
    folder.replace("single.crt", &second.certificate);
    for replica in &mut replicas {
        replica.until_ready().await;
        replica.until_metrics("bindery_credentials_refused 0\n").await;
    }

    bind_in_turn(&cluster, replicas).await;
}

/// Creates a service account; returns its token.
async fn create_account(cluster: &Cluster, name: &str) -> String {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"},
    });
    cluster.create(&account, "").await.unwrap();
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{name}/token");
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = cluster.send(request(Method::POST, &path, &wanted)).await.unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// The first account has no rights, so the second token is used for all that is done.
#[tokio::test]
async fn given_a_pod_whose_token_is_replaced_the_new_one_is_used() {
    let (cluster, folder) = (Cluster::start(Manager::Off).await, Folder::new());
    let [first, second] = [create_account(&cluster, "first").await, create_account(&cluster, "second").await];
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "second"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "second"}],
    });
    cluster.create(&binding, "").await.unwrap();
    let own: Value = serde_json::from_str(&fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let server = &own["clusters"][0]["cluster"];
    let port = server["server"].as_str().unwrap().rsplit(':').next().unwrap();
    fs::copy(server["certificate-authority"].as_str().unwrap(), folder.path("ca.crt")).unwrap();
    folder.write("namespace", "default");
    folder.write("token", &first);

    let environment =
        [("KUBERNETES_SERVICE_HOST", "127.0.0.1".into()), ("KUBERNETES_SERVICE_PORT", port.into())];
    let isolated =
        ["--user", "--map-root-user", "--mount", "sh", "-c", POD, folder.0.path().to_str().unwrap()];
    let serve = [env!("CARGO_BIN_EXE_bindery"), "serve", "--engine=native", "--listen=127.0.0.1:0"];
    let words = isolated.into_iter().chain(serve).map(OsString::from);
    let server = Server::start_in(&environment, "unshare".as_ref(), words, &folder.path("log")).unwrap();
    let refused = "\"system:serviceaccount:default:first\" cannot list";
    let is_refused = poll(async || server.log().unwrap().contains(refused).then_some(()));
    assert!(is_refused.await.is_some(), "{}", server.log().unwrap());
    folder.replace("token", &second);
    cluster.bind_pair("v").await;
}

#[tokio::test]
async fn a_start_that_waits_for_a_credential_plugin_ends_with_it_by_a_signal() {
    let folder = Folder::new();
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // The child of the plugin holds the pipe too.
    let script = format!("exec 3> {}; sleep 1000 & wait", pipe.display());
    let cluster = json!({"server": "https://127.0.0.1:1"});
    let kubeconfig = folder.kubeconfig("kubeconfig", &cluster, &exec("sh", &["-c", &script]));
    let mut replica = start(&kubeconfig, "first");
    let opened = spawn_blocking(move || File::open(pipe).unwrap());
    let mut pipe = opened.await.unwrap();
    replica.until_logged("the credential plugin takes long; it is killed after 60s command=\"sh\"").await;
    replica.terminate().await;
    spawn_blocking(move || assert_eq!(pipe.read(&mut [0]).unwrap(), 0)).await.unwrap();
}

/// Checks that `bindery serve` refuses a kubeconfig with a sentence that contains `said`.
fn check_refused(folder: &Folder, cluster: &Value, user: &Value, said: &str) {
    let mut reachable = json!({"server": "https://127.0.0.1:1"});
    reachable.as_object_mut().unwrap().extend(cluster.as_object().unwrap().clone());
    let kubeconfig = folder.kubeconfig("kubeconfig", &reachable, user);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let complaint = refused(&["--kubeconfig", kubeconfig]);
    let begin = format!("--kubeconfig {kubeconfig} cannot be used: ");
    assert!(complaint.contains(&begin) && complaint.contains(said), "no {said:?} in {complaint}");
}

#[test]
fn a_cluster_of_a_kubeconfig_that_cannot_be_used_is_refused_by_field() {
    let folder = Folder::new();
    folder.write("good.crt", &Generation::new(1).certificate);
    for (cluster, said) in [
        (json!({"proxy-url": "http://p:1"}), "cluster \"c\" has proxy-url, which Bindery does not support"),
        (
            json!({"certificate-authority-data": "Z2FyYmFnZQ=="}),
            "certificate-authority-data of cluster \"c\" holds no certificate",
        ),
        (
            json!({"certificate-authority-data": "~"}),
            "certificate-authority-data of cluster \"c\" is not base64",
        ),
        (json!({"certificate-authority": "none.crt"}), "none.crt of cluster \"c\" cannot be read"),
        (
            json!({"certificate-authority": "good.crt", "insecure-skip-tls-verify": true}),
            "insecure-skip-tls-verify and a certificate authority",
        ),
        (json!({"tls-servername": "kubernetes"}), "cluster \"c\" has a field \"tls-servername\""),
    ] {
        check_refused(&folder, &cluster, &json!({"token": "t"}), said);
    }
}

#[test]
fn a_user_of_a_kubeconfig_that_cannot_be_used_is_refused_by_field() {
    let folder = Folder::new();
    let good = Generation::new(1);
    folder.write("good.crt", &good.certificate);
    folder.write("good.key", &good.key);
    folder.write("other.key", &Generation::new(2).key);
    folder.write("version-1.crt", VERSION_1[0]);
    folder.write("version-1.key", VERSION_1[1]);
    folder.write("empty", "\n");
    let pair = |certificate: &str, key: &str| json!({"client-certificate": certificate, "client-key": key});
    for (user, said) in [
        (
            json!({"auth-provider": {"name": "oidc"}}),
            "user \"u\" has auth-provider, which Bindery does not support",
        ),
        (
            json!({"token": "t", "exec": exec("cat", &[])["exec"]}),
            "in several ways: token or tokenFile; exec",
        ),
        (json!({"username": "u"}), "one of username and password"),
        (json!({"token": "a\nb"}), "token of user \"u\" holds more than a token"),
        (json!({"tokenFile": "empty"}), "empty of user \"u\" is empty"),
        (json!({"client-certificate": "good.crt"}), "good.crt of user \"u\" is given without the other half"),
        (pair("good.crt", "other.key"), "other.key of user \"u\" is not the key of the client certificate"),
        (pair("good.key", "good.key"), "good.key of user \"u\" holds no certificate"),
        (pair("good.crt", "good.crt"), "good.crt of user \"u\" holds no private key"),
        (pair("version-1.crt", "version-1.key"), "version-1.crt of user \"u\" is an X.509 v1 certificate"),
    ] {
        check_refused(&folder, &json!({}), &user, said);
    }
}

#[test]
fn a_credential_plugin_that_issues_nothing_is_refused_by_name() {
    let folder = Folder::new();
    let old = json!({"command": "cat", "apiVersion": "client.authentication.k8s.io/v1alpha1"});
    for (user, said) in [
        (exec("false", &[]), "credential plugin false ended with exit status: 1"),
        (exec("/nonexistent", &[]), "credential plugin /nonexistent cannot be started"),
        (exec("echo", &["{}"]), "credential plugin echo printed no ExecCredential"),
        (
            exec("echo", &[&credential(json!({}))]),
            "credential plugin echo printed neither a token nor a client certificate",
        ),
        (json!({"exec": old}), "has apiVersion \"client.authentication.k8s.io/v1alpha1\""),
    ] {
        check_refused(&folder, &json!({}), &user, said);
    }
}
