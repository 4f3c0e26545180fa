//! Properties that hold for any input. `PROPTEST_CASES` multiplies the number of cases for a longer run by hand.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::hostile::hostile;
use super::*;
use crate::chart::yaml::node::{Node, Origin, Sources, merge_nodes};

/// Number of strings that one render takes: most of a render's cost is the same for one and for many.
const BATCH: u32 = 50;

/// A configuration for so many cases in all, each of which holds a batch.
fn batches(cases: u32) -> Config {
    let factor = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u32);
    Config { cases: cases.div_ceil(BATCH) * factor, failure_persistence: None, ..Config::default() }
}

const TEMPLATE: &str = r#"
{% from "_lib.yaml" import entry %}
{% for s in values.all %}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
data:
  plain: {{ s }}
  quoted: "{{ s }}"
  single: '{{ s }}'
  partial: a{{ s }}b-{{ s }}
  in quotes: "a: {{ s }}, {{ s }}"
  {{ "k" ~ s }}: key
  flow: [{{ s }}, {a: {{ s }}}, "{{ s }}"]
  literal: |
    first {{ s }}
    {{ s }} last
  folded: >-
    {{ s }} and
    more
  nested:
    {{ entry(s) | indent(4) }}
    {% include "_part.yaml" %}
    <<: {{ {"merged": s, "k" ~ s: s} }}
  list: {{ [s, [s]] }}
  base64: {{ s | b64encode }}
  chosen: {{ s if s else "empty" }}
{% endfor %}
---
apiVersion: v1
kind: Namespace
metadata: {name: last}
"#;

fn expected(s: &str) -> Value {
    use base64::Engine as _;
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"},
        "data": {
            "plain": s, "quoted": s, "single": s, "partial": format!("a{s}b-{s}"), "in quotes": format!("a: {s}, {s}"),
            format!("k{s}"): "key", "flow": [s, {"a": s}, s], "literal": format!("first {s}\n{s} last\n"),
            "folded": format!("{s} and more"),
            "nested": {"entry": s, "text": format!("<{s}>"), "part": s, "merged": s, format!("k{s}"): s},
            "list": [s, [s]], "base64": base64::engine::general_purpose::STANDARD.encode(s),
            "chosen": if s.is_empty() { "empty" } else { s },
        },
    })
}

fn hostile_chart() -> Chart {
    let mut files = Files::default();
    files.insert(
        "agent/v0.6/chart.yaml",
        "kind: agent\nline: v0.6\nstages: [{name: all, title: All, templates: [t.yaml]}]\n",
    );
    files.insert("agent/v0.6/templates/t.yaml", TEMPLATE);
    files.insert(
        "agent/v0.6/templates/_lib.yaml",
        "{% macro entry(s) %}\nentry: {{ s }}\ntext: <{{ s }}>\n{% endmacro %}",
    );
    files.insert("agent/v0.6/templates/_part.yaml", "    part: {{ s }}\n");
    Chart::from_files(&files, Kind::Agent, line("v0.6")).unwrap()
}

#[test]
fn no_value_changes_anything_but_the_places_it_was_put() {
    let chart = hostile_chart();
    let strategy = prop::collection::vec(hostile(), BATCH as usize);
    let mut runner = proptest::test_runner::TestRunner::new(batches(10_000));
    runner
        .run(&strategy, |all| {
            let input = RenderInput { values: json!({"all": all}), ..RenderInput::default() };
            let rendered = chart.render(&input).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(rendered.objects.len(), all.len() + 1);
            for (object, s) in rendered.objects.iter().zip(&all) {
                prop_assert_eq!(&object.json, &expected(s));
            }
            prop_assert_eq!(rendered.objects[all.len()].name(), "last");
            // The way that mistakes take is slower, so it gets a few of each batch.
            let few = RenderInput { values: json!({"all": all[..5]}), ..RenderInput::default() };
            let [quick, careful] = chart.render_both(&few);
            prop_assert!(quick.is_some() && quick == careful);
            Ok(())
        })
        .unwrap();
}

#[test]
fn objects_read_back_as_they_were_written() {
    let strategy = prop::collection::vec((hostile(), hostile()), BATCH as usize);
    let mut runner = proptest::test_runner::TestRunner::new(batches(10_000));
    runner
        .run(&strategy, |all| {
            let map: serde_json::Map<String, Value> =
                all.into_iter().map(|(key, value)| (format!("k{key}"), json!([value]))).collect();
            let value = Value::Object(map);
            let text = output::object_yaml(&value);
            prop_assert_eq!(
                &serde_saphyr::from_str::<Value>(&text).map_err(|error| TestCaseError::fail(error.to_string()))?,
                &value
            );
            let mut sources = Sources::default();
            let source = sources.add_source("x", text);
            let node = crate::chart::yaml::read::read_source(&sources, source)
                .map_err(|errors| TestCaseError::fail(format!("{errors:?}")))?;
            prop_assert_eq!(node.unwrap().to_json(), value);
            Ok(())
        })
        .unwrap();
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), Just(json!(1)), Just(json!("x")), Just(json!([1, null])), Just(json!({}))];
    leaf.prop_recursive(4, 24, 4, |inner| prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| json!(map)))
}

/// Merges as the code under test does, without origins: nulls delete, mappings merge, all else replaces.
fn model(below: &Value, above: &Value) -> Value {
    let (Value::Object(under), Value::Object(over)) = (below, above) else { return strip(above) };
    let mut merged = under.clone();
    for (key, value) in over {
        match value {
            Value::Null => {
                merged.remove(key);
            }
            value => {
                let below = merged.get(key).cloned().unwrap_or(Value::Null);
                merged.insert(key.clone(), model(&below, value));
            }
        }
    }
    Value::Object(merged)
}

fn strip(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let present = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(present.map(|(key, value)| (key.clone(), strip(value))).collect())
        }
        other => other.clone(),
    }
}

fn placeless_node(value: &Value) -> Node {
    Node::from_json(value, Origin::default())
}

proptest! {
    #![proptest_config(Config { cases: 10_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn layers_merge_the_same_however_they_are_grouped(a in tree(), b in tree(), c in tree()) {
        let left = merge_nodes(merge_nodes(placeless_node(&a), placeless_node(&b)), placeless_node(&c)).to_json();
        let right = merge_nodes(placeless_node(&a), merge_nodes(placeless_node(&b), placeless_node(&c))).to_json();
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(left, model(&model(&strip(&a), &b), &c));
    }

    #[test]
    fn nothing_makes_reading_values_or_sets_panic(text in hostile(), more in hostile()) {
        let both = format!("{text}{more}");
        let kinds = [SetKind::Value, SetKind::Text, SetKind::Json, SetKind::File];
        let mut builder = ValuesBuilder::new(None).file("x", both.as_bytes());
        for kind in kinds {
            builder = builder.set_with(kind, &both, &|_| Ok(Vec::new())).set_with(kind, &format!("a.b={both}"), &|_| Ok(Vec::new()));
        }
        let _ = builder.peek_values().map_err(|errors| errors.render_diagnostics(true));
    }

    #[test]
    fn nothing_makes_preparing_a_template_panic(text in hostile(), more in hostile()) {
        let source = format!("a: {text}{{{{ values }}}}{more}");
        let _ = render::prepare_template("t.yaml", &source, 0, &mut Vec::new(), render::Marks::Places).map_err(|error| error.render_diagnostic(false));
    }

    #[test]
    fn text_given_as_text_arrives_as_it_was(text in hostile()) {
        let escaped: String = text.chars().flat_map(|c| if matches!(c, ',' | '\\' | '{' | '}') { vec!['\\', c] } else { vec![c] }).collect();
        let values = ValuesBuilder::new(None).set(SetKind::Text, &format!("a={escaped}")).peek_values();
        prop_assert_eq!(&values.unwrap()["a"], &text);
        let quoted = json!({"a": text}).to_string();
        let values = ValuesBuilder::new(None).file("x.json", quoted.as_bytes()).peek_values();
        prop_assert_eq!(&values.unwrap()["a"], &text);
    }
}

proptest! {
    // Each of these compiles a chart, so they are fewer.
    #![proptest_config(Config { cases: 500, failure_persistence: None, ..Config::default() })]

    #[test]
    fn nothing_makes_loading_and_rendering_a_template_panic(text in hostile(), more in hostile()) {
        let mut files = Files::default();
        files.insert("agent/v0.6/chart.yaml", "kind: agent\nline: v0.6\nstages: [{name: all, title: All, templates: [t.yaml]}]\n");
        files.insert("agent/v0.6/templates/t.yaml", format!("a: {text}{{{{ values }}}}{more}"));
        if let Ok(chart) = Chart::from_files(&files, Kind::Agent, line("v0.6")) {
            let _ = chart.render(&RenderInput::default()).map_err(|errors| errors.render_diagnostics(false));
        }
    }
}

#[test]
fn scalars_keep_their_spelling_where_text_is_wanted() {
    let schema = json!({"type": "object", "properties": {"tag": {"type": "string"}}});
    for raw in [
        "1.10",
        "0123456",
        "1e3",
        "1_000",
        "0x1f",
        "0o17",
        "0b1",
        "010",
        "-0",
        "+1",
        ".5",
        "1.",
        "yes",
        "No",
        "on",
        "y",
        "true",
        "False",
        ".inf",
        "-.INF",
        ".nan",
        "99999999999999999999",
        "1e999",
        "12:30:45",
        "2024-01-01",
        "v1.2",
        "1.2.3",
        "=",
        "None",
        "a#b",
        "a:b",
        "<<",
    ] {
        for builder in [
            ValuesBuilder::new(None).file("x", format!("tag: {raw}\n").as_bytes()),
            ValuesBuilder::new(None).set(SetKind::Value, &format!("tag={raw}")),
            ValuesBuilder::new(None).flag("--image-tag", "tag", raw),
        ] {
            let values = builder.build(|| schema.clone()).unwrap_or_else(|errors| panic!("{raw}: {errors}"));
            assert_eq!(values.to_json(), json!({"tag": raw}));
            let text = output::object_yaml(&values.to_json());
            assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), json!({"tag": raw}), "{text}");
        }
    }
}
