//! Explaining fields: what is said about where they come from.

use super::*;
use crate::chart::inspect::explain::{
    ExplainError, Explanation, explain_rendered_field, parse_path, render_explanations, render_json, replace_value,
};

fn explained(
    build: impl FnOnce(ValuesBuilder) -> ValuesBuilder,
    field: &str,
) -> Result<Vec<Explanation>, ExplainError> {
    let chart = chart("v0.6");
    let values = build(chart.values_builder()).build_checked(schema()).unwrap();
    explain_rendered_field(&chart, &input(values.to_json()), &values, &[], field)
}

#[test]
fn a_field_is_explained_by_its_template_and_by_the_values_that_decide_it() {
    let texts: Vec<String> = [
        "statefulset/etcd#spec.template.spec.containers[0].image",
        "StatefulSet/etcd#spec.replicas",
        "statefulset/etcd#metadata.labels",
        "statefulset/etcd#metadata.annotations[\"checksum/values\"]",
        "namespace/fleet#metadata.name",
    ]
    .into_iter()
    .map(|field| {
        let explained = explained(
            |values| {
                values
                    .file("my.yaml", b"etcd:\n  replicas: 3\n  labels:\n    team: a\n")
                    .set(SetKind::Value, "images.etcd.tag=1.10")
            },
            field,
        );
        render_explanations(&explained.unwrap())
    })
    .collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn what_comes_from_a_secret_is_masked() {
    let found = explained(|values| values, "secret/etcd-ca#data").unwrap();
    let text = render_json(&found);
    assert!(!text.contains("BEGIN") && !text.contains("LS0t") && text.contains("pki.etcd-ca"), "{text}");
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    insta::assert_snapshot!(
        [
            "etcd",
            "statefulset/etcd#a..b",
            "statefulset/none#spec",
            "statefulset/etcd#spec.nothing.at.all",
            "statefulset/etcd#spec.template.spec.containers[3]",
        ]
        .map(|field| explained(|values| values, field).unwrap_err().to_string())
        .join("\n")
    );
}

#[test]
fn paths_are_read_with_indexes_and_quoted_keys() {
    assert_eq!(parse_path("a.b[0][\"c.d/e\"].f").unwrap(), ["a", "b", "0", "c.d/e", "f"]);
    for text in ["a.", ".a", "a[x]", "a[0", "a[\"b"] {
        assert!(parse_path(text).is_none(), "{text}");
    }
    let mut value = json!({"a/b": [1]});
    replace_value(&mut value, &["a/b".to_owned(), "0".to_owned()], json!(2));
    assert_eq!(value, json!({"a/b": [2]}));
}
