//! Tests of the status of a source.
