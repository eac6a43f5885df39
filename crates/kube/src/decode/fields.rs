//! Fields that objects of several kinds have.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::meta::{Identity, Labelled};

/// An object, or a part of one, that can be decoded from JSON and from Protocol Buffers.
pub trait Decodable: DeserializeOwned + prost::Message + Default {}

impl<T: DeserializeOwned + prost::Message + Default> Decodable for T {}

/// An object of any kind.
#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct Bare {
    #[prost(message, required, tag = "1")]
    pub(super) metadata: Identity,
}

/// A Namespace (core/v1).
#[derive(Clone, PartialEq, Deserialize, prost::Message)]
pub(super) struct Namespace {
    #[prost(message, required, tag = "1")]
    pub(super) metadata: Labelled,
}

/// A field whose presence alone matters.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Presence {}

impl<'de> Deserialize<'de> for Presence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self {})
    }
}

/// `resource.Quantity`. API servers write text, people also write numbers.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Amount {
    #[prost(string, tag = "1")]
    pub(super) text: String,
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde's `untagged` would do, but copies the value before it is examined.
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number, such as 10Gi")
            }

            fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount { text: text.to_owned() })
            }

            fn visit_u64<E>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount { text: number.to_string() })
            }

            fn visit_i64<E>(self, number: i64) -> Result<Amount, E> {
                Ok(Amount { text: number.to_string() })
            }

            fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
                // As JSON writes it.
                Ok(Amount { text: serde_json::Value::from(number).to_string() })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// `metav1.Time`: seconds since the Unix epoch.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time as RFC 3339 writes it, such as 2026-01-02T03:04:05Z")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
                let parsed: Result<jiff::Timestamp, _> = text.parse();
                let time = parsed.map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))?;
                Ok(Time { seconds: time.as_second() })
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

/// `metav1.FieldsV1`: JSON within either encoding.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Fields {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) json: Vec<u8>,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self { json: raw.get().as_bytes().to_vec() })
    }
}

/// Reads null as an empty value, as Go does for lists and maps.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
