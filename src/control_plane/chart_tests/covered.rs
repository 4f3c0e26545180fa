//! Every branch of the templates is taken, and every value changed, by some preset or fixture.

use std::collections::BTreeSet;

use super::*;
use crate::chart::coverage::{Coverage, constant_values};

const FULL: &str = include_str!("../../../tests/packager/fixtures/control-plane-full.yaml");
const CLOUD: &str = include_str!("../../../tests/packager/fixtures/control-plane-cloud.yaml");
const SPREAD: &str = include_str!("../../../tests/packager/fixtures/control-plane-spread.yaml");

/// The presets and fixtures of a line, rendered with the exposure that they ask for.
fn inputs(chart: &Chart) -> Vec<RenderInput> {
    let has_replicas = chart.line() >= "v0.8".parse().unwrap();
    let presets = preset_names(chart).into_iter().map(|name| {
        let preset = name.and_then(|name| presets().find(|preset| preset.name == name));
        preset.map_or("", |preset| preset.text)
    });
    let fixtures = [FULL, CLOUD].into_iter().chain(has_replicas.then_some(SPREAD));
    presets
        .chain(fixtures)
        .map(|text| {
            let tree = chart.values().file("fixture.yaml", text.as_bytes());
            let tree = tree.build_checked(ControlPlaneValues::schema()).unwrap_or_else(|error| panic!("{error}"));
            let values: ControlPlaneValues = tree.deserialize().unwrap();
            let mut input = input(chart, &values, &placeholders());
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
        let mut coverage = Coverage::of(chart).unwrap();
        for input in inputs(chart) {
            coverage.add(&input).unwrap_or_else(|error| panic!("{error}"));
        }
        missing.extend(coverage.missing());
        reached.extend(coverage.reached());
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
            let found = crate::chart::lint::lint(chart, &rendered, chart.row().unwrap());
            assert_eq!(found, [], "{}", chart.line());
        }
    }
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
