//! How secrets are masked in what is shown: the data of Secrets, and what looks like a secret on a line of which no
//! schema says what is secret on it. Values that the schema marks are masked by `ValuesTree::to_masked_json`.
//! `fleetctl diff` prints hashes in place of the data of Secrets: `apply::diff`.

use serde_json::Value;

use crate::chart::diagnostic::Place;

/// Text that stands for a secret wherever values are shown.
pub(in crate::chart) const MASK: &str = "********";

/// The object with the data of a Secret masked; other objects as they are.
#[must_use]
pub fn mask_secret_data(object: &Value) -> Value {
    let mut object = object.clone();
    if object.get("kind").and_then(Value::as_str) != Some("Secret") {
        return object;
    }
    for field in ["data", "stringData"] {
        if let Some(map) = object.get_mut(field).and_then(Value::as_object_mut) {
            for value in map.values_mut() {
                *value = Value::String(MASK.to_owned());
            }
        }
    }
    let applied = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
    if let Some(value) = object.pointer_mut(applied) {
        *value = Value::String(MASK.to_owned());
    }
    object
}

/// Masks everything after a key that sounds like a secret, on a line that cannot be read and so has no schema.
pub(crate) fn hide_behind_secret_key(place: &mut Place) {
    let Some(word) = first_secret_word(&place.text) else { return };
    let Some(colon) = place.text[word..].find([':', '=']).map(|at| word + at) else { return };
    let (start, end) = (place.start, place.start + place.width);
    let mut masked = String::with_capacity(place.text.len());
    let (mut new_start, mut new_end) = (None, None);
    for (at, c) in place.text.char_indices() {
        if at >= start {
            new_start.get_or_insert(masked.len());
        }
        if at >= end {
            new_end.get_or_insert(masked.len());
        }
        masked.push(if at <= colon || c.is_whitespace() { c } else { '*' });
    }
    place.start = new_start.unwrap_or(masked.len());
    place.width = new_end.unwrap_or(masked.len()) - place.start;
    place.text = masked;
}

/// Returns the offset of the first word that sounds like the key of a secret; for places where no schema says so.
fn first_secret_word(line: &str) -> Option<usize> {
    let line = line.to_ascii_lowercase();
    ["secret", "passw", "token", "key", "credential", "auth"].iter().filter_map(|word| line.find(word)).min()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_of_a_secret_is_left_after_masking() {
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        let secret = json!({"kind": "Secret", "metadata": {"name": "s", "annotations": {applied: "canary"}},
            "data": {"a": "canary"}, "stringData": {"b": "canary"}});
        let shown = mask_secret_data(&secret).to_string();
        assert!(!shown.contains("canary") && shown.contains("\"a\""), "{shown}");
        let other = json!({"kind": "ConfigMap", "data": {"a": "x"}});
        assert_eq!(mask_secret_data(&other), other);
    }

    fn hidden(text: &str, start: usize, end: usize) -> (String, String) {
        let mut place = Place::in_text("f", text, start, end);
        hide_behind_secret_key(&mut place);
        let marked = place.text[place.start..place.start + place.width].to_owned();
        (place.text, marked)
    }

    #[test]
    fn what_follows_a_key_that_sounds_secret_is_hidden_and_the_caret_stays() {
        assert_eq!(hidden("a: b", 3, 4), ("a: b".to_owned(), "b".to_owned()));
        assert_eq!(hidden("Password: größe x", 0, 8), ("Password: ***** *".to_owned(), "Password".to_owned()));
        assert_eq!(hidden("apiToken: größe x", 10, 17), ("apiToken: ***** *".to_owned(), "*****".to_owned()));
        assert_eq!(hidden("{a: 1, token: ü, b: 2}", 1, 22).0, "{a: 1, token: ** ** **");
        assert_eq!(hidden("a.token=ü,b", 8, 12), ("a.token=***".to_owned(), "***".to_owned()));
    }
}
