//! The quick paths. Each equals a careful path, which a property test holds it to; a reader may skip this folder.

pub(in crate::chart) mod render;
pub(in crate::chart) mod schema;
