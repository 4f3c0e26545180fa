//! Results of a removal: objects that are deleted, kept, or left over.

use serde::Serialize;

use crate::k8s::object::ObjectRef;

/// An object that stays, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Which.
    pub object: ObjectRef,
    /// Why, as half a sentence.
    pub why: String,
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
    pub kept: Vec<Kept>,
    /// Objects that should have been deleted.
    pub leftovers: Vec<Leftover>,
    /// Kinds or groups that could not be searched.
    pub unsearched: Vec<String>,
    /// The other namespaces in which there is an installation of this name, which was left alone.
    pub elsewhere: Vec<String>,
}

/// An object that is ours by its label, its fields or its claim, and should be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Which.
    pub object: ObjectRef,
    /// How it was recognised, or why it should be gone, as half a sentence.
    pub because: String,
}
