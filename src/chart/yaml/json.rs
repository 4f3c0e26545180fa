//! JSON in which a key that stands twice in an object is noticed: a reader of plain values takes the last in silence.
//! What nests too deep is noticed, too, and skipped rather than read: a reader of plain values says that it is not JSON.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::chart::depth::MAX_DEPTH;

/// A value of JSON, with what a reader of plain values does not notice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Json {
    pub(crate) value: Value,
    /// The path of the first key that its object has twice, if any.
    pub(crate) twice: Option<Vec<String>>,
    /// Whether something nests deeper than [`MAX_DEPTH`]; it is missing in `value`.
    pub(crate) is_too_deep: bool,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonReader { above: 0 }.deserialize(deserializer)
    }
}

/// Reads a value that lies in `above` objects and lists.
#[derive(Clone, Copy)]
struct JsonReader {
    above: usize,
}

impl JsonReader {
    /// The reader of what the next object or list holds; none where that is too deep.
    fn reader_below(self) -> Option<Self> {
        (self.above < MAX_DEPTH).then_some(Self { above: self.above + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for JsonReader {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn plain_value(value: impl Into<Value>) -> Json {
    Json { value: value.into(), twice: None, is_too_deep: false }
}

fn too_deep() -> Json {
    Json { is_too_deep: true, ..plain_value(Value::Null) }
}

/// The path of what is below a key.
fn prepend_key(key: &str, mut path: Vec<String>) -> Vec<String> {
    path.insert(0, key.to_owned());
    path
}

impl<'de> Visitor<'de> for JsonReader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(plain_value(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(plain_value(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(plain_value(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(plain_value(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(plain_value(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(plain_value(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let Some(reader) = self.reader_below() else {
            // This calls itself for nothing, however deep it goes on.
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(too_deep());
        };
        let (mut items, mut twice, mut is_too_deep) = (Vec::new(), None, false);
        while let Some(item) = list.next_element_seed(reader)? {
            twice = twice.or_else(|| Some(prepend_key(&items.len().to_string(), item.twice?)));
            is_too_deep |= item.is_too_deep;
            items.push(item.value);
        }
        Ok(Json { value: Value::Array(items), twice, is_too_deep })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json, A::Error> {
        let Some(reader) = self.reader_below() else {
            while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(too_deep());
        };
        let (mut map, mut twice, mut is_too_deep) = (Map::new(), None, false);
        while let Some(key) = object.next_key::<String>()? {
            let item = object.next_value_seed(reader)?;
            is_too_deep |= item.is_too_deep;
            let again = map.contains_key(&key).then(|| vec![key.clone()]);
            twice = twice.or(again).or_else(|| Some(prepend_key(&key, item.twice?)));
            map.insert(key, item.value);
        }
        Ok(Json { value: Value::Object(map), twice, is_too_deep })
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
            assert_eq!(read(text), plain_value(serde_json::from_str::<Value>(text).unwrap()), "{text}");
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

    fn nest_json(open: &str, close: &str, times: usize) -> String {
        format!("{}1{}", open.repeat(times), close.repeat(times))
    }

    #[test]
    fn what_nests_too_deep_is_skipped_to_its_end_and_not_called_something_else() {
        for (open, close, levels) in [("[", "]", 1), (r#"{"a": "#, "}", 1), (r#"[{"a": "#, "}]", 2)] {
            for (times, is_too_deep) in [(MAX_DEPTH / levels, false), (MAX_DEPTH / levels + 1, true), (200_000, true)] {
                assert_eq!(read(&nest_json(open, close, times)).is_too_deep, is_too_deep, "{times} times {open}");
            }
            let then = read(&format!(r#"{{"x": {}, "y": [2]}}"#, nest_json(open, close, 200_000)));
            assert!(then.is_too_deep && then.value["y"] == serde_json::json!([2]), "what follows is read");
        }
        for wrong in ["[".repeat(200_000), format!("{}x{}", "[".repeat(99), "]".repeat(99))] {
            assert!(serde_json::from_str::<Json>(&wrong).is_err(), "only what is JSON is too deep");
        }
    }
}
