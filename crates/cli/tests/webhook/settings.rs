//! Settings of the webhook that cannot be used, and levels of rules.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bindery_cluster::{kubeconfig, refused};
use serde_json::json;
use tempfile::TempDir;

use super::webhooks::{ON_LOOPBACK, Webhooks};

#[test]
fn a_setting_of_the_webhook_that_cannot_be_used_is_refused_with_a_remedy() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("kubeconfig");
    let kubeconfig = kubeconfig(&json!({"server": "https://127.0.0.1:1"}), &json!({}));
    fs::write(&path, kubeconfig.to_string()).unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let files = ["--certificate-file", empty, "--certificate-key-file", empty];
    let rows: [(&[&str], &[&str]); 12] = [
        (&["--webhook-connections=9"], &["--webhook-connections", "a whole number from 10 to 100000"]),
        (&["--webhook-connections=100000"], &["--webhook-connections 100000", "limit of files allows"]),
        (&["--webhook-drain=301"], &["--webhook-drain", "a whole number from 0 to 300"]),
        (&["--certificate-lifetime=3"], &["--certificate-lifetime", "30s to 3650d, such as 90d, 36h or 45m"]),
        (&["--certificate-file", empty], &["--certificate-key-file belong together: give both"]),
        (&["--certificate-key-file", empty], &["--certificate-file and", "give both"]),
        (&files, &["--certificate-file and", empty, "holds no certificate in PEM"]),
        (
            &["--certificate-file=/nonexistent", "--certificate-key-file=/nonexistent"],
            &["/nonexistent cannot be read", "is it mounted"],
        ),
        (&["--certificate-name=a b"], &["--certificate-name cannot be used", "\"a b\" is neither"]),
        (&["--webhook-service=A"], &["--webhook-service and --webhook-namespace", "\"A.kube-system.svc\""]),
        (&["--webhook-client-name=x"], &["--webhook-client-name needs --webhook-client-ca"]),
        (
            &["--webhook-client-ca", empty],
            &["--webhook-client-ca cannot be used", empty, "holds no certificate in PEM"],
        ),
    ];
    for (arguments, parts) in rows {
        let usual = ["--kubeconfig", path.to_str().unwrap(), "--webhook-listen=127.0.0.1:0"];
        let arguments: Vec<_> = usual.iter().chain(arguments).copied().collect();
        let complaint = refused(&arguments);
        for part in parts {
            assert!(complaint.contains(part), "no {part:?} in {complaint}");
        }
    }
}

#[tokio::test]
async fn a_rule_of_level_deny_denies_except_in_observe_mode() {
    const MISSING: &str = r#"bindery_admission_findings_total{rule="volume-missing",level="warn"}"#;
    let webhooks = Webhooks::start().await;
    let arguments = [ON_LOOPBACK, "--admission-rule=volume-missing=deny"];
    let named = || json!({"volumeName": "nowhere"});
    let denies = webhooks.replica("denies", &arguments);
    webhooks.apply(&[("first", denies.port)]).await.unwrap();
    webhooks.until_trusted().await;
    let refused = webhooks.until_denied(named()).await.to_string();
    assert!(refused.contains("spec.volumeName") && refused.contains("nowhere"), "{refused}");

    let mut warns = webhooks.replica("warns", &[&arguments[..], &["--mode=observe"]].concat());
    warns.replica.until_listed().await;
    webhooks.apply(&[("first", warns.port)]).await.unwrap();
    webhooks.until_allowed(named()).await;
    assert!(warns.replica.metric(MISSING).await > 0);
    let expires = warns.replica.metric("bindery_certificate_expiry_timestamp_seconds").await;
    let in_89_days = SystemTime::now() + Duration::from_secs(89 * 24 * 3600);
    assert!(UNIX_EPOCH + Duration::from_secs(expires) > in_89_days, "{expires}");
}
