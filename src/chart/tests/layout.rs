//! Charts that are put together wrongly, and what makes two renders the same.

use super::*;

const STAGES: &str = "stages: [{name: all, title: All, templates: [a.yaml]}]\n";

/// Loads the agent chart v0.7 out of some files, and gives its error.
fn error(files: &[(&'static str, &str)]) -> String {
    let mut all = Files::default();
    for (path, text) in files {
        all.insert(*path, (*text).to_owned());
    }
    match Chart::from_files(&all, Kind::Agent, line("v0.7")) {
        Ok(_) => "LOADED".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_chart_that_is_put_together_wrongly_is_refused_with_the_place() {
    let head = format!("kind: agent\nline: v0.7\n{STAGES}");
    let below = format!("kind: agent\nline: v0.6\n{STAGES}");
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let (chart, template) = ("agent/v0.7/chart.yaml", "agent/v0.7/templates/a.yaml");
    let twice = "kind: agent\nline: v0.7\nstages: [{name: a, title: A, templates: [a.yaml]}, {name: b, title: B, templates: [a.yaml]}]";
    let same = "kind: agent\nline: v0.7\nstages: [{name: a, title: A, templates: [a.yaml]}, {name: a, title: B, templates: []}]";
    let errors = [
        error(&[(chart, &head), (template, object)]),
        error(&[]),
        error(&[(chart, "kind: agent"), (template, object)]),
        error(&[(chart, &format!("{head}color: red\n")), (template, object)]),
        error(&[(chart, &head.replace("v0.7", "v0.8")), (template, object)]),
        error(&[(chart, &head.replace("agent", "control-plane")), (template, object)]),
        error(&[(chart, &head)]),
        error(&[(chart, &head), (template, object), ("agent/v0.7/templates/b.yaml", object)]),
        error(&[(chart, twice), (template, object)]),
        error(&[(chart, same), (template, object)]),
        error(&[(chart, &head), (template, object), ("agent/v0.7/notes.yaml", "")]),
        error(&[(chart, &head), (template, object), ("agent/v0.7/templates/deep/a.yaml", object)]),
        error(&[(chart, &format!("{head}extends: v0.6\n")), (template, object)]),
        error(&[(chart, &format!("{head}extends: v0.7\n")), (template, object)]),
        error(&[
            (chart, "kind: agent\nline: v0.7\nextends: v0.6\nremove: [templates/b.yaml]\n"),
            ("agent/v0.6/chart.yaml", &below),
            ("agent/v0.6/templates/a.yaml", object),
        ]),
        error(&[
            (chart, "kind: agent\nline: v0.7\nextends: v0.6\n"),
            ("agent/v0.6/chart.yaml", &below),
            ("agent/v0.6/templates/a.yaml", object),
        ]),
    ];
    insta::assert_snapshot!(errors.join("\n\n"));
}

fn values_with_replicas(chart: &Chart, replicas: u32) -> ValuesTree {
    chart.values_builder().set(SetKind::Value, &format!("etcd.replicas={replicas}")).build(schema).unwrap()
}

fn render_replicas(chart: &Chart, replicas: u32) -> Rendered {
    chart.render(&input(values_with_replicas(chart, replicas).to_json())).unwrap()
}

#[test]
fn the_same_input_gives_the_same_bytes_and_the_same_digest() {
    let chart = chart("v0.6");
    assert_eq!(render_replicas(&chart, 3), render_replicas(&chart, 3));
    assert_eq!(render_replicas(&chart, 3).objects_digest(), render_replicas(&chart, 3).objects_digest());
    assert_ne!(render_replicas(&chart, 3).objects_digest(), render_replicas(&chart, 1).objects_digest());
    assert_eq!(
        values_with_replicas(&chart, 3).digest_values(),
        chart.values_builder().file("x", b"etcd: {replicas: 3}").build(schema).unwrap().digest_values()
    );
}

#[test]
fn without_a_users_values_no_schema_is_asked_for() {
    let chart = chart("v0.6");
    assert!(chart.values_builder().build(|| panic!("not needed")).is_ok());
    let built = chart.values_builder().set(SetKind::Value, "logLevel=3").build(schema).unwrap();
    let place = built.find_origin(&["logLevel".to_owned()]).unwrap();
    assert_eq!((place.place.format_position().as_str(), place.overrode.len()), ("--set:1:10", 1));
}

#[test]
fn defaults_are_taken_for_right_only_where_a_test_holds_that_they_are() {
    let schema = serde_json::json!({"properties": {"a": {"type": "string", "pattern": "^x"}, "b": {}}});
    let values = ValuesBuilder::new(None).defaults("values.yaml", "a: wrong\n").set(SetKind::Value, "b=1");
    assert!(values.clone().build(|| schema.clone()).is_ok());
    assert!(values.clone().build_checked(schema.clone()).is_err());
    assert!(values.clone().set(SetKind::Value, "a=other").build(|| schema.clone()).is_err());
}
