//! The documentation of a chart as Markdown: what it installs, where it runs, its images, stages, presets and values.

use std::fmt::Write as _;

use serde_json::Value;

use crate::chart::load::Chart;
use crate::chart::values::{Schema, Views, plain_json};
use crate::chart::{Preset, Row};

/// Greatest depth to which the schema is followed, in keys.
const MAX_DEPTH: usize = 8;

/// Input of [`format_chart_readme`].
#[derive(Debug, Clone, Copy)]
pub struct Readme<'r> {
    /// The chart.
    pub chart: &'r Chart,
    /// Its row of the table.
    pub row: &'r Row,
    /// The schema of its values.
    pub schema: &'r Value,
    /// Its defaults.
    pub values: &'r Value,
    /// The presets that it takes.
    pub presets: &'r [Preset],
}

/// The documentation of a chart as Markdown.
pub fn format_chart_readme(of: &Readme<'_>) -> String {
    let (chart, row) = (of.chart, of.row);
    let mut text = format!("# {} {}\n\n", chart.kind(), row.version);
    if !chart.description().is_empty() {
        let _ = writeln!(text, "{}\n", chart.description());
    }
    let _ = writeln!(text, "Newest version: {}. For Kubernetes {}.", row.default, row.format_minor_range());
    for note in row.deprecated.iter().chain(&row.notes) {
        let _ = writeln!(text, "\n{note}");
    }
    text.push_str("\n## Images\n\n| Image | Value |\n|---|---|\n");
    for (name, path) in chart.image_paths() {
        if let Some(image) = row.images.get(&name) {
            let _ = writeln!(text, "| `{}:{}` | `{path}` |", image.repository, image.tag);
        }
    }
    text.push_str("\n## Stages\n\nObjects are applied in this order:\n\n");
    for (index, stage) in chart.stages().iter().enumerate() {
        let _ = writeln!(text, "{}. {} (`{}`)", index + 1, stage.title, stage.name);
    }
    if !of.presets.is_empty() {
        text.push_str("\n## Presets\n\n");
        for preset in of.presets {
            let _ = writeln!(text, "- `{}`: {}", preset.name, preset.description());
        }
    }
    text.push_str("\n## Values\n\n| Value | Default | |\n|---|---|---|\n");
    write_rows(&mut text, of, &Schema::new(of.schema).root_views(), &mut Vec::new());
    text
}

/// A row for every value that has no values of its own below it.
fn write_rows(text: &mut String, of: &Readme<'_>, views: &Views<'_>, path: &mut Vec<String>) {
    for key in views.property_keys() {
        let Some(child) = views.child_views(key) else { continue };
        if child.since_line().is_some_and(|since| since > of.row.version) {
            continue;
        }
        path.push(key.to_owned());
        if child.property_keys().is_empty() || path.len() >= MAX_DEPTH {
            write_row(text, of, &child, path);
        } else {
            write_rows(text, of, &child, path);
        }
        path.pop();
    }
}

fn write_row(text: &mut String, of: &Readme<'_>, views: &Views<'_>, path: &[String]) {
    let value = path.iter().try_fold(of.values, |value, key| value.get(key));
    let default = match value {
        None | Some(Value::Null) => String::new(),
        Some(value) => format!("`{}`", plain_json(value)),
    };
    let mut about = views.description().unwrap_or_default().replace('\n', " ");
    let expected = views.describe_expected();
    if !expected.is_empty() {
        let _ = write!(about, " ({expected})");
    }
    if let Some(since) = views.since_line() {
        let _ = write!(about, " Since {since}.");
    }
    let _ = writeln!(text, "| `{}` | {} | {} |", path.join("."), escape_cell(&default), escape_cell(about.trim()));
}

/// Text that cannot end a cell of a table.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::{chart, schema};

    #[test]
    fn every_value_of_the_line_is_documented_with_its_default() {
        let chart = chart("v0.6");
        let values = chart.values_builder().build(schema).unwrap().to_json();
        let of = Readme {
            chart: &chart,
            row: chart.version_row().unwrap(),
            schema: &schema(),
            values: &values,
            presets: &[],
        };
        let text = format_chart_readme(&of);
        assert!(text.starts_with("# control-plane v0.6\n"), "{text}");
        assert!(
            text.contains("| `etcd.replicas` | `1` |") && text.contains("For Kubernetes v1.24 to v1.25."),
            "{text}"
        );
        assert!(!text.contains("standby"), "it came with v0.7: {text}");
    }
}
