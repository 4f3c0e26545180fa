//! `rebalance --continue`: allows removals that the scheduler holds back because they are many.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::api::mass_loss::{NAME, NAMESPACE};
use crate::api::mass_removal::{FrozenRemovals, KEY, NAMED, RemovalRecord};
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::{Question, Ui};

/// What is said of removals: whether it is only shown, and whether nobody is asked.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) is_dry_run: bool,
    pub(super) is_confirmed: bool,
}

/// Shows what a cause would remove, asks, and allows it.
///
/// # Errors
/// The cause holds nothing back, the answer was another one, or the control plane refuses.
pub(super) async fn continue_removals(
    ui: &Ui,
    global: &Global,
    client: Client,
    (cause, asked): (&str, Asked),
) -> Result<Exit, CliError> {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let found = maps.get_opt(NAME).await.map_err(|error| removal_record_failure("read", &error))?;
    let version = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
    let mut record = RemovalRecord::from_data(&found.and_then(|map| map.data).unwrap_or_default());
    let Some(frozen) = record.causes.get(cause).and_then(|entry| entry.frozen.clone()) else {
        return Err(nothing_held(cause, &record, global));
    };
    ui.write_stdout(&format_held(cause, &frozen))?;
    if asked.is_dry_run {
        return Ok(Exit::Ok);
    }
    if !asked.is_confirmed {
        ui.confirm_by_name(Question::ContinueRemovals, "cause", cause)?;
    }
    if let Some(entry) = record.causes.get_mut(cause) {
        entry.allowed = Some(Timestamp::now());
    }
    let change = json!({ "metadata": { "resourceVersion": version }, "data": { KEY: record.to_text() } });
    let written = maps.patch(NAME, &PatchParams::default(), &Patch::Merge(&change)).await;
    written.map_err(|error| removal_record_failure("write", &error))?;
    let follow = format!("kubectl get schedules -A{}", global.tail_flags());
    ui.write_stdout(&format!(
        "The scheduler now removes these copies, at most a tenth of all copies per minute. To follow it: `{follow}`\n"
    ))?;
    Ok(Exit::Ok)
}

fn removal_record_failure(verb: &str, error: &kube::Error) -> CliError {
    request_failed(&format!("cannot {verb} ConfigMap {NAMESPACE}/{NAME}"), error)
}

fn nothing_held(cause: &str, record: &RemovalRecord, global: &Global) -> CliError {
    let held: Vec<String> = record.frozen_causes().map(|(name, _)| visible_cell(name).into_owned()).collect();
    let error =
        CliError::new(Exit::Failed, "NoSuchObject", format!("no removals are held back for {}", visible_cell(cause)));
    match &held[..] {
        [] => error.hint(format!(
            "no removals are held back; `fleetctl status{}` reports them when there are any",
            global.tail_flags()
        )),
        held => error.hint(format!("these are: {}", held.join(", "))),
    }
}

/// Returns what is held back for a cause, as a text.
fn format_held(cause: &str, frozen: &FrozenRemovals) -> String {
    let mut rows = vec![table_row(["CLUSTER", "COPIES"])];
    rows.extend(frozen.copies.iter().map(|(cluster, count)| table_row([cluster.as_str(), &count.to_string()])));
    let more = frozen.count().saturating_sub(frozen.first.len());
    let mut named: Vec<String> = frozen.first.iter().take(NAMED).map(|one| visible_cell(one).into_owned()).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    format!(
        "{} would remove {} copies. The scheduler has held these removals back since {}:\n\n{}\n{}\n\n",
        visible_cell(cause),
        frozen.count(),
        frozen.since,
        Columns::from_rows(&rows).format_lines(&rows),
        named.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_held_back_is_listed_by_cluster() {
        let frozen = FrozenRemovals {
            since: Timestamp::UNIX_EPOCH,
            copies: BTreeMap::from([("east".to_owned(), 12), ("west".to_owned(), 3)]),
            first: vec!["Deployment shop/web on east".to_owned()],
        };
        let text = "policy/shop:7 would remove 15 copies. The scheduler has held these removals back since \
                    1970-01-01T00:00:00Z:\n\n\
            CLUSTER   COPIES\neast      12\nwest      3\n\nDeployment shop/web on east\n14 more\n\n";
        assert_eq!(format_held("policy/shop:7", &frozen), text);
    }
}
