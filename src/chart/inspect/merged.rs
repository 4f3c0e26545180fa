//! Merged values as YAML, each with the place that it comes from.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::chart::output::object_yaml;
use crate::chart::values::ValuesTree;

/// The values, secrets masked, with a comment behind each that names its source, line and column.
pub fn format_merged_values(tree: &ValuesTree) -> String {
    let mut text = String::new();
    write_merged_mapping(&mut text, tree, &tree.to_masked_json(), &mut Vec::new());
    text
}

fn write_merged_mapping(text: &mut String, tree: &ValuesTree, value: &Value, path: &mut Vec<String>) {
    for (key, below) in value.as_object().into_iter().flatten() {
        let indent = "  ".repeat(path.len());
        path.push(key.clone());
        let is_mapping = below.as_object().is_some_and(|map| !map.is_empty());
        if is_mapping {
            let key = object_yaml(&json!(key));
            let _ = writeln!(text, "{indent}{}:", key.trim_end());
            write_merged_mapping(text, tree, below, path);
        } else {
            let from = tree
                .find_origin(path)
                .map(|origin| format!("  # {}", origin.place.format_position()))
                .unwrap_or_default();
            for (number, line) in object_yaml(&json!({ key.as_str(): below })).lines().enumerate() {
                let _ = writeln!(text, "{indent}{line}{}", if number == 0 { from.as_str() } else { "" });
            }
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::SetKind;
    use crate::chart::tests::{chart, schema};

    #[test]
    fn each_value_names_its_source_and_the_text_is_the_values() {
        let values = chart("v0.6")
            .values_builder()
            .file("my.yaml", b"etcd:\n  replicas: 3\n  labels: {a.b/c: 'no'}\ntoken: hunter2\n");
        let values = values.set(SetKind::Value, "exposure=NodePort");
        let tree = values.build_checked(schema()).unwrap();
        let text = format_merged_values(&tree);
        assert!(text.contains("  replicas: 3  # my.yaml:2:13\n"), "{text}");
        assert!(text.contains("exposure: NodePort  # --set:1:10\n"), "{text}");
        assert!(text.contains("# charts/control-plane/v0.6/values.yaml:"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, tree.to_masked_json());
    }
}
