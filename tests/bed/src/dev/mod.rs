//! What a developer runs besides clusters: all tests, goldens, the demo, the walk of a newcomer, pictures.

pub(crate) mod advisories;
mod changed;
pub(crate) mod demo;
pub(crate) mod goldens;
pub(crate) mod newcomer;
pub(crate) mod picture;
pub(crate) mod pictures;
pub(crate) mod release;
pub(crate) mod released;
pub(crate) mod steps;
pub(crate) mod test;
pub(crate) mod test_times;
