//! The objects of manifests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// JSON pointers to texts that are documents themselves. [`Objects::at`] looks into them.
const DOCUMENTS: [&str; 2] =
    ["/spec/template/metadata/annotations/bindery.dev~1settings", "/data/bindery.json"];

/// Prefix of the annotations that have policy documents.
const POLICIES: &str = "policies.bindery.dev/";

/// Objects by kind and name, such as `Deployment/bindery`. No two of the chart differ in their namespace
/// only.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    objects: BTreeMap<String, Value>,
    /// The same objects, with the documents in them parsed.
    opened: BTreeMap<String, Value>,
}

impl Objects {
    /// Parses manifests.
    pub fn read(manifests: &str) -> Self {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(manifests).unwrap_or_else(|error| panic!("{error}\n{manifests}"));
        let (mut objects, mut opened) = (BTreeMap::new(), BTreeMap::new());
        for object in documents.into_iter().filter(|document| !document.is_null()) {
            let text =
                |value: &Value| value.as_str().expect("an object must have a kind and a name").to_owned();
            let name = format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]));
            opened.insert(name.clone(), open(object.clone()));
            assert!(objects.insert(name.clone(), object).is_none(), "{name} is there twice");
        }
        Self { objects, opened }
    }

    /// All objects, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.iter().map(|(name, object)| (name.as_str(), object))
    }

    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.objects.get(name)
    }

    /// The pods' settings file.
    pub fn settings(&self) -> &str {
        let text =
            self.get("Deployment/bindery").and_then(|deployment| deployment.pointer(DOCUMENTS[0])?.as_str());
        text.expect("the pods of bindery must have settings")
    }

    /// Writes the pods' policy documents into a folder, and returns how many there are.
    pub fn write_policies(&self, folder: &Path) -> usize {
        let annotations = self.at("Deployment/bindery /spec/template/metadata/annotations");
        let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
        let documents = annotations.filter_map(|(key, text)| Some((key.strip_prefix(POLICIES)?, text)));
        let write = |(name, text): (&str, &Value)| {
            let text = text.as_str().expect("an annotation must be a text");
            fs::write(folder.join(format!("{name}.yaml")), text).expect("a folder must be writable");
        };
        documents.map(write).count()
    }

    /// The objects of a kind.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.values().filter(move |object| object["kind"] == kind)
    }

    /// The value at a path such as `Deployment/bindery /spec/template/spec/containers/bindery/image`: the
    /// object, and the keys within it. The key of a list's item is its index, name, alert or mount path.
    pub fn at(&self, path: &str) -> Option<&Value> {
        let (name, within) = path.split_once(' ').unwrap_or((path, ""));
        let keys = within.split('/').skip(1).map(|key| key.replace("~1", "/"));
        keys.fold(self.opened.get(name), |found, key| match found? {
            Value::Object(fields) => fields.get(&key),
            Value::Array(items) => key.parse().map_or_else(
                |_| {
                    items.iter().find(|item| ["name", "alert", "mountPath"].iter().any(|by| item[by] == *key))
                },
                |index: usize| items.get(index),
            ),
            _ => None,
        })
    }
}

fn open(mut object: Value) -> Value {
    for document in DOCUMENTS {
        if let Some(found) = object.pointer_mut(document)
            && let Some(text) = found.as_str()
        {
            *found = super::yaml(text);
        }
    }
    object
}
