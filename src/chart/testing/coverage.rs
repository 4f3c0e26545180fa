//! Branches of a chart's templates, and values of it, that a set of inputs reaches: for tests, so that
//! nothing ships that no fixture has ever rendered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::version::ServiceLine;

use crate::chart::render::{RenderInput, Renderer};
use crate::chart::values::{Schema, Views};
use crate::chart::yaml::node::show_path;
use crate::chart::{Chart, Diagnostics};

/// Greatest depth to which the schema is followed, in keys; recursive schemas have no end.
const MAX_DEPTH: usize = 12;

/// The branches and expressions of a chart, and which of them have been reached.
#[derive(Debug)]
pub(crate) struct Coverage {
    renderer: Renderer,
    bootstrap: BTreeMap<String, String>,
    reached: BTreeSet<usize>,
}

impl Coverage {
    /// Returns the coverage of a chart of which nothing has been reached yet.
    ///
    /// # Errors
    /// Mistakes in the templates.
    pub(crate) fn from_chart(chart: &Chart) -> Result<Self, Diagnostics> {
        let bootstrap = chart.flattened_files().filter_map(|(name, ..)| name.strip_prefix("bootstrap/"));
        let bootstrap = bootstrap.map(|name| (name.to_owned(), "[]".to_owned())).collect();
        Ok(Self { renderer: chart.renderer()?.of_branches()?, bootstrap, reached: BTreeSet::new() })
    }

    /// Notes what an input reaches.
    ///
    /// # Errors
    /// Mistakes in the templates.
    pub(crate) fn add_input(&mut self, input: &RenderInput) -> Result<(), Diagnostics> {
        self.reached.extend(self.renderer.find_reached_sites(input, &self.bootstrap)?);
        Ok(())
    }

    /// The branches and expressions that no input has reached, with their places; `endif` stands for the branch that
    /// nobody wrote: the condition did not hold.
    pub(crate) fn format_unreached_sites(&self) -> Vec<String> {
        self.format_sites(|site| !self.reached.contains(&site))
    }

    /// Those that were reached.
    pub(crate) fn format_reached_sites(&self) -> Vec<String> {
        self.format_sites(|site| self.reached.contains(&site))
    }

    fn format_sites(&self, wanted: impl Fn(usize) -> bool) -> Vec<String> {
        let show =
            |site| format!("{}: {}", self.renderer.site_place(site).format_position(), self.renderer.site_text(site));
        (0..self.renderer.site_count()).filter(|site| wanted(*site)).map(show).collect()
    }
}

/// The values of a line that are the same in all of `inputs`, so that nothing shows what they do. Paths read
/// `etcd.replicas`.
pub(crate) fn constant_values(schema: &Value, line: ServiceLine, inputs: &[&Value]) -> Vec<String> {
    let mut leaves = Vec::new();
    collect_paths_of_line(&Schema::new(schema).root_views(), line, &mut Vec::new(), &mut leaves);
    let constant = leaves.iter().filter(|path| {
        let mut found = inputs.iter().map(|input| path.iter().try_fold(*input, |value, key| value.get(key)));
        let first = found.next().flatten().unwrap_or(&Value::Null);
        found.all(|value| value.unwrap_or(&Value::Null) == first)
    });
    constant.map(|path| show_path(path)).collect()
}

fn collect_paths_of_line(views: &Views<'_>, line: ServiceLine, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let keys = views.property_keys();
    if keys.is_empty() || path.len() >= MAX_DEPTH {
        found.push(path.clone());
        return;
    }
    for key in keys {
        let child = views.child_views(key);
        if let Some(child) = child.filter(|child| child.since_line().is_none_or(|since| since <= line)) {
            path.push(key.to_owned());
            collect_paths_of_line(&child, line, path, found);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chart::tests::line;
    use crate::chart::{Files, Kind};

    /// What no input has reached after one with these values.
    fn list_unreached(coverage: &mut Coverage, values: Value) -> Vec<String> {
        coverage.add_input(&RenderInput { values, ..RenderInput::default() }).unwrap();
        let missing = coverage.format_unreached_sites();
        missing.iter().map(|text| text.rsplit("t.yaml:").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn branches_that_no_input_takes_are_named_also_those_that_nobody_wrote() {
        let mut files = Files::default();
        files.insert(
            "agent/v0.6/chart.yaml",
            "kind: agent\nline: v0.6\nstages: [{name: all, title: All, templates: [t.yaml]}]\n",
        );
        let template = "{% macro m(x) -%}\n{% if x %}a: {{ x }}{% endif %}\n{%- endmacro %}\n{% if values.a %}\n  {{ m(values.a) }}\n{% else %}\nb\n{% endif %}\n{% for i in values.l %}\n- {{ i }}\n{% endfor %}\n";
        files.insert("agent/v0.6/templates/t.yaml", template);
        let chart = Chart::from_files(&files, Kind::Agent, line("v0.6")).unwrap();
        let mut coverage = Coverage::from_chart(&chart).unwrap();
        assert_eq!(
            list_unreached(&mut coverage, json!({"a": 1, "l": []})),
            ["2:21: {% endif %}", "6:1: {% else %}", "9:1: {% for i in values.l %}", "10:3: {{ i }}"]
        );
        assert_eq!(list_unreached(&mut coverage, json!({"a": 0, "l": [1]})), ["2:21: {% endif %}"]);
    }

    #[test]
    fn values_that_never_change_are_named() {
        let schema = json!({"properties": {
            "a": {"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
            "b": {"type": "string"}, "new": {"x-since": "v0.8", "type": "string"},
        }});
        let (one, two) = (json!({"a": {"x": 1, "y": 1}}), json!({"a": {"x": 2, "y": 1}, "b": "text"}));
        assert_eq!(constant_values(&schema, line("v0.6"), &[&one, &two]), ["a.y"]);
        assert_eq!(constant_values(&schema, line("v0.8"), &[&one, &two]), ["a.y", "new"]);
    }
}
