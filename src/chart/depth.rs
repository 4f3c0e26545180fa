//! Limit to the nesting of values, one for files, flags and JSON alike, because whatever reads, merges, validates,
//! prints or drops a tree calls itself once for each level of it.

use super::diagnostic::{Diagnostic, Place};
use super::yaml::node::{Data, Node, Origin};

/// Largest number of mappings and lists that may be nested in one another.
pub(super) const MAX_DEPTH: usize = 64;

/// Code of the diagnostic that [`too_deep`] makes.
pub(super) const CODE: &str = "too-deep";

/// The first collection of a tree that is too deep where the tree itself lies below `above` mappings and lists.
pub(super) fn find_too_deep(node: &Node, above: usize) -> Option<Origin> {
    let is_collection = matches!(node.data, Data::List(_) | Data::Map(_));
    if is_collection && above >= MAX_DEPTH {
        return Some(node.origin);
    }
    match &node.data {
        Data::List(items) => items.iter().find_map(|item| find_too_deep(item, above + 1)),
        Data::Map(map) => map.entries.values().find_map(|entry| find_too_deep(&entry.node, above + 1)),
        _ => None,
    }
}

/// The error for a source that nests deeper; the place is that of the first level that is too deep.
pub(super) fn too_deep(place: Place) -> Diagnostic {
    Diagnostic::error(CODE, format!("values nest deeper than {MAX_DEPTH} levels"))
        .at(place)
        .label(format!("this is the first level beyond {MAX_DEPTH}"))
        .help("check the brackets, the indentation or the dots: no value of a chart is that deep")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Whether `levels` of lists and mappings are too deep below `above` others.
    fn exceeds_depth(levels: usize, above: usize) -> bool {
        let nested =
            (0..levels).fold(json!(1), |below, level| [json!([below]), json!({"a": below})][level % 2].clone());
        find_too_deep(&Node::from_json(&nested, Origin::default()), above).is_some()
    }

    #[test]
    fn as_many_levels_as_allowed_are_not_too_deep_and_one_more_is() {
        assert_eq!([exceeds_depth(MAX_DEPTH, 0), exceeds_depth(MAX_DEPTH + 1, 0)], [false, true]);
        assert_eq!([exceeds_depth(4, MAX_DEPTH - 4), exceeds_depth(4, MAX_DEPTH - 3)], [false, true]);
        assert!(
            find_too_deep(&Node::from_json(&Value::Null, Origin::default()), MAX_DEPTH).is_none(),
            "a scalar adds no level"
        );
    }
}
