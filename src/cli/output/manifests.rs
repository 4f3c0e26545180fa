//! Rendered objects as text for stdout.

use super::error::CliError;
use super::format::Format;
use super::terminal::Ui;
use super::values_error::wrong_values;
use crate::chart::{Diagnostics, Object, Rendered, output};

/// Renders all objects and prints them: `manifests` gives them as YAML, `render` as objects.
pub(crate) fn print_manifests(
    ui: &Ui,
    format: Format,
    manifests: impl FnOnce() -> Result<Vec<String>, Diagnostics>,
    render: impl FnOnce() -> Result<Rendered, Diagnostics>,
) -> Result<(), CliError> {
    let text = match format {
        Format::Yaml => manifests().map(|documents| documents.concat()),
        Format::Json => render().map(|rendered| format_manifests(format, &rendered.objects)),
    };
    Ok(ui.write_stdout(&text.map_err(|problems| wrong_values(&problems))?)?)
}

/// Objects in apply order: a stream of YAML documents, or one Kubernetes `List` as JSON.
pub(crate) fn format_manifests(format: Format, objects: &[Object]) -> String {
    let objects = objects.iter().map(|object| &object.json);
    match format {
        Format::Yaml => output::yaml_stream(objects),
        Format::Json => output::json_list(objects),
    }
}
