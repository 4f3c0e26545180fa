//! Rendered objects as text for stdout.

use crate::chart::{Object, output};

/// A stream of YAML documents in apply order.
pub(super) fn yaml(objects: &[Object]) -> String {
    output::yaml_stream(objects.iter().map(|object| &object.json))
}

/// One Kubernetes `List` as JSON.
pub(super) fn json(objects: &[Object]) -> String {
    output::json_list(objects.iter().map(|object| &object.json))
}
