//! Golden files: every line flattened, and what each preset changes in it. `cargo bed goldens` writes them again.

use super::*;
use crate::chart::testing::golden::{format_changes, golden_yaml, snapshot};

#[test]
fn every_flattened_line_is_the_golden_one() {
    for chart in charts() {
        let documents: Vec<String> =
            render(chart, None).objects.iter().map(|object| golden_yaml(&object.json)).collect();
        snapshot!(format!("control-plane-{}", chart.line()), documents.join("---\n"));
    }
}

#[test]
fn every_preset_changes_what_its_golden_file_says() {
    for chart in charts() {
        let plain = render(chart, None);
        for preset in preset_names(chart).into_iter().flatten() {
            let rendered = render(chart, Some(preset));
            snapshot!(
                format!("control-plane-{}-{preset}", chart.line()),
                format_changes(&plain.objects, &rendered.objects)
            );
        }
    }
}

#[test]
fn there_is_no_golden_file_that_no_test_writes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/control_plane/chart_tests/snapshots");
    let mut expected: Vec<String> = Vec::new();
    for chart in charts() {
        for preset in preset_names(chart) {
            let suffix = preset.map(|preset| format!("-{preset}")).unwrap_or_default();
            expected.push(format!("control-plane-{}{suffix}.snap", chart.line()));
        }
    }
    expected.sort();
    let entries = fs_err::read_dir(folder).unwrap();
    let mut found: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, expected);
}
