//! `cargo bed goldens`: writes anew what tests compare with, so that a change of it can be read as a difference.

use anyhow::{Result, bail};

use crate::Bed;
use crate::parts::product::DAEMONS;
use crate::run::cargo;

/// The tests that compare with files of the checkout, by target and part of their names. The definitions come first, for
/// they are part of the charts.
const TESTS: [&[&str]; 3] = [
    &["--lib", "--", "api::crd::crds"],
    &["--lib", "--", "golden", "schema_beside", "chart::", "examples::"],
    &["--test", "cli", "--", "mistakes::wrong", "examples::"],
];

/// Runs them in the mode that writes.
pub(crate) fn write(bed: &Bed) -> Result<()> {
    for test in TESTS {
        let mut command = cargo(bed.checkout());
        command.args(["test", "--quiet", "--package", "fleetctl"]).args(DAEMONS).args(test);
        let update = [("INSTA_UPDATE", "always"), ("INSTA_FORCE_PASS", "1"), ("UPDATE_EXAMPLES", "1"), ("UPDATE", "1")];
        let status = command.envs(update).status()?;
        if !status.success() {
            bail!("a test failed for another reason than its golden file");
        }
    }
    Ok(())
}
