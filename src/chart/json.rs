//! JSON in which a key that stands twice in an object is noticed: a reader of plain values takes the last in silence.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Json {
    pub(super) value: Value,
    /// The path of the first key that its object has twice.
    pub(super) twice: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

fn plain(value: impl Into<Value>) -> Json {
    Json { value: value.into(), twice: None }
}

/// The path of what is below a key.
fn below(key: &str, mut path: Vec<String>) -> Vec<String> {
    path.insert(0, key.to_owned());
    path
}

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(plain(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(plain(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(plain(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(plain(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(plain(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(plain(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let (mut items, mut twice) = (Vec::new(), None);
        while let Some(item) = list.next_element::<Json>()? {
            twice = twice.or_else(|| Some(below(&items.len().to_string(), item.twice?)));
            items.push(item.value);
        }
        Ok(Json { value: Value::Array(items), twice })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json, A::Error> {
        let (mut map, mut twice) = (Map::new(), None);
        while let Some((key, item)) = object.next_entry::<String, Json>()? {
            let again = map.contains_key(&key).then(|| vec![key.clone()]);
            twice = twice.or(again).or_else(|| Some(below(&key, item.twice?)));
            map.insert(key, item.value);
        }
        Ok(Json { value: Value::Object(map), twice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn values_are_those_that_any_reader_finds() {
        for text in [
            "null",
            "true",
            "-1",
            "18446744073709551615",
            "1.5e300",
            r#""a\u00e4\ud83d\ude00""#,
            r#"[1, [], {"a": {"b": [null, "x"]}, "c": {}}]"#,
        ] {
            assert_eq!(read(text), Json { value: serde_json::from_str(text).unwrap(), twice: None }, "{text}");
        }
    }

    #[test]
    fn the_first_key_that_stands_twice_is_found_wherever_it_is() {
        for (text, path) in [
            (r#"{"a": 1, "a": 1}"#, &["a"][..]),
            (r#"{"a": {"b": 1, "b": 2}, "a": 3}"#, &["a", "b"]),
            (r#"{"a": [{"b": 1}, {"b": 1, "c": 2, "b": 3}]}"#, &["a", "1", "b"]),
            (r#"{"a": 1, "\u0061": 2}"#, &["a"]),
        ] {
            assert_eq!(read(text).twice.unwrap(), path, "{text}");
        }
    }
}
