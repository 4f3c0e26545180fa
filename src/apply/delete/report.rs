//! Results of a removal: objects that are deleted, kept, or left over.

use std::fmt;

use serde::Serialize;

use crate::api::util::text::visible_line;
use crate::k8s::object::ObjectRef;

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
