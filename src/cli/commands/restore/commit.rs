//! `restore --commit`: deletes the former stores that a restore has kept.

use super::Site;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;

pub(super) async fn run(site: &Site<'_>) -> Result<Exit, CliError> {
    site.run_stages("the deletion of former etcd data", site.target().commit_restore()).await?;
    site.ui.write_last_result(&format!("Deleted the former etcd data of control plane {}.\n", site.name), Exit::Ok)
}
