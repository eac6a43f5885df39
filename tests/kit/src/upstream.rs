//! Upstream's binder, played by an engine in own mode: what makes it see claims, and look again, as upstream
//! does.

use std::sync::Arc;

use bindery_controller::{Binder, Note, Port, Purpose, Write, WriteError, Written};
use bindery_core::steer::steering_key;
use bindery_core::{
    Claim, ClaimKey, Key, Lookup, Requirement, Selector, SelectorOperator, Text, Timestamp, Volume,
};
use bindery_store::{Delivery, Object, ObjectKey, Observed};

/// A port whose claims have the requirement that steers them in their selectors, as upstream reads them.
pub struct Plain<P>(pub P);

impl<P: Port> Port for Plain<P> {
    type Template = P::Template;

    async fn read_volume(&self, name: &Text, purpose: Purpose) -> Lookup<Arc<Volume>> {
        self.0.read_volume(name, purpose).await
    }

    async fn read_claim(&self, key: &ClaimKey, purpose: Purpose) -> Lookup<Arc<Claim>> {
        match self.0.read_claim(key, purpose).await {
            Lookup::Found(claim) => Lookup::Found(plain(&claim)),
            other => other,
        }
    }

    async fn write(&self, write: &Write<Self::Template>) -> Result<Written, WriteError> {
        match self.0.write(write).await? {
            Written::Claim(claim) => Ok(Written::Claim(plain(&claim))),
            other => Ok(other),
        }
    }

    fn emit(&self, note: &Note) {
        self.0.emit(note);
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// The claim as upstream reads it.
fn plain(claim: &Arc<Claim>) -> Arc<Claim> {
    if !claim.steered {
        return Arc::clone(claim);
    }
    let key = steering_key(&claim.key).expect("the names fit");
    let needed = Requirement { key: key.into(), operator: SelectorOperator::Exists, values: Vec::new() };
    let selector = Some(Selector::Requirements(vec![needed]));
    Arc::new(Claim { steered: false, choice: None, selector, ..Claim::clone(claim) })
}

/// An object as upstream reads it.
pub fn plain_object(object: Object) -> Object {
    match object {
        Object::Claim(key, Observed::Readable(claim)) => {
            Object::Claim(key, Observed::Readable(plain(&claim)))
        }
        other => other,
    }
}

/// A delivery as upstream reads it, with the key of its object.
pub fn translated(delivery: Delivery) -> (Delivery, Option<Key>) {
    let key = match &delivery {
        Delivery::Applied(delivered) => Some(delivered.object.key()),
        Delivery::Gone(key) => Some(key.clone()),
        Delivery::Listed { .. } | Delivery::Bookmark { .. } => None,
    };
    let key = key.and_then(|key| match key {
        ObjectKey::Claim(key) => Some(Key::Claim(key)),
        ObjectKey::Volume(name) => Some(Key::Volume(name)),
        _ => None,
    });
    let delivery = match delivery {
        Delivery::Applied(mut delivered) => {
            delivered.object = plain_object(delivered.object);
            Delivery::Applied(delivered)
        }
        other => other,
    };
    (delivery, key)
}

/// Looks at every object, as upstream's resync does every 15 s.
pub async fn resync<P: Port>(binder: &Binder<P>) {
    let store = binder.store();
    let mut keys: Vec<_> = store.volume_names().into_iter().map(Key::Volume).collect();
    keys.extend(store.claim_keys().into_iter().map(Key::Claim));
    keys.sort_unstable();
    for key in keys {
        // A failed sync is repeated in the next resync.
        drop(binder.sync(&key).await);
    }
}
