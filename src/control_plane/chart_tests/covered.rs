//! Every branch of the templates is taken, and every value changed, by some preset or fixture.

use std::collections::BTreeSet;

use super::*;
use crate::chart::testing::coverage::{Coverage, constant_values};
use crate::k8s::ObjectRef;

const FULL: &str = include_str!("../../../tests/packager/fixtures/control-plane-full.yaml");
const CLOUD: &str = include_str!("../../../tests/packager/fixtures/control-plane-cloud.yaml");
const KEYS: &str = include_str!("../../../tests/packager/fixtures/control-plane-keys.yaml");
const KEYS_ADDRESSED: &str = include_str!("../../../tests/packager/fixtures/control-plane-keys-addressed.yaml");
const EXISTING_KEYS: &str = include_str!("../../../tests/packager/fixtures/control-plane-existing-keys.yaml");
const SPREAD: &str = include_str!("../../../tests/packager/fixtures/control-plane-spread.yaml");

/// The presets and fixtures of a line, rendered with the exposure that they ask for.
fn inputs(chart: &Chart) -> Vec<RenderInput> {
    let has_replicas = chart.line() >= "v0.8".parse().unwrap();
    let presets = preset_names(chart).into_iter().map(|name| {
        let preset = name.and_then(|name| embedded_presets().find(|preset| preset.name == name));
        preset.map_or("", |preset| preset.text)
    });
    let fixtures = [FULL, CLOUD, KEYS, KEYS_ADDRESSED, EXISTING_KEYS].into_iter().chain(has_replicas.then_some(SPREAD));
    presets
        .chain(fixtures)
        .map(|text| {
            let tree = chart.values_builder().file("fixture.yaml", text.as_bytes());
            let tree = tree.build_checked(ControlPlaneValues::schema()).unwrap_or_else(|error| panic!("{error}"));
            let values = tree.deserialize::<ControlPlaneValues>().unwrap().with_derived_values();
            let mut input = input(chart, &values, &placeholder_files());
            let kind = &input.values["exposure"]["type"];
            if kind != "Auto" {
                input.facts["exposure"]["type"] = kind.clone();
            }
            input
        })
        .collect()
}

#[test]
fn every_branch_and_expression_of_the_templates_is_reached() {
    let (mut missing, mut reached) = (BTreeSet::new(), BTreeSet::new());
    for chart in charts() {
        let mut coverage = Coverage::from_chart(chart).unwrap();
        for input in inputs(chart) {
            coverage.add_input(&input).unwrap_or_else(|error| panic!("{error}"));
        }
        missing.extend(coverage.format_unreached_sites());
        reached.extend(coverage.format_reached_sites());
    }
    // What an older line inherits to a newer one may wait for that one's values.
    let never: Vec<&String> = missing.difference(&reached).collect();
    assert_eq!(never, [""; 0]);
}

#[test]
fn every_value_is_changed_by_a_preset_or_a_fixture() {
    for chart in charts() {
        let inputs = inputs(chart);
        let values: Vec<&Value> = inputs.iter().map(|input| &input.values).collect();
        let constant = constant_values(&ControlPlaneValues::schema(), chart.line(), &values);
        assert_eq!(constant, [""; 0], "{}", chart.line());
    }
}

#[test]
fn what_the_fixtures_render_would_be_taken_by_a_server() {
    for chart in charts() {
        for input in inputs(chart) {
            let rendered = chart.render(&input).unwrap_or_else(|error| panic!("{error}"));
            let found = crate::chart::inspect::lint::lint_objects(chart, &rendered, chart.version_row().unwrap());
            assert_eq!(found, [], "{}", chart.line());
        }
    }
}

/// The objects that fixtures and presets render, of every line.
fn rendered_anywhere() -> BTreeSet<ObjectRef> {
    let rendered = charts().iter().flat_map(|chart| {
        let inputs = inputs(chart).into_iter();
        inputs.map(move |input| chart.render(&input).unwrap_or_else(|error| panic!("{error}")))
    });
    rendered.flat_map(|rendered| rendered.objects).map(|object| ObjectRef::of(&object.json).unwrap()).collect()
}

#[test]
fn what_any_line_renders_with_any_values_is_renderable_and_nothing_else() {
    let (name, namespace) = ("demo".parse().unwrap(), "fleet".parse().unwrap());
    let renderable = super::super::charts::renderable_control_plane(&name, &namespace);
    let rendered = rendered_anywhere();
    let missing: Vec<&ObjectRef> = rendered.iter().filter(|object| !renderable.contains(object)).collect();
    assert_eq!(missing, Vec::<&ObjectRef>::new());
    // Every template is reached by some fixture, so what none of them renders no values can render.
    let never: Vec<&ObjectRef> = renderable.iter().filter(|object| !rendered.contains(object)).collect();
    assert_eq!(never, Vec::<&ObjectRef>::new());
    let elsewhere = renderable.iter().filter(|object| match &object.namespace {
        Some(namespace) => namespace != "fleet",
        None => object.kind != "Namespace" || object.name != "fleet",
    });
    let elsewhere: Vec<&ObjectRef> = elsewhere.collect();
    assert_eq!(elsewhere, Vec::<&ObjectRef>::new(), "a control plane has nothing outside of its namespace");
    let rights = renderable.iter().filter(|object| object.group.contains("rbac"));
    let rights: Vec<String> = rights.map(|object| format!("{} {}", object.kind, object.name)).collect();
    assert_eq!(rights, ["Role fleet-keys", "RoleBinding fleet-keys"], "but for who renews certificates");
}

#[test]
fn the_renderable_objects_are_those_of_the_name_and_the_namespace() {
    let [own, other] = ["fleet", "elsewhere"].map(|namespace| {
        super::super::charts::renderable_control_plane(&"demo".parse().unwrap(), &namespace.parse().unwrap())
    });
    assert!(own.iter().all(|object| !other.contains(object)));
}

#[test]
fn the_quick_way_renders_what_the_careful_one_does() {
    for chart in charts() {
        for input in inputs(chart) {
            let [quick, careful] = chart.render_both(&input);
            assert!(quick.is_some() && quick == careful, "{}", chart.line());
            let each = chart.render_each(&input, |object| object).unwrap();
            assert!(quick.is_some_and(|quick| quick.objects == each), "{}: one after the other", chart.line());
        }
    }
}
