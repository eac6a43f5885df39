//! Parsers of values, with errors that say what is allowed.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Component, PathBuf};
use std::str::FromStr;

use clap::builder::TypedValueParser;

/// Reads a whole number within a range.
pub(crate) fn whole<T>(range: RangeInclusive<T>) -> impl TypedValueParser<Value = T>
where
    T: FromStr + PartialOrd + std::fmt::Display + Clone + Send + Sync + 'static,
{
    move |text: &str| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("it is not a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Reads an address to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wanted = "it is not IP:PORT, such as 0.0.0.0:8080 for all of IPv4 or [::]:8080 for all addresses";
    text.parse().map_err(|_| wanted.to_owned())
}

/// Reads a path that does not depend on the working directory.
pub(crate) fn absolute(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err("give an absolute path without `..`, such as /var/lib/bindery");
    }
    Ok(path)
}
