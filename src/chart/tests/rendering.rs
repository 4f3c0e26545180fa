//! Rendering: what templates may say, and what they say when they are wrong.

use super::*;

/// A chart of one template, and perhaps others beside it.
fn one(template: &str) -> Files {
    let mut files = Files::default();
    files.insert(
        "agent/v0.6/chart.yaml",
        "kind: agent\nline: v0.6\nstages: [{name: all, title: All, templates: [t.yaml]}]\n",
    );
    files.insert("agent/v0.6/templates/t.yaml", template.to_owned());
    files
}

fn render_with(template: &str, values: Value) -> Result<Vec<Value>, Diagnostics> {
    let chart = Chart::from_files(&one(template), Kind::Agent, line("v0.6")).map_err(|error| match error {
        ChartError::File(found) => found,
        other => panic!("{other}"),
    })?;
    let input = RenderInput { values, ..RenderInput::default() };
    let rendered = chart.render(&input);
    // One after the other it is the same, mistakes included.
    let each = chart.render_each(&input, |object| object);
    assert_eq!(format!("{each:?}"), format!("{:?}", rendered.as_ref().map(|rendered| &rendered.objects)));
    Ok(rendered?.objects.into_iter().map(|object| object.json).collect())
}

/// Renders `body` below `data:` of a ConfigMap.
fn data(body: &str, values: Value) -> Result<Value, Diagnostics> {
    let template = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata:\n{body}\n");
    Ok(render_with(&template, values)?.remove(0)["data"].take())
}

fn error(body: &str, values: Value) -> String {
    data(body, values).unwrap_err().render_diagnostics(false)
}

#[test]
fn a_value_alone_keeps_its_type_and_one_inside_text_becomes_text() {
    let values = json!({"n": 3, "b": true, "s": "x", "l": [1, "2"], "m": {"k": "v"}, "none": null, "f": 1.5});
    let body =
        "  n: {{ values.n }}\n  b: {{ values.b }}\n  q: \"{{ values.n }}\"\n  l: {{ values.l }}\n  m: {{ values.m }}
  none: {{ values.none }}\n  t: a-{{ values.n }}-{{ values.b }}{{ values.f }}\n  {{ values.s }}: {{ values.s }}
  flow: [{{ values.n }}, {{ values.s }}]\n  block: |\n    a {{ values.s }}\n    b\n  <<: {{ values.m }}";
    assert_eq!(
        data(body, values).unwrap(),
        json!({"n": 3, "b": true, "q": "3", "l": [1, "2"], "m": {"k": "v"}, "none": null, "t": "a-3-true1.5", "x": "x",
            "flow": [3, "x"], "block": "a x\nb\n", "k": "v"})
    );
}

#[test]
fn macros_includes_loops_and_filters_work_on_values() {
    let values = json!({"l": ["a", "b"], "m": {"z": 1, "y": 2}, "none": null, "pem": "x\ny"});
    let body = "  joined: {{ values.l | join(',') }}\n  length: {{ values.l | length }}
  default: {{ values.none | default('d') }}\n  b64: {{ values.pem | b64encode }}
{% set ns = namespace(n=0) %}{% for key, value in values.m | items %}{% set ns.n = ns.n + value %}
  {{ key }}: {{ value }}
{% endfor %}
  sum: {{ ns.n }}\n  ternary: {{ 'x' if values.none is none else 'y' }}\n  merged: {{ values.m | merge({'a': 0}) }}
  last: {{ values.l | last }}\n  text: {{ values.m | json }}";
    assert_eq!(
        data(body, values).unwrap(),
        json!({"joined": "a,b", "length": 2, "default": "d", "b64": "eAp5", "y": 2, "z": 1, "sum": 3, "ternary": "x",
            "merged": {"a": 0, "y": 2, "z": 1}, "last": "b", "text": "{\"y\":2,\"z\":1}"})
    );
}

#[test]
fn an_error_points_at_the_template() {
    let values = json!({"etcd": {"image": "x"}, "l": [1], "none": null, "secret": "hunter2"});
    let errors: Vec<String> = [
        "  a: {{ values.etcd.imagee }}",
        "  a: {{ nothing }}",
        "  a: x{{ values.l }}",
        "  a: \"{{ values.none }}\"",
        "  {{ values.l }}: 1",
        "  a: 1\n  a: 2",
        "  a: 1\n  # {{ values.etcd.image }}",
        "  a: {{ values.secret | nofilter }}",
        "  a: {{ values.secret + 1 }}",
        "  a: {{ values.secret | join(',') }}",
        "  a: {{ values.secret | safe }}",
        "  a: {% if %}",
        "  a: {% macro m() %}x{% endmacro %}{{ m() | upper }}",
        "  a: {% macro m() %}{{ values.secret }}{% endmacro %}{{ m() ~ 'x' }}",
        "  a: {% macro m() %}{{ values.secret }}{% endmacro %}{{ m }}",
        "  a: yes",
        "  a: 010",
        "  a: [1",
        "  a: &x 1",
        "  a: {% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
        "  a: {% include 'none.yaml' %}",
    ]
    .into_iter()
    .map(|body| error(body, values.clone()))
    .collect();
    assert!(!errors.iter().any(|error| error.contains("hunter2")), "{errors:#?}");
    insta::assert_snapshot!(errors.join("\n\n"));
}

#[test]
fn a_document_must_be_an_object_whose_kind_is_written_out() {
    let errors: Vec<String> = [
        "kind: ConfigMap\nmetadata: {name: x}",
        "apiVersion: v1\nkind: ConfigMap",
        "apiVersion: v1\nkind: {{ values.kind }}\nmetadata: {name: x}",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ values.empty }}}",
        "apiVersion: v1\nkind: List\nmetadata: {name: x}\nitems: []",
        "- a",
        "<<: {{ values.whole }}\nmetadata: {name: x}",
        "{{ values.whole }}",
        "apiVersion: v1\n{{ values.key }}: Secret\nmetadata: {name: x}",
    ]
    .into_iter()
    .map(|template| {
        render_with(
            template,
            json!({"kind": "Secret", "empty": "", "whole": {"apiVersion": "v1", "kind": "Secret"}, "key": "kind"}),
        )
        .unwrap_err()
        .0[0]
            .message
            .clone()
    })
    .collect();
    insta::assert_snapshot!(errors.join("\n"));
    assert!(
        render_with("{% if values.no %}\nkind: x\n{% endif %}\n---\n# nothing\n", json!({"no": false}))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn bootstrap_files_may_use_the_libraries_of_the_templates() {
    let mut files = one("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {{ bootstrap }}\n");
    files.insert("agent/v0.6/templates/_lib.yaml", "{% macro m(x) %}{{ x }}{% endmacro %}");
    files.insert(
        "agent/v0.6/bootstrap/b.yaml",
        "{% from '_lib.yaml' import m %}apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ m(values.n) }}\n",
    );
    let chart = Chart::from_files(&files, Kind::Agent, line("v0.6")).unwrap();
    let input = RenderInput { values: json!({"n": "b"}), ..RenderInput::default() };
    let rendered = chart.render(&input).unwrap();
    assert_eq!(rendered.bootstrap[0].name(), "b");
    assert!(rendered.objects[0].json["data"]["b.yaml"].as_str().unwrap().contains("\"name\":\"b\""));
}
