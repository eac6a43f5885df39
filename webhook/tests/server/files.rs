//! Certificates in files that another program changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bindery_kit::{Authority, poll};
use bindery_webhook::certificates::{CertificateStatus, Identity, IdentityFiles};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::fixture::{NAME, PATIENCE};

/// A folder in which a kubelet mounts a Secret: files are links into `..data`, a link to a folder with a
/// date.
struct Mount {
    folder: TempDir,
    versions: usize,
}

impl Mount {
    fn new(content: &(String, String)) -> Self {
        let mut mount = Self { folder: TempDir::new().unwrap(), versions: 0 };
        mount.swap(content);
        for name in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), mount.path(name)).unwrap();
        }
        mount
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn swap(&mut self, (certificate, key): &(String, String)) {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        fs::create_dir(self.path(&version)).unwrap();
        fs::write(self.path(&version).join("tls.crt"), certificate).unwrap();
        fs::write(self.path(&version).join("tls.key"), key).unwrap();
        symlink(&version, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
    }

    fn files(&self) -> IdentityFiles {
        IdentityFiles::identity(self.path("tls.crt"), self.path("tls.key"))
    }
}

fn identity((certificate, key): &(String, String)) -> Identity {
    Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
}

async fn until_failures(status: &CertificateStatus, failures: u64) {
    let counted = async || (status.failures() >= failures).then_some(());
    poll(Duration::from_secs(1), PATIENCE, counted).await.expect("the failure is counted");
}

/// The next certificate that is taken from the files.
async fn next(changes: &mut mpsc::UnboundedReceiver<Identity>) -> Identity {
    tokio::time::timeout(PATIENCE, changes.recv()).await.expect("the change is seen").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_mounted_secret_is_followed_and_a_broken_one_ignored() {
    let authority = Authority::new();
    let [first, second, third] = [(); 3].map(|()| authority.server(NAME));
    let mut mount = Mount::new(&first);
    let mut files = mount.files();
    assert_eq!(files.load().unwrap(), identity(&first));

    let status = Arc::<CertificateStatus>::default();
    let (sender, mut changes) = mpsc::unbounded_channel();
    let following = files.run(Arc::clone(&status), move |identity| sender.send(identity).unwrap());
    tokio::spawn(following);
    mount.swap(&second);
    assert_eq!(next(&mut changes).await, identity(&second));
    assert_eq!(status.failures(), 0);

    // Half of a new certificate, nonsense, nothing, and at last all of it.
    let mut failures = 0;
    for spoilt in [
        (third.0.clone(), second.1.clone()),
        ("x".to_owned(), third.1.clone()),
        (String::new(), String::new()),
    ] {
        mount.swap(&spoilt);
        failures += 1;
        until_failures(&status, failures).await;
        assert!(changes.try_recv().is_err());
    }
    fs::remove_file(mount.path("..data")).unwrap();
    until_failures(&status, 4).await;
    mount.swap(&third);
    assert_eq!(next(&mut changes).await, identity(&third));
    assert_eq!(status.failures(), 4);
}

#[test]
fn an_error_names_the_file_and_the_remedy() {
    let authority = Authority::new();
    let (first, second) = (authority.server(NAME), authority.server(NAME));
    let mut mount = Mount::new(&first);
    let mut complaint = |certificate: &str, key: &str| {
        mount.swap(&(certificate.to_owned(), key.to_owned()));
        mount.files().load().unwrap_err().to_string()
    };
    for (certificate, key, parts) in [
        (
            first.0.as_str(),
            second.1.as_str(),
            ["tls.key is not the key of the certificate in", "tls.crt: give both"],
        ),
        ("", first.1.as_str(), ["tls.crt holds no certificate in PEM", "BEGIN CERTIFICATE"]),
        (first.0.as_str(), "", ["tls.key holds no private key in PEM", "without a password"]),
        (first.1.as_str(), first.1.as_str(), ["tls.crt holds no certificate in PEM", ""]),
        (first.0.as_str(), first.0.as_str(), ["tls.key holds no private key in PEM", ""]),
        (
            "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n",
            first.1.as_str(),
            ["tls.crt holds a certificate that cannot be read", ""],
        ),
    ] {
        let complaint = complaint(certificate, key);
        for part in parts {
            assert!(complaint.contains(part), "no {part:?} in {complaint}");
        }
    }
    let complaint =
        IdentityFiles::identity("/nonexistent/tls.crt".into(), "/nonexistent/tls.key".into()).load();
    let complaint = complaint.unwrap_err().to_string();
    for part in ["/nonexistent/tls.crt cannot be read", "No such file", "is it mounted, and may user"] {
        assert!(complaint.contains(part), "no {part:?} in {complaint}");
    }
}
