//! Kinds that values add to those that can be placed, and that the programs would refuse at their start.

use crate::api::extra_kind::ExtraKind;
use crate::chart::{Diagnostic, ValuesTree};

/// Checks `placement.extraKinds`, given as group, version and kind; `tree` knows where each was given.
pub fn check_extra_kinds<'a>(kinds: impl IntoIterator<Item = [&'a str; 3]>, tree: &ValuesTree) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (index, kind) in kinds.into_iter().enumerate() {
        if let Err(error) = kind.join("/").parse::<ExtraKind>() {
            let diagnostic = Diagnostic::error("wrong-kind", error.to_string());
            found.push(tree.locate_diagnostic(&["placement", "extraKinds", &index.to_string(), "kind"], diagnostic));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};
    use serde::Deserialize;

    use crate::api::values::placement_values::AgentPlacementValues;
    use crate::chart::{Chart, Kind};

    #[derive(Deserialize, JsonSchema)]
    struct Values {
        placement: AgentPlacementValues,
    }

    #[test]
    fn a_kind_that_the_programs_refuse_is_told_at_its_place() {
        let text = "placement:\n  extraKinds:\n  - {group: example.com, version: v1, kind: Widget, resource: widgets}\n  \
            - {group: apps, version: v1, kind: Deployment, resource: deployments}\n";
        let chart = Chart::load_embedded(Kind::Agent, "v1.2".parse().unwrap()).unwrap();
        let tree = chart.values_builder().file("my.yaml", text.as_bytes()).build_checked(schema_for!(Values).into());
        let tree = tree.unwrap_or_else(|error| panic!("{error}"));
        let values: Values = tree.deserialize().unwrap();
        let kinds = values.placement.extra_kinds.iter().map(|one| [&*one.group, &*one.version, &*one.kind]);
        let problems = super::check_extra_kinds(kinds, &tree);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, "placement.extraKinds[1].kind");
        assert!(problems[0].place.is_some() && problems[0].message.contains("can already be placed"), "{problems:?}");
    }
}
