//! Requirements on every chart that comes with the program, whatever it installs.

use super::*;
use crate::api::kinds;

fn embedded() -> Vec<(Row, Chart)> {
    if Files::from_embedded().get("versions.yaml").is_none() {
        return Vec::new();
    }
    let charts = embedded_versions().rows().iter().flat_map(|row| {
        row.charts
            .iter()
            .map(move |(kind, line)| (row.clone(), Chart::load_embedded(*kind, *line).unwrap().with_row(row.clone())))
    });
    charts.collect()
}

#[test]
fn every_chart_of_the_table_loads_and_its_defaults_are_plain_data() {
    for (row, chart) in embedded() {
        let values = chart
            .values_builder()
            .build(|| Value::Bool(true))
            .unwrap_or_else(|errors| panic!("{}: {errors}", row.version));
        assert!(values.to_json().is_object());
        assert!(values.warnings().is_empty(), "{:?}", values.warnings());
    }
}

#[test]
fn every_image_of_a_row_has_a_repository_without_and_a_tag_with_a_version() {
    for (row, _) in embedded() {
        for (name, image) in &row.images {
            let last = image.repository.rsplit('/').next().unwrap_or_default();
            assert!(!last.contains(':') && !image.tag.is_empty(), "{} {name}: {image:?}", row.version);
        }
    }
}

#[test]
fn every_preset_is_readable_and_no_chart_wants_a_kind_that_is_unknown() {
    for preset in embedded_presets() {
        let read = ValuesBuilder::new(None).file(preset.name, preset.text.as_bytes()).peek_values();
        assert!(read.is_ok(), "{}: {}", preset.name, read.unwrap_err());
    }
    for (row, chart) in embedded() {
        for (name, path, text) in chart.flattened_files() {
            let minors: Vec<u32> = match row.control_plane_minor() {
                // Bootstrap files are for the control plane's own API server.
                Some(hub) if name.starts_with("bootstrap/") => vec![hub.minor],
                // What asks for it is rendered where the cluster serves such policies: from 1.30 on.
                _ if text.contains("facts.admissionPolicies") => vec![30],
                _ => row.kubernetes.iter().map(|minor| minor.minor).collect(),
            };
            for document in text.split("\n---") {
                let [Some(api_version), Some(kind)] = ["apiVersion:", "kind:"]
                    .map(|key| document.lines().find_map(|line| line.strip_prefix(key)).map(str::trim))
                else {
                    continue;
                };
                for &minor in &minors {
                    assert_eq!(kinds::check_served(api_version, kind, minor), Ok(()), "{path} in {}", row.version);
                }
            }
        }
    }
}
