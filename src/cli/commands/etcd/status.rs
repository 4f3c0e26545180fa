//! `etcd status`: the members of a control plane's etcd, as each of them reports itself, and where they differ.

use clap::{Args, ValueEnum};

use crate::api::names::ControlPlaneName;
use crate::chart::output;
use crate::cli::args::global::Global;
use crate::cli::commands::backup::format_size;
use crate::cli::connect::{connect_cluster, refused_rights, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::control_plane::etcd::access::{EtcdAccessError, prepare_etcd_access};
use crate::etcd::agreement::{ClusterReport, MemberReport, observe_members};
use crate::inventory::release::random_id;

pub(super) const EXAMPLES: &str = "\
The command only reads. It uses a port-forward to each pod of etcd and a client certificate for this run only. All
members compute the hash of their data at the same revision. Exit code 7 if a member does not answer, members differ, or
an alarm is raised; 3 if you lack a right. `show rbac NAME --day2` prints the required rights.

Examples:
  fleetctl etcd status demo
  fleetctl etcd status demo --context hosting -o json";

/// Compare the reports of all etcd members
#[derive(Debug, Args)]
pub(crate) struct EtcdStatusArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: EtcdFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EtcdFormat {
    Table,
    Json,
    Yaml,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &EtcdStatusArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let client = connect_cluster(global).await?.client;
    let access = prepare_etcd_access(&client, &name, &global.namespace, &random_id()).await;
    let access = access.map_err(|error| access_error(&error, &name))?;
    let report = observe_members(&access.clients, access.quota_bytes).await;
    let text = match args.output {
        EtcdFormat::Table => format_etcd_report(&report),
        EtcdFormat::Json => output::format_json(&report),
        EtcdFormat::Yaml => output::format_yaml(&report),
    };
    let exit = if report.is_healthy() { Exit::Ok } else { Exit::Unhealthy };
    ui.write_last_result(&text, exit)
}

/// The error of a command that cannot ask the members.
pub(in crate::cli) fn access_error(error: &EtcdAccessError, name: &ControlPlaneName) -> CliError {
    match error {
        EtcdAccessError::Api(error) => request_failed("cannot read etcd of the control plane", error),
        EtcdAccessError::Forbidden(missing) => refused_rights("no access to etcd; nothing was read", missing, name),
        EtcdAccessError::NotInstalled { .. } => CliError::new(Exit::Refused, "NotInstalled", error.to_string())
            .hint("give its namespace with `--namespace` and its cluster with `--context`"),
        EtcdAccessError::Keys(source) => CliError::new(Exit::Failed, "BadKeys", error.to_string())
            .because(source)
            .hint("restore the Secret with the keys from a backup"),
        EtcdAccessError::Etcd(error) => {
            CliError::new(Exit::Failed, error.reason(), error.to_string()).hint(error.remedy())
        }
    }
}

fn format_etcd_report(report: &ClusterReport) -> String {
    let heads = ["MEMBER", "ID", "VERSION", "LEADER", "MEMBERS", "REVISION", "SIZE", "IN USE", "QUOTA", "HASH"];
    let mut lines = vec![table_row(heads)];
    lines.extend(report.members.iter().map(|member| format_member(member, report)));
    let mut text = Columns::from_rows(&lines).format_lines(&lines);
    if let Some(hash) = report.members.iter().find_map(|member| member.hash) {
        text += &format!("\nHashes are of revision {}.\n", hash.revision);
    }
    for (title, sentences) in [("Problems", &report.problems), ("Warnings", &report.warnings)] {
        if !sentences.is_empty() {
            text += &format!("\n{title}:\n");
            text.extend(sentences.iter().map(|sentence| format!("  {sentence}\n")));
        }
    }
    text
}

fn format_member(member: &MemberReport, report: &ClusterReport) -> Vec<String> {
    let status = member.status.as_ref();
    let leader = status.and_then(|status| status.leader).map_or_else(unknown_cell, |leader| {
        let known = report.members.iter().find(|other| other.status.as_ref().is_some_and(|other| other.id == leader));
        known.map_or_else(|| leader.to_string(), |known| known.pod.clone())
    });
    let listed = member.lists.as_ref().map_or_else(unknown_cell, |lists| {
        let names = lists.iter().map(|of| if of.name.is_empty() { of.id.to_string() } else { of.name.clone() });
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.join(",")
    });
    table_row([
        member.pod.as_str(),
        &status.map_or_else(unknown_cell, |status| status.id.to_string()),
        &status.map_or_else(unknown_cell, |status| status.version.clone()),
        &leader,
        &listed,
        &status.map_or_else(unknown_cell, |status| status.revision.to_string()),
        &status.map_or_else(unknown_cell, |status| format_size(status.size_bytes)),
        &status.map_or_else(unknown_cell, |status| format_size(status.size_in_use_bytes)),
        &report.quota_bytes.map_or_else(unknown_cell, format_size),
        &member.hash.map_or_else(unknown_cell, |hash| format!("{:08x}", hash.hash)),
    ])
}

fn unknown_cell() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{KvHash, Member, MemberId, MemberStatus};

    #[test]
    fn members_are_rows_and_what_is_wrong_follows() {
        let status = MemberStatus {
            id: MemberId(0xab),
            version: "3.5.35".to_owned(),
            leader: Some(MemberId(0xab)),
            revision: 1200,
            size_bytes: 5 << 20,
            size_in_use_bytes: 1_600_000,
            raft_term: 2,
            raft_index: 9,
            raft_applied_index: 9,
            learner: false,
        };
        let here = MemberReport {
            pod: "etcd-0".to_owned(),
            status: Some(status),
            lists: Some(vec![Member { id: MemberId(0xab), name: "etcd-0".to_owned(), learner: false }]),
            quorum: true,
            hash: Some(KvHash { revision: 1200, hash: 0xbeef, compact_revision: 1 }),
            error: None,
        };
        let away = MemberReport { pod: "etcd-1".to_owned(), ..MemberReport::default() };
        let report = ClusterReport {
            members: vec![here, away],
            quota_bytes: Some(8 << 30),
            problems: vec!["etcd-1 cannot be reached: refused".to_owned()],
            ..ClusterReport::default()
        };
        assert_eq!(
            format_etcd_report(&report),
            "MEMBER   ID   VERSION   LEADER   MEMBERS   REVISION   SIZE      IN USE    QUOTA     HASH\n\
             etcd-0   ab   3.5.35    etcd-0   etcd-0    1200       5.0 MiB   1.6 MiB   8.0 GiB   0000beef\n\
             etcd-1   -    -         -        -         -          -         -         8.0 GiB   -\n\
             \nHashes are of revision 1200.\n\
             \nProblems:\n  etcd-1 cannot be reached: refused\n"
        );
    }
}
