//! Rendered objects as text for stdout.

use super::format::Format;
use crate::chart::{Object, output};

/// Objects in apply order: a stream of YAML documents, or one Kubernetes `List` as JSON.
pub(super) fn of(format: Format, objects: &[Object]) -> String {
    let objects = objects.iter().map(|object| &object.json);
    match format {
        Format::Yaml => output::yaml_stream(objects),
        Format::Json => output::json_list(objects),
    }
}
