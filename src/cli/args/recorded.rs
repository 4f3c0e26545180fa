//! The flags that decide what becomes of the values of the last install.

use clap::Args;

use crate::install::recorded_values::Recorded;

/// Treatment of values of the last install that are not given again. Without either flag an install refuses to reset
/// them.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct RecordedArgs {
    /// Reuse the values of the last install; values that are given now override them
    #[arg(long, help_heading = "Values")]
    reuse_values: bool,

    /// Reset values of the last install that are not given now to the chart's defaults
    #[arg(long, help_heading = "Values", conflicts_with = "reuse_values")]
    reset_values: bool,
}

impl RecordedArgs {
    /// Returns the choice that the flags make.
    pub(crate) const fn choice(self) -> Recorded {
        match (self.reuse_values, self.reset_values) {
            (true, _) => Recorded::Reuse,
            (_, true) => Recorded::Reset,
            _ => Recorded::Refuse,
        }
    }
}
