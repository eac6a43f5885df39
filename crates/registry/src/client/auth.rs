//! The credentials that a registry asks for.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, Uri};
use serde::Deserialize;

use crate::credentials::Login;
use crate::error::{RegistryError, Result, invalid};

/// Longest challenge that is read.
const CHALLENGE_MAX: usize = 4 << 10;
/// Longest token.
const TOKEN_MAX: usize = 16 << 10;

/// What a registry asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token from here.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// The challenge of an answer: a token before a password.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
        let texts = challenges.filter_map(|value| value.to_str().ok());
        let mut found: Vec<_> =
            texts.filter(|text| text.len() <= CHALLENGE_MAX).filter_map(Self::parse).collect();
        found.sort_by_key(|challenge| *challenge == Self::Basic);
        found.into_iter().next()
    }

    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let value = |wanted: &str| {
            parameters(rest)
                .find(|(key, _)| key.eq_ignore_ascii_case(wanted))
                .map(|(_, value)| value.to_owned())
        };
        Some(Self::Bearer { realm: value("realm")?, service: value("service"), scope: value("scope") })
    }
}

/// The parameters of a challenge: `key="value"`, separated by commas. Values have no quotes in them.
fn parameters(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_once('"')?;
        rest = after;
        Some((key.trim_start_matches([',', ' ']), value))
    })
}

/// Where a token for a scope is fetched.
pub(super) fn token_uri(realm: &str, service: Option<&str>, scope: &str) -> Result<Uri> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("scope", scope);
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    let joint = if realm.contains('?') { '&' } else { '?' };
    let uri = format!("{realm}{joint}{}", query.finish()).parse::<Uri>();
    let uri = uri.or_else(|error| invalid(format!("the registry has tokens at {realm:?}: {error}")))?;
    let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
    if has_user || !matches!(uri.scheme_str(), Some("https" | "http")) {
        return invalid(format!("the registry has tokens at {realm:?}, which is no URL that may be asked"));
    }
    Ok(uri)
}

/// The value of `Authorization` for a name and a password.
pub(super) fn basic(login: &Login) -> Result<HeaderValue> {
    let encoded = BASE64_STANDARD.encode(format!("{}:{}", login.user, login.password));
    secret(&format!("Basic {encoded}"))
}

/// The value of `Authorization` for the token of an answer.
pub(super) fn bearer(body: &[u8], host: &str) -> Result<HeaderValue> {
    #[derive(Deserialize)]
    struct Token {
        token: Option<String>,
        access_token: Option<String>,
    }
    let token: Option<Token> = serde_json::from_slice(body).ok();
    let token = token.and_then(|token| token.token.or(token.access_token));
    match token.filter(|token| token.len() <= TOKEN_MAX) {
        Some(token) => secret(&format!("Bearer {token}")),
        None => invalid(format!("{host} answered without a token")),
    }
}

/// A value that is not shown in logs.
fn secret(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        RegistryError::Denied("the credentials have characters that HTTP cannot carry".into())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_and_a_token_is_preferred() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(value));
            }
            Challenge::of(&headers)
        };
        let bearer =
            r#"Bearer realm="https://auth.example/token",service="reg",scope="repository:a:pull,push""#;
        let wanted = Challenge::Bearer {
            realm: "https://auth.example/token".to_owned(),
            service: Some("reg".to_owned()),
            scope: Some("repository:a:pull,push".to_owned()),
        };
        assert_eq!(of(&[bearer]), Some(wanted));
        assert!(matches!(of(&["Basic realm=\"x\"", bearer]), Some(Challenge::Bearer { .. })));
        assert_eq!(of(&["basic realm=\"x\""]), Some(Challenge::Basic));
        assert_eq!(of(&["Bearer service=\"x\""]), None);
        assert_eq!(of(&["Negotiate"]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_token_is_fetched_only_from_a_url_without_credentials() {
        let uri =
            |realm| token_uri(realm, Some("reg & co"), "repository:a/b:pull").map(|uri| uri.to_string());
        assert_eq!(
            uri("https://auth.example/token?x=1").unwrap(),
            "https://auth.example/token?x=1&scope=repository%3Aa%2Fb%3Apull&service=reg+%26+co"
        );
        for realm in ["file:///etc/passwd", "/token", "https://user:secret@auth.example/", "https://", ""] {
            assert!(uri(realm).is_err(), "{realm}");
        }
    }
}
