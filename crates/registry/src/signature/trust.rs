//! Which keys are trusted for which modules.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::TrustedKeys;
use crate::credentials::HUB;
use crate::error::RegistryError;
use crate::reference::{Reference, SCHEME, is_component, is_host, is_loopback, without_port};

/// A beginning of references: `oci://HOST[:PORT][/REPOSITORY]`. It ends where a component of the repository
/// does: `oci://ghcr.io/team` is one of `oci://ghcr.io/team/zones`, not of `oci://ghcr.io/teammates/zones`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    host: String,
    /// Components of the repository.
    components: Vec<String>,
}

impl Prefix {
    /// Whether a reference begins with it.
    fn is_of(&self, reference: &Reference) -> bool {
        let mut components = reference.repository().split('/');
        self.host == canonical(reference.host())
            && self.components.iter().all(|component| components.next() == Some(component))
    }
}

/// The one spelling of a host and its port, so that no other spelling of a host is governed by other keys.
fn canonical(host: &str) -> String {
    let name = without_port(host);
    let default = if is_loopback(host) { 80 } else { 443 };
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).unwrap_or(default);
    let name = match name.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => name.trim_end_matches('.').to_ascii_lowercase(),
    };
    let name = if HUB.contains(&&*name) { HUB[0] } else { &name };
    format!("{name}:{port}")
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = if is_loopback(&self.host) { ":80" } else { ":443" };
        write!(f, "{SCHEME}{}", self.host.strip_suffix(port).unwrap_or(&self.host))?;
        self.components.iter().try_for_each(|component| write!(f, "/{component}"))
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?}: {why}; give oci://HOST or oci://HOST/REPOSITORY");
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with oci://"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, repository) = match rest.split_once('/') {
            Some((host, repository)) => (host, Some(repository)),
            None => (rest, None),
        };
        if !is_host(host) {
            return Err(wrong("the host is a name or an address, with or without port"));
        }
        let components: Vec<_> = repository.into_iter().flat_map(|path| path.split('/')).collect();
        if !components.iter().all(|component| is_component(component)) {
            return Err(wrong("a repository has lower-case letters, digits, and . _ - / between them"));
        }
        let components = components.into_iter().map(str::to_owned).collect();
        Ok(Self { host: canonical(host), components })
    }
}

/// The keys that are trusted, by the prefix of the modules; `None` for all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust(BTreeMap<Option<Prefix>, TrustedKeys>);

impl Trust {
    /// These keys for the modules of these prefixes. Without a key nothing is trusted.
    pub fn new(keys: BTreeMap<Option<Prefix>, TrustedKeys>) -> Self {
        Self(keys)
    }

    /// The keys for the module of a reference: those of its longest prefix, else those for all others.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Unverified`]: there are none for it.
    pub fn of(&self, reference: &Reference) -> Result<&TrustedKeys, RegistryError> {
        let prefixes = self.0.keys().flatten().filter(|prefix| prefix.is_of(reference));
        let longest = prefixes.max_by_key(|prefix| prefix.components.len()).cloned();
        self.0.get(&longest).or_else(|| self.0.get(&None)).ok_or_else(|| self.none(reference))
    }

    fn none(&self, reference: &Reference) -> RegistryError {
        let prefixes: Vec<_> = self.0.keys().flatten().map(ToString::to_string).collect();
        let (place, prefixes) = (reference.place(), prefixes.join(", "));
        RegistryError::Unverified(format!(
            "no key is trusted for {SCHEME}{place}: keys are given for {prefixes}; give keys for a prefix of \
             it, or for all modules"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PublicKey, Require};
    use super::*;

    fn key() -> TrustedKeys {
        let pair = rcgen::KeyPair::generate().unwrap();
        let keys = PublicKey::read_all(pair.public_key_pem().as_bytes()).unwrap();
        TrustedKeys::new(keys, Require::Any).unwrap()
    }

    fn trust(prefixes: &[Option<&str>]) -> (Trust, Vec<TrustedKeys>) {
        let keys: Vec<_> = prefixes.iter().map(|_| key()).collect();
        let prefixes = prefixes.iter().map(|prefix| prefix.map(|prefix| prefix.parse().unwrap()));
        (Trust::new(prefixes.zip(keys.iter().cloned()).collect()), keys)
    }

    #[test]
    fn the_longest_prefix_that_ends_with_a_component_counts() {
        let (trust, keys) =
            trust(&[None, Some("oci://ghcr.io"), Some("oci://ghcr.io/team"), Some("oci://ghcr.io/team/a/")]);
        for (reference, expected) in [
            ("oci://other.example/team", 0),
            ("oci://ghcr.io/teammates/a", 1),
            ("oci://ghcr.io/team", 2),
            ("oci://ghcr.io/team/ab", 2),
            ("oci://ghcr.io/team/a:tag", 3),
            ("oci://ghcr.io/team/a/b", 3),
            // A registry at another port is another one.
            ("oci://ghcr.io:444/team/a", 0),
            ("oci://ghcr.io.evil.example/team/a", 0),
        ] {
            assert_eq!(trust.of(&reference.parse().unwrap()).unwrap(), &keys[expected], "{reference}");
        }
    }

    #[test]
    fn another_spelling_of_a_host_has_the_same_keys() {
        let (trust, keys) = trust(&[
            None,
            Some("oci://GHCR.io:443/team"),
            Some("oci://docker.io/team"),
            Some("oci://[0:0::1]:80/team"),
        ]);
        for (reference, expected) in [
            ("oci://ghcr.io/team/a", 1),
            ("oci://ghcr.io./team/a", 1),
            ("oci://GHCR.IO:0443/team/a", 1),
            ("oci://index.docker.io/team/a", 2),
            ("oci://registry-1.docker.io:443/team/a", 2),
            ("oci://[::1]/team/a", 3),
            ("oci://localhost/team/a", 0),
        ] {
            assert_eq!(trust.of(&reference.parse().unwrap()).unwrap(), &keys[expected], "{reference}");
        }
    }

    #[test]
    fn a_module_without_keys_is_not_trusted_where_another_has_some() {
        let (trust, _) = trust(&[Some("oci://localhost/team"), Some("oci://ghcr.io:5000")]);
        let why = trust.of(&"oci://ghcr.io/a:1".parse().unwrap()).unwrap_err();
        assert!(matches!(why, RegistryError::Unverified(_)));
        let told = "no key is trusted for oci://ghcr.io/a: keys are given for oci://ghcr.io:5000, \
                    oci://localhost/team; give keys";
        assert!(why.to_string().starts_with(told), "{why}");
    }

    #[test]
    fn a_wrong_prefix_is_refused_with_what_is_allowed() {
        for (text, why) in [
            ("ghcr.io/team", "does not begin with oci://"),
            ("oci://", "the host is"),
            ("oci:///team", "the host is"),
            ("oci://ghcr.io:x", "the host is"),
            ("oci://ghcr.io/Team", "a repository has"),
            ("oci://ghcr.io//", "a repository has"),
            ("oci://ghcr.io/team:tag", "a repository has"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err();
            assert!(error.contains(why) && error.contains("give oci://HOST"), "{text}: {error}");
        }
    }
}
