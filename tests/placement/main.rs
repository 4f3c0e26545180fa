//! The cases of placement: what each rule has to answer, computed by a second implementation.
//!
//! Every file of `cases/` is one JSON document; its README says what `in` and `out` hold.

mod aggregate;
mod decide;
mod divide;
mod fit;
mod follow;
mod follow_properties;
mod kstatus;
mod matching;
mod moves;
mod names;
mod overrides;
mod properties;
mod relations;
mod support;
