//! Whether a status says anything that the API server does not hold already.

use serde_json::{Map, Value};

use crate::api::placeable::{is_added_kind, reported_fields};

/// Fields inside of values that the API server sets where a writer does not.
const DEFAULTED: [&str; 1] = ["ipMode"];

/// Returns whether `old`, as an API server returned it, has all of `new`, and none of what was written before and is not
/// in `new`. Of a kind of the API itself a server drops what is zero or empty; kinds that an operator added keep it.
pub(super) fn is_same_status(new: &Map<String, Value>, old: &Value, group: &str, kind: &str) -> bool {
    let empty = Map::new();
    let old = old.as_object().unwrap_or(&empty);
    let (is_added, fields) = (is_added_kind(group, kind), reported_fields(group, kind));
    let names = new.keys().chain(old.keys().filter(|name| is_added || fields.contains(&name.as_str())));
    names.into_iter().all(|name| {
        let (new, old) = (new.get(name).unwrap_or(&Value::Null), old.get(name).unwrap_or(&Value::Null));
        if name == "conditions" { has_same_conditions(new, old, is_added) } else { is_same(new, old, is_added) }
    })
}

/// Returns whether a server stores a value as if it were absent.
fn is_dropped(value: &Value, is_added: bool) -> bool {
    match value {
        Value::Null => true,
        _ if is_added => false,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(|value| is_dropped(value, is_added)),
    }
}

fn is_same(new: &Value, old: &Value, is_added: bool) -> bool {
    if is_dropped(new, is_added) && is_dropped(old, is_added) {
        return true;
    }
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => new
            .keys()
            .chain(old.keys())
            .filter(|name| new.contains_key(*name) || !DEFAULTED.contains(&name.as_str()))
            .all(|name| {
                is_same(new.get(name).unwrap_or(&Value::Null), old.get(name).unwrap_or(&Value::Null), is_added)
            }),
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| is_same(new, old, is_added))
        }
        (new, old) => new == old,
    }
}

/// Compares conditions by type: servers keep them in an order of their own.
fn has_same_conditions(new: &Value, old: &Value, is_added: bool) -> bool {
    let [new, old] = [new, old].map(|value| value.as_array().cloned().unwrap_or_default());
    new.len() == old.len()
        && new
            .iter()
            .all(|new| old.iter().find(|old| old["type"] == new["type"]).is_some_and(|old| is_same(new, old, is_added)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_drops_or_sets_is_no_difference() {
        let same = |new: Value, old: Value| is_same_status(new.as_object().unwrap(), &old, "apps", "StatefulSet");
        assert!(same(json!({"replicas": 0, "loadBalancer": {"ingress": []}}), json!({})));
        assert!(same(json!({"replicas": 1}), json!({"replicas": 1, "collisionCount": 2})));
        assert!(same(
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}})
        ));
        assert!(!same(
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "Proxy"}]}}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}})
        ));
        let (a, b) = (json!({"type": "A", "status": "True"}), json!({"type": "B", "status": "False"}));
        assert!(same(json!({"conditions": [a, b]}), json!({"conditions": [b, a]})));
        assert!(!same(json!({"conditions": [a]}), json!({"conditions": [a, b]})));
        let stale = json!({"type": "A", "status": "True", "message": "stuck"});
        assert!(!same(json!({"conditions": [a]}), json!({"conditions": [stale]})), "a message that is gone");
        assert!(!same(json!({}), json!({"updateRevision": "x"})), "a field that is gone");
        let pod = json!({"observedGeneration": 3, "qosClass": "Burstable"});
        assert!(is_same_status(&Map::new(), &pod, "", "Pod"), "fields that are never written for a kind");
        let added = |new: Value, old: Value| is_same_status(new.as_object().unwrap(), &old, "example.com", "Widget");
        assert!(!added(json!({"count": 0}), json!({})) && !added(json!({}), json!({"count": 1})));
    }
}
