//! `cargo bed demo`: a control plane in a real cluster, from nothing.

use anyhow::Result;

use crate::Bed;
use crate::cli::LEFT;
use crate::steps::Steps;

/// The steps, in order.
pub(crate) fn run(bed: &Bed) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    steps.run("build the images of this project", || bed.images("e2e", &["v0.6.1".to_owned()]).map(drop))?;
    steps.run("start the cluster `host`", || bed.up(&["host"]))?;
    steps.summary();
    Ok(())
}
