//! Values that the templates use, compared with the schema: paths that nobody defined, and values that nobody uses.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::chart::Chart;
use crate::chart::diagnostic::Diagnostics;
use crate::chart::values::{Schema, Views};
use crate::chart::yaml::node::show_path;

/// Greatest depth to which the schema is followed, in keys; recursive schemas have no end.
const MAX_DEPTH: usize = 12;

/// Paths that do not match between templates and schema, in the form `etcd.replicas`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    /// Used by a template, but not in the schema.
    pub unknown: Vec<String>,
    /// In the schema, but used by no template. Some are meant for the program itself; the caller knows which.
    pub unused: Vec<String>,
}

/// Compares templates and schema. What a template passes on as a whole counts as used with everything below it.
///
/// # Errors
/// Mistakes in the templates.
pub(crate) fn compare_usage(chart: &Chart, schema: &Value) -> Result<Usage, Diagnostics> {
    let schema = Schema::new(schema);
    let variables = chart.renderer()?.used_variables();
    let used: BTreeSet<Vec<String>> = variables
        .iter()
        .filter_map(|path| path.strip_prefix("values."))
        .map(|path| path.split('.').map(ToOwned::to_owned).collect())
        .collect();
    let unknown = used.iter().filter(|path| schema.views_at(path).is_none()).map(|path| show_path(path)).collect();
    let mut leaves = Vec::new();
    collect_schema_paths(&schema.root_views(), &mut Vec::new(), &mut leaves);
    let whole = variables.contains("values");
    let is_used =
        |leaf: &Vec<String>| whole || used.iter().any(|path| leaf.starts_with(path) || path.starts_with(leaf));
    let unused = leaves.iter().filter(|leaf| !is_used(leaf)).map(|leaf| show_path(leaf)).collect();
    Ok(Usage { unknown, unused })
}

fn collect_schema_paths(views: &Views<'_>, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let keys = views.property_keys();
    if keys.is_empty() || path.len() >= MAX_DEPTH {
        found.push(path.clone());
        return;
    }
    for key in keys {
        if let Some(child) = views.child_views(key) {
            path.push(key.to_owned());
            collect_schema_paths(&child, path, found);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::{chart, schema};

    #[test]
    fn paths_that_only_templates_or_only_the_schema_know_are_found() {
        let mut schema = schema();
        let properties = schema["$defs"]["Etcd"]["properties"].as_object_mut().unwrap();
        properties.remove("storageClass");
        let found = compare_usage(&chart("v0.6"), &schema).unwrap();
        assert_eq!(found.unknown, ["etcd.storageClass"]);
        // The whole of `etcd` is used by a digest, so nothing below it is unused.
        assert_eq!(
            found.unused,
            [
                "exposure",
                "images.scheduler.repository",
                "images.scheduler.tag",
                "name",
                "paused",
                "ratio",
                "standby",
                "token"
            ]
        );
    }
}
