//! `-o json|yaml`: a result as data instead of text.

use clap::ValueEnum;
use serde::Serialize;

use crate::chart::output;

/// How a result is printed for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
    Yaml,
}

impl Format {
    /// A value in this format, ending with a line break.
    pub(crate) fn serialize_value<T: Serialize>(self, value: &T) -> String {
        match self {
            Self::Json => output::format_json(value),
            Self::Yaml => output::format_yaml(value),
        }
    }
}
