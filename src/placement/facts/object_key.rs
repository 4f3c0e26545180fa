//! An object's address as one text: `apps/Deployment/shop/web`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Group, kind, namespace and name, separated by `/`. Core objects have an empty group, cluster-scoped ones an empty
/// namespace; keys are ordered as texts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// Makes the key of an object.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self(format!("{group}/{kind}/{namespace}/{name}"))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// No part but the name can hold a `/`.
    fn part_at(&self, at: usize) -> &str {
        self.0.splitn(4, '/').nth(at).unwrap_or_default()
    }

    /// API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.part_at(0)
    }

    /// Kind.
    pub fn kind(&self) -> &str {
        self.part_at(1)
    }

    /// Namespace; empty for objects without one.
    pub fn namespace(&self) -> &str {
        self.part_at(2)
    }

    /// Name.
    pub fn name(&self) -> &str {
        self.part_at(3)
    }

    /// Returns whether it is of this group and kind.
    pub fn is_of_kind(&self, group: &str, kind: &str) -> bool {
        self.group() == group && self.kind() == kind
    }

    /// Kind, namespace and name as people write them: `Deployment shop/web`, `PriorityClass high`.
    pub fn format_title(&self) -> String {
        match self.namespace() {
            "" => format!("{} {}", self.kind(), self.name()),
            namespace => format!("{} {namespace}/{}", self.kind(), self.name()),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ObjectKey {
    /// Reads a key in its own form.
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
