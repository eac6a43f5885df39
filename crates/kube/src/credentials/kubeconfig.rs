//! Reads the current context of a kubeconfig, or the pod's service account.
//!
//! Each field of a kubeconfig is either used or refused by its name. kube ignores some, such as a second way
//! to authenticate.

use std::collections::BTreeMap;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::CredentialsError;
use super::plugin::Plugin;
use super::source::{Field, FieldValue, Source};

/// kube takes a proxy from these if the kubeconfig names none.
const PROXY_VARIABLES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];

/// The server and user of a context: without a name the current one, without a path that of the kubeconfig
/// which kubectl reads.
pub(crate) async fn read(path: Option<&Path>, context: Option<&str>) -> Result<Source, CredentialsError> {
    let kubeconfig = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let mut kubeconfig = kubeconfig.map_err(|error| refused(error.to_string()))?;
    if let Some(name) = context {
        kubeconfig.current_context = Some(name.to_owned());
    }
    source(kubeconfig).await
}

/// The service account of the pod.
pub(crate) fn in_cluster() -> Result<Source, CredentialsError> {
    let not_there = |error: kube::config::InClusterError| CredentialsError::NotInCluster(error.to_string());
    let mut config = kube::Config::incluster().map_err(not_there)?;
    let field =
        |name, path| Field { name, owner: "the service account".to_owned(), value: FieldValue::File(path) };
    config.root_cert = None;
    let authorities = config.root_cert_file.take().map(|path| field("ca.crt", path));
    let token = config.auth_info.token_file.take().map(|path| field("token", path.into()));
    Ok(Source { config, authorities, identity: None, token, plugin: None })
}

async fn source(mut kubeconfig: Kubeconfig) -> Result<Source, CredentialsError> {
    let name = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| refused("it has no current-context: set it to the name of a context"))?;
    let named = kubeconfig.contexts.iter().find(|named| named.name == name);
    let named = named.ok_or_else(|| refused(format!("it has no context {name:?}: name another one")))?;
    let in_context = format!("context {name:?}");
    let context = named.context.clone().unwrap_or_default();
    refuse_unknown(&in_context, [&named.other, &context.other])?;
    let cluster = kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster);
    let cluster = cluster.and_then(|named| Some((named.cluster.as_mut()?, &named.other)));
    let absent = || refused(format!("there is no cluster {:?}, which {in_context} names", context.cluster));
    let (cluster, other) = cluster.ok_or_else(absent)?;
    let owner = format!("cluster {:?}", context.cluster);
    check_cluster(&owner, cluster, other)?;
    let told = cluster.clone();
    let (data, file) = (cluster.certificate_authority_data.take(), cluster.certificate_authority.take());
    let authorities = field(&owner, ["certificate-authority-data", "certificate-authority"], data, file)?;
    let mut source = Source {
        config: kube::Config::new(http::Uri::default()),
        authorities,
        identity: None,
        token: None,
        plugin: None,
    };
    // A context without a user is for a server that accepts everyone.
    if let Some(name) = context.user.as_deref().filter(|name| !name.is_empty()) {
        let user = kubeconfig.auth_infos.iter_mut().find(|named| named.name == name);
        let absent = || refused(format!("there is no user {name:?}, which {in_context} names"));
        let user = user.ok_or_else(absent)?;
        let owner = format!("user {name:?}");
        refuse_unknown(&owner, [&user.other])?;
        if let Some(user) = &mut user.auth_info {
            take_user(&owner, user, told, &mut source)?;
        }
    }
    // kube reads the rest: the server, its name, impersonation and so on.
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    source.config = config.map_err(|error| refused(error.to_string()))?;
    Ok(source)
}

fn check_cluster(
    owner: &str,
    cluster: &Cluster,
    other: &BTreeMap<String, Value>,
) -> Result<(), CredentialsError> {
    refuse_unknown(owner, [other, &cluster.other])?;
    if cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty()) {
        return Err(refused(format!(
            "{owner} has proxy-url, which Bindery does not support: remove it, and let Bindery reach the API \
             server directly"
        )));
    }
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = PROXY_VARIABLES.into_iter().find(is_set) {
        return Err(refused(format!(
            "{name} is set in the environment, and Bindery does not support proxies: unset it, and let \
             Bindery reach the API server directly"
        )));
    }
    let has_authorities =
        cluster.certificate_authority.is_some() || cluster.certificate_authority_data.is_some();
    if cluster.insecure_skip_tls_verify == Some(true) && has_authorities {
        return Err(refused(format!(
            "{owner} has insecure-skip-tls-verify and a certificate authority, which would not be used: \
             remove one of them"
        )));
    }
    Ok(())
}

/// Refuses what is not supported, and several ways to authenticate.
fn check_user(owner: &str, user: &AuthInfo) -> Result<(), CredentialsError> {
    refuse_unknown(owner, [&user.other])?;
    if user.auth_provider.is_some() {
        return Err(refused(format!(
            "{owner} has auth-provider, which Bindery does not support: use a credential plugin (exec), \
             such as kubelogin"
        )));
    }
    if user.username.is_some() != user.password.is_some() {
        return Err(refused(format!("{owner} has one of username and password without the other")));
    }
    let ways = [
        ("token or tokenFile", user.token.is_some() || user.token_file.is_some()),
        ("username and password", user.username.is_some()),
        ("exec", user.exec.is_some()),
    ];
    let given: Vec<_> = ways.into_iter().filter_map(|(way, is_given)| is_given.then_some(way)).collect();
    if given.len() > 1 {
        return Err(refused(format!(
            "{owner} authenticates in several ways: {}; keep one of them",
            given.join("; ")
        )));
    }
    Ok(())
}

/// Moves the fields that are followed from the user to the source.
fn take_user(
    owner: &str,
    user: &mut AuthInfo,
    cluster: Cluster,
    source: &mut Source,
) -> Result<(), CredentialsError> {
    check_user(owner, user)?;
    source.identity = take_identity(owner, user)?;
    // As in client-go, the file is preferred, because it rotates.
    source.token = match (user.token_file.take(), inline(user.token.take())) {
        (Some(path), _) => Some(at(owner, "tokenFile", path)),
        (None, Some(token)) => {
            let value = FieldValue::Inline(token.into_bytes());
            Some(Field { name: "token", owner: owner.to_owned(), value })
        }
        (None, None) => None,
    };
    if let Some(exec) = user.exec.take() {
        refuse_unknown(&format!("exec of {owner}"), [&exec.other])?;
        let told = exec.provide_cluster_info.then_some(cluster);
        source.plugin = Some(Plugin::new(exec, told)?);
    }
    Ok(())
}

/// The client certificate and its key: both, or neither.
fn take_identity(owner: &str, user: &mut AuthInfo) -> Result<Option<(Field, Field)>, CredentialsError> {
    let (data, file) = (user.client_certificate_data.take(), user.client_certificate.take());
    let certificate = field(owner, ["client-certificate-data", "client-certificate"], data, file)?;
    let (data, file) = (inline(user.client_key_data.take()), user.client_key.take());
    let key = field(owner, ["client-key-data", "client-key"], data, file)?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(only), None) | (None, Some(only)) => {
            Err(only
                .error("is given without the other half of its pair: give a client certificate and its key"))
        }
    }
}

fn inline(secret: Option<SecretString>) -> Option<String> {
    secret.map(|secret| secret.expose_secret().to_owned())
}

/// A field that a kubeconfig may give inline, in base64, or as a file; inline is preferred.
fn field(
    owner: &str,
    [inline, by_path]: [&'static str; 2],
    data: Option<String>,
    file: Option<String>,
) -> Result<Option<Field>, CredentialsError> {
    match (data, file) {
        (Some(data), _) => {
            let refused = || refused(format!("{inline} of {owner} is not base64"));
            let value = BASE64_STANDARD.decode(data).map_err(|_| refused())?;
            Ok(Some(Field { name: inline, owner: owner.to_owned(), value: FieldValue::Inline(value) }))
        }
        (None, Some(path)) => Ok(Some(at(owner, by_path, path))),
        (None, None) => Ok(None),
    }
}

fn at(owner: &str, name: &'static str, path: String) -> Field {
    Field { name, owner: owner.to_owned(), value: FieldValue::File(path.into()) }
}

/// Refuses fields that kube does not know, which are mostly mistyped.
fn refuse_unknown<const N: usize>(
    owner: &str,
    others: [&BTreeMap<String, Value>; N],
) -> Result<(), CredentialsError> {
    match others.into_iter().flat_map(BTreeMap::keys).next() {
        Some(name) => {
            Err(refused(format!("{owner} has a field {name:?}, which Bindery does not know: remove it")))
        }
        None => Ok(()),
    }
}

fn refused(why: impl Into<String>) -> CredentialsError {
    CredentialsError::Kubeconfig(why.into())
}
