//! Objects of `bindery-core` as words, for tables of cases in text.
//!
//! A word is a field and its value, `class=gold`; a field that becomes true, `deleting`; or a field that
//! becomes `None`, `-capacity`. Fields have their names in `bindery-core`; those of `annotations` need no
//! prefix, those of `status` have one. Values are written so:
//!
//! | field | value |
//! |---|---|
//! | quantities | `5Gi` |
//! | `access_modes` | `RWO,ROX` |
//! | `claim_ref` | `NAME` in namespace `ns`, or `NAME/UID` |
//! | `finalizers` | names; `in-tree` and `external` stand for the two of deletion |
//! | `choice` | `NAME/UID` of the volume, or `NAME/UID/withdrawn` |
//! | `reserved_for` | `NAME/UID` of a claim in namespace `ns`, with `/released` by `bindery steer release` |
//! | `fence` | `UID/VERSION` of a claim |
//! | `labels`, `selector` | `KEY:VALUE`; an invalid selector is `!ERROR` |

use bindery_core::{AccessMode, FINALIZER_EXTERNAL, FINALIZER_IN_TREE, Point, Quantity, Returned};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// `object` with the fields that the words say.
///
/// # Panics
///
/// The object has no such field, or the field no such value.
pub fn changed<T: Serialize + DeserializeOwned>(object: &T, words: &str) -> T {
    let mut fields = serde_json::to_value(object).expect("an object of the core is JSON");
    for word in words.split_whitespace() {
        let (path, value) = match (word.split_once('='), word.strip_prefix('-')) {
            (Some((path, text)), _) => (path, value(path, text)),
            (None, Some(path)) => (path, Value::Null),
            (None, None) => (word, true.into()),
        };
        let paths = [path.replace('.', "/"), format!("annotations/{path}")].map(|path| format!("/{path}"));
        let known = paths.iter().find(|path| fields.pointer(path).is_some());
        let known = known.unwrap_or_else(|| panic!("{word:?} changes no field of {fields}"));
        *fields.pointer_mut(known).expect("it was found") = value;
    }
    serde_json::from_value(fields).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// The case of an enum without fields that has this name.
///
/// # Panics
///
/// There is none.
pub fn case<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_value(name.into()).unwrap_or_else(|error| panic!("{name:?}: {error}"))
}

/// The first word, and what follows it.
pub fn first(text: &str) -> (&str, &str) {
    text.split_once(' ').map_or((text, ""), |(first, rest)| (first, rest.trim()))
}

/// The point of an operation of that name, such as `Created 2`.
///
/// # Panics
///
/// There is none.
pub fn point(text: &str) -> Point {
    let attempt = |rest: &str| rest.parse().expect("an attempt has a number");
    match first(text) {
        ("Created", rest) => Point::Created { attempt: attempt(rest) },
        ("CleanedUp", rest) => Point::CleanedUp { attempt: attempt(rest) },
        (name, _) => case(name),
    }
}

/// The result of a plugin's call of that name, such as `Failed WHY`.
///
/// # Panics
///
/// There is none.
pub fn returned(text: &str) -> Returned {
    match first(text) {
        ("Failed", why) => Returned::Failed(why.into()),
        ("InUse", why) => Returned::InUse(why.into()),
        (name, _) => case(name),
    }
}

/// Access modes in kubectl's abbreviations, separated by commas.
///
/// # Panics
///
/// One is none.
pub fn access_modes(text: &str) -> Vec<AccessMode> {
    let mode = |short: &str| AccessMode::ALL.into_iter().find(|mode| mode.short() == short);
    list(text).map(|short| mode(short).unwrap_or_else(|| panic!("{short:?} is no access mode"))).collect()
}

fn value(path: &str, text: &str) -> Value {
    let name = path.rsplit('.').next().unwrap_or(path);
    match name {
        "capacity" | "request" | "pre_resize_capacity" => {
            json!(Quantity::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}")))
        }
        "access_modes" => json!(access_modes(text)),
        "claim_ref" => {
            let (name, uid) = text.split_once('/').map_or((text, None), |(name, uid)| (name, Some(uid)));
            json!({"namespace": "ns", "name": name, "uid": uid})
        }
        "choice" => {
            let mut parts = text.split('/');
            let [volume, uid] = [(); 2].map(|()| parts.next().expect("a choice is NAME/UID"));
            json!({"volume": volume, "uid": uid, "withdrawn": parts.next().is_some()})
        }
        "reserved_for" => {
            let mut parts = text.split('/');
            let [name, uid] = [(); 2].map(|()| parts.next().expect("a reservation is NAME/UID"));
            let claim = json!({"namespace": "ns", "name": name});
            json!({"claim": claim, "uid": uid, "released": parts.next().is_some()})
        }
        "fence" => text.replace('/', " ").into(),
        "finalizers" => list(text).map(finalizer).collect(),
        "labels" => Value::Object(pairs(text).map(|(key, value)| (key.to_owned(), value.into())).collect()),
        "selector" => match text.strip_prefix('!') {
            Some(error) => json!({"Invalid": error}),
            None => {
                let one = |(key, value)| json!({"key": key, "operator": "In", "values": [value]});
                json!({"Requirements": pairs(text).map(one).collect::<Value>()})
            }
        },
        "created" => json!(text.parse::<i64>().expect("a time is a number")),
        _ if text == "false" => false.into(),
        _ => text.into(),
    }
}

fn finalizer(name: &str) -> &str {
    match name {
        "in-tree" => FINALIZER_IN_TREE,
        "external" => FINALIZER_EXTERNAL,
        name => name,
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    list(text).map(|pair| pair.split_once(':').expect("a label is KEY:VALUE"))
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|item| !item.is_empty())
}
