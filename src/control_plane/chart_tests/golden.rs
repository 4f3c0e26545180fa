//! Golden files: every line flattened, and what each preset changes in it.
//!
//! `INSTA_UPDATE=always cargo test --lib golden` writes them anew.

use serde_json::{Value, json};

use super::*;

#[test]
fn every_flattened_line_is_the_golden_one() {
    for chart in charts() {
        let documents: Vec<String> = render(chart, None).objects.iter().map(|object| yaml(&object.json)).collect();
        snapshot(&format!("control-plane-{}", chart.line()), &documents.join("---\n"));
    }
}

#[test]
fn every_preset_changes_what_its_golden_file_says() {
    for chart in charts() {
        let plain = render(chart, None);
        let plain = &plain.objects;
        for preset in preset_names(chart).into_iter().flatten() {
            let rendered = render(chart, Some(preset));
            let objects = &rendered.objects;
            let mut changes = Vec::new();
            for object in objects {
                match plain.iter().find(|old| old.id() == object.id()) {
                    Some(old) => differ(&object.id(), &old.json, &object.json, &mut changes),
                    None => changes.push(format!("+ {}\n{}", object.id(), yaml(&object.json))),
                }
            }
            let gone = plain.iter().filter(|old| !objects.iter().any(|object| object.id() == old.id()));
            changes.extend(gone.map(|object| format!("- {}", object.id())));
            snapshot(&format!("control-plane-{}-{preset}", chart.line()), &changes.join("\n"));
        }
    }
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

/// Every leaf in which two values differ: `deployment/apiserver spec.replicas: 1 -> 3`.
fn differ(path: &str, old: &Value, new: &Value, changes: &mut Vec<String>) {
    let separator = if path.contains(' ') { "." } else { " " };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                let (old, new) = (old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null));
                differ(&format!("{path}{separator}{key}"), old, new, changes);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                differ(&format!("{path}[{index}]"), old, new, changes);
            }
        }
        _ if old != new => changes.push(format!("{path}: {old} -> {new}")),
        _ => {}
    }
}

/// An object as YAML. The bootstrap's text has tests of its own, so here it is only named.
fn yaml(object: &Value) -> String {
    let mut object = object.clone();
    if object["metadata"]["name"] == "fleet-bootstrap" {
        let names: Vec<&String> = object["data"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        object["data"] = json!(names);
    }
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
    serde_saphyr::to_string_with_options(&object, options).unwrap()
}
