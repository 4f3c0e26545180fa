//! `cargo bed demo`: a control plane in a real cluster, from nothing.

use anyhow::Result;

use crate::Bed;
use crate::steps::Steps;

const LEFT: &str = "a cluster may still run: `cargo bed status` shows it, `cargo bed down` removes everything";

/// The steps, in order.
pub(crate) fn run(bed: &Bed) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    steps.run("build the images of this project", || bed.images("e2e", &["v0.6.1".to_owned()]).map(drop))?;
    steps.run("start the cluster `host`", || bed.up(&["host"]))?;
    steps.summary();
    Ok(())
}
