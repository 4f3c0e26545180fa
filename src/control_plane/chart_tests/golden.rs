//! Golden files: every line flattened, and what each preset changes in it.
//!
//! `INSTA_UPDATE=always cargo test --lib golden` writes them anew.

use serde_json::{Value, json};

use super::*;

#[test]
fn the_flattened_chart_is_the_golden_one() {
    for chart in charts() {
        let plain = render(&chart, None).objects;
        for preset in preset_names() {
            let name = format!("control-plane-{}-{}", chart.line(), preset.unwrap_or("defaults"));
            let objects = render(&chart, preset).objects;
            // Of a preset only what it changes, or nobody would read it.
            let changed = objects.iter().filter(|object| preset.is_none() || !plain.contains(object));
            let mut documents: Vec<String> = changed.map(|object| golden(&object.json)).collect();
            let gone = plain.iter().filter(|old| !objects.iter().any(|object| object.id() == old.id()));
            documents.extend(gone.map(|object| format!("# without {}\n", object.id())));
            insta::with_settings!({ prepend_module_to_snapshot => false }, {
                insta::assert_snapshot!(name, documents.join("---\n"));
            });
        }
    }
}

/// An object as YAML. The bootstrap's text has goldens of its own, so here it is a digest.
fn golden(object: &Value) -> String {
    let mut object = object.clone();
    if object["kind"] == "ConfigMap" {
        let names: Vec<String> =
            object["data"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        object["data"] = json!(names);
    }
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
    serde_saphyr::to_string_with_options(&object, options).unwrap()
}
