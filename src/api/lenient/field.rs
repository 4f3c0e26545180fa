//! Fields that are read only if they have the right shape; anything else is read over and absent.
//!
//! Nothing is read into a [`Value`] first: of a deep value that alone is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// Most entries that are kept of a map, one more than any reader takes, so that it sees that there are more.
const ENTRIES: usize = 257;
/// Most elements that are kept of a list, likewise.
const ELEMENTS: usize = 1_025;

/// Type that is read only from a value of the right shape; any other value is read over and gives `None`.
pub(crate) trait Shape: Sized {
    fn from_json_text(_: &str) -> Option<Self> {
        None
    }

    fn from_json_number(_: Number) -> Option<Self> {
        None
    }

    fn from_json_bool(_: bool) -> Option<Self> {
        None
    }

    fn from_json_list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn from_json_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Option<Self>, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

impl Shape for String {
    fn from_json_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Shape for i32 {
    fn from_json_number(number: Number) -> Option<Self> {
        number.as_i64()?.try_into().ok()
    }
}

impl Shape for bool {
    fn from_json_bool(flag: bool) -> Option<Self> {
        Some(flag)
    }
}

impl Shape for i64 {
    fn from_json_number(number: Number) -> Option<Self> {
        number.as_i64()
    }
}

impl Shape for Timestamp {
    fn from_json_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Shape for Time {
    fn from_json_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

/// A text or a number.
impl Shape for Value {
    fn from_json_text(text: &str) -> Option<Self> {
        Some(Self::String(text.to_owned()))
    }

    fn from_json_number(number: Number) -> Option<Self> {
        Some(Self::Number(number))
    }
}

impl<T: Shape> Shape for Vec<T> {
    fn from_json_list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let mut found = Self::new();
        while found.len() < ELEMENTS
            && let Some(item) = items.next_element::<Maybe<T>>()?
        {
            found.extend(item.0);
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Some(found))
    }
}

impl<T: Shape> Shape for BTreeMap<String, T> {
    fn from_json_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Option<Self>, A::Error> {
        let mut found = Self::new();
        while found.len() < ENTRIES
            && let Some((key, value)) = entries.next_entry::<String, Maybe<T>>()?
        {
            found.extend(value.0.map(|value| (key, value)));
        }
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(found))
    }
}

impl Shape for Map<String, Value> {
    fn from_json_map<'de, A: MapAccess<'de>>(entries: A) -> Result<Option<Self>, A::Error> {
        Ok(BTreeMap::from_json_map(entries)?.map(|found: BTreeMap<_, _>| found.into_iter().collect()))
    }
}

/// The names in a JSON object, without their values.
pub(crate) struct Names(pub(crate) Vec<String>);

impl Shape for Names {
    fn from_json_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Option<Self>, A::Error> {
        let mut found = Vec::new();
        while found.len() < ELEMENTS
            && let Some((name, IgnoredAny)) = entries.next_entry()?
        {
            found.push(name);
        }
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(Self(found)))
    }
}

/// What was read of a value; `None` when it has the wrong shape.
pub(super) struct Maybe<T>(pub(super) Option<T>);

impl<'de, T: Shape> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any(PhantomData)).map(Self)
    }
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Shape> Visitor<'de> for Any<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(T::from_json_bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(T::from_json_number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(T::from_json_number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Number::from_f64(number).and_then(T::from_json_number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(T::from_json_text(text))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        T::from_json_list(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        T::from_json_map(entries)
    }
}

/// Reads a field; `None` when it has the wrong shape.
pub(crate) fn field<'de, T: Shape, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Maybe::deserialize(deserializer).map(|read| read.0)
}

/// Reads a field; empty when it has the wrong shape.
pub(crate) fn or_empty<'de, T: Shape + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Maybe::deserialize(deserializer).map(|read| read.0.unwrap_or_default())
}
