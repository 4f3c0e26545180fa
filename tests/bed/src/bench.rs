//! `cargo bed bench`: measurements against peers, in one run.

use anyhow::Result;

use crate::Bed;
use crate::steps::Steps;

const LEFT: &str = "clusters may still run: `cargo bed status` shows them, `cargo bed down` removes everything";

/// The steps, in order.
pub(crate) fn run(bed: &Bed) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    steps.run("start the cluster `host`", || bed.up(&["host"]))?;
    steps.summary();
    Ok(())
}
