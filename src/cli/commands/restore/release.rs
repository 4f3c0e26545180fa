//! `restore --release`: counts the copies without a Schedule by workload cluster, asks, and lets agents delete them.

use super::Site;
use crate::api::partial_list::Age;
use crate::api::util::text::visible_cell;
use crate::check::inside::list_registered_members;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Question;
use crate::control_plane::restore::{RestoreError, read_deletion_hold, release_hold};

pub(super) async fn run(site: &Site<'_>) -> Result<Exit, CliError> {
    let open = site.target().find_operation().await.map_err(|error| site.explain_error(&error))?;
    if let Some(open) = open.filter(|operation| operation.open) {
        return Err(site.explain_error(&RestoreError::OperationOpen(Box::new(open))));
    }
    let hub = site.connect_own_api().await.map_err(|why| site.explain_error(&RestoreError::NoAccess(why)))?;
    let hold = read_deletion_hold(&hub).await;
    if hold.map_err(|error| request_failed("cannot read namespace kube-system", &error))?.is_none() {
        let text =
            format!("Agents of control plane {} do not hold back deletions; there is nothing to release.\n", site.name);
        return site.ui.write_last_result(&text, Exit::Ok);
    }
    let clusters = list_registered_members(&hub, Age::Now).await;
    let clusters = clusters.map_err(|error| request_failed("cannot list the workload clusters", &error))?;
    site.ui.write_stderr(&format_copies(clusters.iter().map(|one| (one.name.as_str(), one.copies_without_schedule))));
    if !site.args.yes {
        site.ui.write_stderr("Agents will delete these running copies, except for those that contain data.");
        site.ui.confirm_by_name(Question::Release, "control plane", site.name.as_str())?;
    }
    release_hold(&hub).await.map_err(|error| request_failed("cannot change namespace kube-system", &error))?;
    let text = format!("Agents of control plane {} delete copies without a Schedule again.\n", site.name);
    site.ui.write_last_result(&text, Exit::Ok)
}

/// Returns the numbers of copies without a Schedule by cluster, as a table.
fn format_copies<'a>(clusters: impl Iterator<Item = (&'a str, Option<i32>)>) -> String {
    let mut rows = vec![table_row(["CLUSTER", "COPIES WITHOUT A SCHEDULE"])];
    rows.extend(clusters.map(|(name, count)| {
        let count = count.map_or_else(|| "not reported".to_owned(), |count| count.to_string());
        table_row([&*visible_cell(name), &count])
    }));
    Columns::from_rows(&rows).format_lines(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_by_cluster() {
        assert_eq!(
            format_copies([("east", Some(10)), ("west", None)].into_iter()),
            "CLUSTER   COPIES WITHOUT A SCHEDULE\neast      10\nwest      not reported\n"
        );
    }
}
