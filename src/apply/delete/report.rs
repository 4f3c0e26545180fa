//! Results of a removal: objects that are deleted, kept, or left over, and steps of a journal that are not undone.

use std::fmt;

use serde::Serialize;

use crate::api::first_of::first_of;
use crate::api::util::text::{visible_cell, visible_line};
use crate::k8s::object::ObjectRef;

/// Number of refused steps that an error names.
const NAMED: usize = 5;

/// An object with the reason for which it is there, or is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObjectReason {
    /// The object.
    pub object: ObjectRef,
    /// Reason that it is retained, sign by which it was recognised as one that should be gone, or finalizer or
    /// condition that holds it: half a sentence.
    pub reason: String,
}

impl fmt::Display for ObjectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, visible_line(&self.reason))
    }
}

/// Result of a removal.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// Nothing of the installation was found.
    pub nothing_found: bool,
    /// Objects that were deleted.
    pub deleted: Vec<ObjectRef>,
    /// Objects that are retained.
    pub kept: Vec<ObjectReason>,
    /// Objects that are of the installation by their label, their fields or their claim, and should have been deleted.
    pub leftovers: Vec<ObjectReason>,
    /// Kinds or groups that could not be searched.
    pub unsearched: Vec<String>,
    /// The other namespaces in which there is an installation of this name, which was left alone.
    pub elsewhere: Vec<String>,
}

/// A step that is not undone, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedStep {
    /// The object that it names, which may be any text.
    pub object: ObjectRef,
    /// The reason, as a clause.
    pub why: String,
}

impl fmt::Display for RefusedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", visible_cell(&self.object.to_string()), self.why)
    }
}

/// The first refused steps and the number of the others, for an error.
pub(crate) fn join_refused(steps: &[RefusedStep]) -> String {
    first_of(steps, NAMED, "; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::Kind;

    #[test]
    fn a_refused_step_is_shown_on_one_line_whatever_its_name() {
        let config = ObjectRef::new(&Kind::from_table("", "ConfigMap"), Some("fleet"), "config");
        let mut object = config.clone();
        object.name = format!("a\u{1b}[2J\n\u{202e}{}", "x".repeat(300));
        let shown = RefusedStep { object, why: "no".to_owned() }.to_string();
        assert!(shown.starts_with(r"ConfigMap fleet/a\u{1b}[2J\n\u{202e}xxx") && shown.ends_with("…: no"), "{shown}");
        let many: Vec<RefusedStep> =
            (0..9).map(|_| RefusedStep { object: config.clone(), why: "no".to_owned() }).collect();
        assert!(join_refused(&many).ends_with("; and 4 more"));
    }
}
