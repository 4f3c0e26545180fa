//! From values to objects. A template never prints a value into text: it prints a token, the text is parsed as YAML
//! once, and the values are bound into the tree afterwards. So no value can change the structure of an object.

mod bind;
mod engine;
pub(in crate::chart) mod filters;
mod object;
pub(in crate::chart) mod template;
mod text;

pub use object::{Object, Rendered};

pub(super) use bind::{Leaf, Piece};
pub(super) use engine::{Part, Renderer, Trace};
#[cfg(test)]
pub(super) use template::{Marks, prepare_template};

use std::collections::BTreeMap;

use serde_json::Value;

/// Everything that a chart is rendered from. The names are those by which templates see it.
#[derive(Debug, Clone, Default)]
pub struct RenderInput {
    /// `values`: checked values, with every optional one present as `null`.
    pub values: Value,
    /// `release`: what is installed: name, namespace, version, line …
    pub release: Value,
    /// `facts`: what is known about the cluster.
    pub facts: Value,
    /// `pki`: keys and certificates as PEM, by name. Secret: they are in no error, only in the objects.
    pub pki: BTreeMap<String, String>,
}
