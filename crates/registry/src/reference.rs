//! References.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::digest::Digest;
use crate::repository::Name;

/// What references begin with.
pub(crate) const SCHEME: &str = "oci://";
/// Most characters of a host, of a repository, and of a tag.
const HOST_MAX: usize = 255;
const REPOSITORY_MAX: usize = 255;
const TAG_MAX: usize = 128;

/// Names an artifact: `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]`. With a digest, the tag is only for
/// people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Host, with the port if one is named.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The repository of the host.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if one is named.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest, if it is named.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The same with the digest of the manifest.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// Host and repository, as cosign names them.
    pub fn place(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// What names the manifest: the digest, else the tag.
    pub fn name(&self) -> Option<Name> {
        let tag = || self.tag.clone().map(Name::Tag);
        self.digest.map(Name::Digest).or_else(tag)
    }
}

/// Whether a host, with or without port, is this machine by its name.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = without_port(host);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The name or address of a host.
pub(crate) fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?}: {why}; give oci://HOST/REPOSITORY[:TAG][@sha256:HEX]");
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with oci://"))?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(|why: String| wrong(&why))?)),
            None => (rest, None),
        };
        let (host, rest) = rest.split_once('/').ok_or_else(|| wrong("it names no repository"))?;
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if !is_host(host) {
            return Err(wrong("the host is a name or an address, with or without port"));
        }
        if repository.len() > REPOSITORY_MAX || !repository.split('/').all(is_component) {
            return Err(wrong("a repository has lower-case letters, digits, and . _ - / between them"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("a tag has at most 128 letters, digits, and . _ - after the first"));
        }
        let (host, repository) = (host.to_owned(), repository.to_owned());
        Ok(Self { host, repository, tag: tag.map(str::to_owned), digest })
    }
}

pub(crate) fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // The address of an IPv6 host is in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = || {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(allowed)
    };
    host.len() <= HOST_MAX
        && port.is_none_or(is_port)
        && address.map_or_else(is_name, |address| address.parse::<std::net::Ipv6Addr>().is_ok())
}

pub(crate) fn is_component(component: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    component.starts_with(is_alphanumeric)
        && component.ends_with(is_alphanumeric)
        && component.chars().all(|c| is_alphanumeric(c) || matches!(c, '.' | '_' | '-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= TAG_MAX
        && tag.starts_with(is_word)
        && tag.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_reference_is_read_and_written_the_same() {
        for text in [
            "oci://ghcr.io/team/policy".to_owned(),
            "oci://localhost:5000/policy:1.2.0".to_owned(),
            format!("oci://registry.example/a/b_c/d-e@{DIGEST}"),
            format!("oci://[::1]:5000/policy:v1@{DIGEST}"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_reference_is_refused_with_what_is_allowed() {
        for (text, why) in [
            ("ghcr.io/policy", "does not begin with oci://"),
            ("oci://ghcr.io", "names no repository"),
            ("oci://ghcr.io/", "a repository has"),
            ("oci://ghcr.io/Policy", "a repository has"),
            ("oci://ghcr.io/a/../b", "a repository has"),
            ("oci://ghcr.io/a//b", "a repository has"),
            ("oci://user@ghcr.io/a", "no digest"),
            ("oci://ghcr.io:x/a", "the host is"),
            ("oci://ghcr.io:0/a", "the host is"),
            ("oci://-ghcr.io/a", "the host is"),
            ("oci://ghcr.io/a:b/c", "a tag has"),
            ("oci://ghcr.io/a@sha256:12", "no digest"),
            ("oci://ghcr.io/a@sha512:12", "no digest"),
        ] {
            let error = text.parse::<Reference>().unwrap_err();
            assert!(error.contains(why) && error.contains("[:TAG][@sha256:HEX]"), "{text}: {error}");
        }
    }
}
