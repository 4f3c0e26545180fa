//! `cargo bed bench`: measurements against peers, in one run.

use anyhow::Result;

use crate::Bed;
use crate::cli::LEFT;
use crate::steps::Steps;

/// The steps, in order.
pub(crate) fn run(bed: &Bed) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    steps.run("start the cluster `host`", || bed.up(&["host"]))?;
    steps.summary();
    Ok(())
}
