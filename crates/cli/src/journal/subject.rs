//! Which entries of a journal are about an object.

use bindery_controller::{Target, Write};
use bindery_core::{ClaimKey, Key};
use bindery_journal::{Entry, What, Wrote};
use jiff::Timestamp;

/// Which entries are shown.
#[derive(clap::Args)]
pub(super) struct Filter {
    /// Only what is about this object: claim/NAMESPACE/NAME or volume/NAME. Gaps and changes of engine and
    /// policies are always shown.
    #[arg(long, value_name = "OBJECT", value_parser = object)]
    object: Option<Key>,
    /// Only what was recorded at this time or later, such as 2026-11-26T15:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Only what was recorded before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
}

impl Filter {
    pub(super) fn passes(&self, entry: &Entry) -> bool {
        let at = time(entry.at_ms);
        self.since.is_none_or(|since| at >= since)
            && self.until.is_none_or(|until| at < until)
            && self.object.as_ref().is_none_or(|object| is_about(&entry.what, object))
    }
}

/// A time of a journal.
pub(crate) fn time(at_ms: u64) -> Timestamp {
    let at = i64::try_from(at_ms).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    at.unwrap_or(Timestamp::MAX)
}

/// Whether an entry is about an object: it was decided, or it is written.
pub(crate) fn is_about(what: &What, object: &Key) -> bool {
    let is_named = |name: &str, claim: bool| match object {
        Key::Claim(key) => claim && name == key.to_string(),
        Key::Volume(volume) => !claim && name == &**volume,
    };
    match what {
        What::Decision(record) => {
            let is_written = |write: Write<()>| match (write.target(), object) {
                (Target::Claim(claim), Key::Claim(key)) => claim.key == *key,
                (Target::Volume(volume), Key::Volume(name)) => volume.name == *name,
                (Target::NewVolume(created), Key::Volume(name)) => created == name,
                _ => false,
            };
            let mut actions = record.evidence.decision.actions();
            record.evidence.request.subject.key() == *object
                || actions.any(|action| is_written(action.clone().into()))
        }
        What::Write(Wrote { object: name, claim, .. }) => is_named(name, *claim),
        What::Difference(differed) => is_named(&differed.object, differed.claim),
        What::Swap(_) | What::Gap(_) | What::End | What::Unknown(_) => true,
    }
}

/// Reads `claim/NAMESPACE/NAME` or `volume/NAME`.
fn object(text: &str) -> Result<Key, &'static str> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts[..] {
        _ if parts.contains(&"") => {}
        ["claim" | "pvc", namespace, name] => return Ok(Key::Claim(ClaimKey::new(namespace, name))),
        ["volume" | "pv", name] => return Ok(Key::Volume(name.into())),
        _ => {}
    }
    Err("it is not claim/NAMESPACE/NAME or volume/NAME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_a_claim_with_its_namespace_or_a_volume() {
        let claim = Ok(Key::Claim(ClaimKey::new("shop", "data")));
        let volume = Ok(Key::Volume("v".into()));
        for (text, read) in [
            ("claim/shop/data", claim.clone()),
            ("pvc/shop/data", claim),
            ("volume/v", volume.clone()),
            ("pv/v", volume),
        ] {
            assert_eq!(object(text), read, "{text}");
        }
        for text in ["", "claim", "claim/data", "claim//data", "volume/", "volume/a/b", "pod/a/b"] {
            assert!(object(text).is_err(), "{text}");
        }
    }
}
