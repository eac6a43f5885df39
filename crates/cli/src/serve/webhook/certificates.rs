//! The webhook's certificate: from files, or made by Bindery.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use bindery_controller::Regressions;
use bindery_kube::{ApiClient, CertificateStore};
use bindery_webhook::certificates::{
    CertificateSettings, CertificateStatus, Identity, IdentityFiles, Keeper, LIFETIME_MIN, Names,
};
use bindery_webhook::tls::Credentials;
use tokio::sync::Notify;

/// Longest lifetime of a certificate.
const LIFETIME_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

#[derive(clap::Args)]
pub(super) struct CertificateArguments {
    /// Certificate of the webhook, PEM, followed by its intermediate certificates. It is read again when it
    /// changes, for example when cert-manager renews it. By default Bindery makes and renews certificates
    /// itself, by the settings below.
    #[arg(long, value_name = "FILE", env = "BINDERY_CERTIFICATE_FILE")]
    certificate_file: Option<PathBuf>,
    /// The private key of --certificate-file, PEM, without a password.
    #[arg(long, value_name = "FILE", env = "BINDERY_CERTIFICATE_KEY_FILE")]
    certificate_key_file: Option<PathBuf>,
    /// Namespace of the webhook's Service, and of the Secret.
    #[arg(long, value_name = "NAMESPACE", env = "BINDERY_WEBHOOK_NAMESPACE", default_value = "kube-system")]
    webhook_namespace: String,
    /// Name of the webhook's Service, for which certificates are made.
    #[arg(long, value_name = "NAME", env = "BINDERY_WEBHOOK_SERVICE", default_value = "bindery")]
    webhook_service: String,
    /// Further host names or IP addresses for which certificates are made, if the API server calls the
    /// webhook by a URL. Repeat it, or separate several by commas.
    #[arg(long, value_name = "NAME", env = "BINDERY_CERTIFICATE_NAME", value_delimiter = ',')]
    certificate_name: Vec<String>,
    /// Name of the Secret in which all replicas keep the certificate. Bindery creates it if it does not
    /// exist; delete it for a new certificate.
    #[arg(long, value_name = "NAME", env = "BINDERY_CERTIFICATE_SECRET", default_value = "bindery-tls")]
    certificate_secret: String,
    /// Name of the ValidatingWebhookConfiguration. Bindery writes the authority into `clientConfig.caBundle`
    /// of each of its webhooks, and nothing else.
    #[arg(long, value_name = "NAME", env = "BINDERY_WEBHOOK_CONFIGURATION", default_value = "bindery")]
    webhook_configuration: String,
    /// Name of the MutatingWebhookConfiguration by which claims are steered. Bindery writes the authority
    /// into it too. Off by default.
    #[arg(long, value_name = "NAME", env = "BINDERY_STEER_CONFIGURATION")]
    steer_configuration: Option<String>,
    /// Lifetime of a certificate, such as 90d, 36h or 45m; 30s at least. The next one is made when a third of
    /// it is left.
    #[arg(long, value_name = "TIME", env = "BINDERY_CERTIFICATE_LIFETIME", default_value = "90d",
          value_parser = lifetime)]
    certificate_lifetime: Duration,
}

/// The source of certificates.
pub(super) enum Source {
    Files(IdentityFiles),
    Kept { keeper: Box<Keeper<CertificateStore>>, store: CertificateStore, names: Names },
}

impl CertificateArguments {
    /// The first certificate, and the source of further ones.
    pub(super) async fn open(
        &self,
        client: &ApiClient,
        status: &Arc<CertificateStatus>,
    ) -> Result<(Identity, Source)> {
        match (&self.certificate_file, &self.certificate_key_file) {
            (Some(certificate), Some(key)) => {
                let mut files = IdentityFiles::identity(certificate.clone(), key.clone());
                let context = "--certificate-file and --certificate-key-file cannot be used";
                let identity = files.load().context(context)?;
                if identity.validity().not_after <= SystemTime::now() {
                    tracing::warn!(path = ?certificate, "the certificate has expired; API servers refuse it");
                }
                status.show(&identity);
                Ok((identity, Source::Files(files)))
            }
            (None, None) => self.keep(client, status).await,
            _ => bail!(
                "--certificate-file and --certificate-key-file belong together: give both, or none for \
                 certificates that Bindery makes itself"
            ),
        }
    }

    async fn keep(&self, client: &ApiClient, status: &Arc<CertificateStatus>) -> Result<(Identity, Source)> {
        let service = Names::of_service(&self.webhook_service, &self.webhook_namespace);
        let service =
            service.context("--webhook-service and --webhook-namespace make no name of a Service")?;
        let further = Names::new(self.certificate_name.iter().cloned());
        let names = service.and(&further.context("--certificate-name cannot be used")?);
        let settings = CertificateSettings { names: names.clone(), lifetime: self.certificate_lifetime };
        let store = CertificateStore::new(
            client.clone(),
            &self.webhook_namespace,
            &self.certificate_secret,
            &self.webhook_configuration,
        );
        let store = store.with_mutating(self.steer_configuration.clone());
        let opened = Keeper::open(store.clone(), settings, SystemTime::now, Arc::clone(status)).await;
        let (keeper, identity) = opened.context("--certificate-secret cannot be used")?;
        Ok((identity, Source::Kept { keeper: Box::new(keeper), store, names }))
    }
}

impl Source {
    /// Takes further certificates into use, for as long as it is polled. After each of `restores` of etcd the
    /// watches start again: they would wait for versions that etcd no longer has.
    pub(super) async fn follow(
        self,
        credentials: &Credentials,
        status: &Arc<CertificateStatus>,
        mut restores: Regressions,
    ) {
        match self {
            Self::Files(files) => {
                let change = |identity: Identity| {
                    credentials.show(&identity);
                    // Last, so that the metrics never run ahead of the certificate in use.
                    status.show(&identity);
                };
                files.run(Arc::clone(status), change).await;
            }
            Self::Kept { keeper, store, .. } => {
                let changes = Arc::<Notify>::default();
                let kept = keeper.run(Arc::clone(&changes), |identity| credentials.show(identity));
                let watched = async {
                    loop {
                        tokio::select! {
                            () = store.watch(Arc::clone(&changes)) => return,
                            Ok(()) = restores.changed() => {}
                        }
                    }
                };
                tokio::join!(kept, watched);
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(_) => f.write_str("from files"),
            Self::Kept { names, .. } => write!(f, "made by Bindery for {names}"),
        }
    }
}

/// Reads a lifetime, such as `90d`.
fn lifetime(text: &str) -> Result<Duration, String> {
    let unit = |unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(24 * 3600),
        _ => None,
    };
    let read = || {
        let (at, last) = text.char_indices().next_back()?;
        let seconds = text[..at].parse::<u64>().ok()?.checked_mul(unit(last)?)?;
        Some(Duration::from_secs(seconds)).filter(|time| (LIFETIME_MIN..=LIFETIME_MAX).contains(time))
    };
    read().ok_or_else(|| "it is not a time from 30s to 3650d, such as 90d, 36h or 45m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_number_and_a_unit() {
        for (text, seconds) in [("30s", 30), ("45m", 2_700), ("36h", 129_600), ("90d", 7_776_000)] {
            assert_eq!(lifetime(text), Ok(Duration::from_secs(seconds)));
        }
        for text in [
            "",
            "d",
            "90",
            "29s",
            "3651d",
            "1w",
            "-1d",
            "1.5h",
            "99999999999999999999d",
            "1ä",
            "9223372036854775807d",
        ] {
            assert!(lifetime(text).is_err(), "{text}");
        }
    }
}
