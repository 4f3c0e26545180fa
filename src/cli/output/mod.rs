//! Everything that is printed: the terminal, progress, errors, tables and documents.

pub(in crate::cli) mod check_report;
pub(in crate::cli) mod check_table;
pub(in crate::cli) mod error;
pub(in crate::cli) mod exit_code;
pub(in crate::cli) mod fleet_page;
pub(in crate::cli) mod format;
pub(in crate::cli) mod install_error;
pub(in crate::cli) mod log;
pub(in crate::cli) mod manifests;
pub(in crate::cli) mod progress;
pub(in crate::cli) mod remedy;
pub(in crate::cli) mod style;
pub(in crate::cli) mod table;
pub(in crate::cli) mod terminal;
pub(in crate::cli) mod values_error;
