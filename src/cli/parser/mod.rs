//! Additions to clap: lazy subcommands, grouped help, the program's name, suggestions.

pub(in crate::cli) mod did_you_mean;
pub(in crate::cli) mod help_groups;
pub(in crate::cli) mod lazy;
pub(in crate::cli) mod plugin_name;
pub(in crate::cli) mod program_name;
