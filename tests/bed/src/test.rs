//! `cargo bed test`: all tests, on real clusters.

use std::process::Command;

use anyhow::Result;

use crate::Bed;
use crate::steps::Steps;

const LEFT: &str = "clusters may still run: `cargo bed status` shows them, `cargo bed down` removes everything";

/// The steps, in order. Without root they fail at once, rather than skip what needs a cluster.
pub(crate) fn run(bed: &Bed, args: &[String]) -> Result<()> {
    crate::require_root()?;
    let mut steps = Steps::new(LEFT);
    steps.run("build what the clusters are made of", || bed.build())?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(bed.checkout()).args(["test", "--workspace"]).args(args);
    let tested = steps.program("cargo test", &mut cargo);
    steps.summary();
    tested
}
