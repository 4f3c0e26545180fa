//! Errors of names and values that a user gave.

use super::error::CliError;
use crate::api::names::NameError;
use crate::chart::{Diagnostics, patch};
use crate::install::release_spec::LARGEST_VALUES;

/// The error of values of that many bytes.
pub(crate) fn too_large(size: usize) -> CliError {
    let (kib, largest) = (size.div_ceil(1024), LARGEST_VALUES.div_ceil(1024));
    CliError::usage("ValuesTooLarge", format!("the values have {kib} KiB, but a record can store only {largest} KiB"))
        .hint("leave out values that equal the defaults of the chart (`fleetctl show values` prints them)")
}

/// A name that Kubernetes would refuse.
pub(crate) fn wrong_name(error: &NameError) -> CliError {
    let shown = CliError::usage("InvalidName", error.to_string());
    let text = error.to_string();
    if [".yaml`", ".yml`", ".json`"].iter().any(|end| text.contains(end)) {
        return shown.hint("if it is a values file: repeat the flag for each file, `--values FILE --values FILE`");
    }
    match error {
        NameError::NotALabel { suggestion: Some(close), .. } => shown.hint(format!("for example `{close}`")),
        _ => shown,
    }
}

/// Wrong values or patches: every error with its place.
pub(crate) fn wrong_values(problems: &Diagnostics) -> CliError {
    let count = problems.0.len();
    let of_patches = problems.0.iter().all(|problem| problem.code.starts_with(patch::CODES));
    let what = if of_patches { "patches" } else { "values" };
    let headline = match count {
        1 => format!("the {what} have an error"),
        n => format!("the {what} have {n} errors"),
    };
    let mut error =
        if of_patches { CliError::usage("InvalidPatch", headline) } else { CliError::usage("InvalidValues", headline) };
    error.problems = Some(Box::new(problems.clone()));
    error
}
