//! Formats of a control plane's status: the blocks of the specification, every check with its id, documents for
//! programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::StatusFormat;
use super::observe::Seen;
use crate::api::util::text::{visible_cell, visible_lines, visible_list};
use crate::chart::output;
use crate::check::inside::{COMPONENTS, Component, View};
use crate::check::{Judged, Problem};
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::{Mark, Ui};
use crate::cli::output::{check_report, check_table};
use crate::diagnose::{CauseId, Diagnosis, Link};

/// A cause as programs read it.
#[derive(Debug, Serialize)]
struct CauseEntry<'s> {
    cause: CauseId,
    chain: &'s [Link],
    remedy: String,
    logs: &'s [String],
}

impl<'s> CauseEntry<'s> {
    fn from_diagnosis(ui: &Ui, diagnosis: &'s Diagnosis) -> Self {
        let Diagnosis { cause, chain, remedy, logs, grace: _ } = diagnosis;
        Self { cause: *cause, chain, remedy: ui.format_remedy(remedy), logs }
    }
}

/// Status of a control plane, as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusDocument<'s> {
    name: &'s str,
    namespace: &'s str,
    /// `both`, `hosting-cluster` or `control-plane`.
    view: &'static str,
    healthy: bool,
    exit_code: u8,
    /// The service version.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'s str>,
    /// The version of the control plane's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes_version: Option<&'s str>,
    /// None where the hosting cluster was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<Vec<ComponentEntry>>,
    /// None where the control plane's API was not looked at, as is `policies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    clusters: Option<Vec<ClusterEntry<'s>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<usize>,
    checks: Vec<check_table::Entry<'s>>,
    causes: Vec<CauseEntry<'s>>,
}

#[derive(Debug, Serialize)]
struct ComponentEntry {
    name: &'static str,
    state: String,
    wanted: i32,
    ready: i32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterEntry<'s> {
    name: &'s str,
    ready: bool,
    reason: &'s str,
    kubernetes_version: &'s str,
    agent_version: &'s str,
}

/// The status in a format; without one the blocks of the specification.
pub(super) fn format_status(ui: &Ui, global: &Global, format: Option<StatusFormat>, seen: &Seen) -> String {
    match format {
        None => format_status_blocks(ui, seen),
        Some(StatusFormat::Wide) => format_wide_status(ui, global, seen),
        Some(format @ (StatusFormat::Json | StatusFormat::Yaml)) => {
            let report = seen.combined_report();
            let document = build_status_document(ui, global, seen, check_table::check_entries(ui, &report));
            if format == StatusFormat::Json { output::format_json(&document) } else { output::format_yaml(&document) }
        }
    }
}

/// A text of a row of them, kept apart from the one before it; `alone` where none is seen before it.
pub(super) fn one_of_many(format: Option<StatusFormat>, text: &str, alone: bool) -> String {
    match format {
        Some(StatusFormat::Json) => text.to_owned(),
        Some(StatusFormat::Yaml) => format!("---\n{text}"),
        _ if alone => text.to_owned(),
        _ => format!("\n{text}"),
    }
}

fn build_status_document<'s>(
    ui: &Ui,
    global: &'s Global,
    seen: &'s Seen,
    checks: Vec<check_table::Entry<'s>>,
) -> StatusDocument<'s> {
    let facts = &seen.health.facts;
    let inside = facts.inside.as_ref().ok();
    let components = facts.components.as_ref().ok();
    let sound = seen.is_sound();
    StatusDocument {
        name: seen.name.as_str(),
        namespace: global.namespace.as_str(),
        view: match seen.view() {
            View::Both => "both",
            View::HostingCluster => "hosting-cluster",
            View::ControlPlane => "control-plane",
            View::Nothing => "nothing",
        },
        healthy: sound,
        exit_code: if sound { Exit::Ok } else { Exit::Unhealthy } as u8,
        version: seen.installation.version.as_deref(),
        kubernetes_version: inside.and_then(|inside| inside.kubernetes_version.as_deref()),
        components: components.map(list_component_entries),
        clusters: inside.map(|inside| {
            let entries = inside.members.iter().map(|member| ClusterEntry {
                name: &member.name,
                ready: member.ready,
                reason: &member.reason,
                kubernetes_version: &member.kubernetes_version,
                agent_version: &member.agent_version,
            });
            entries.collect()
        }),
        policies: inside.map(|inside| inside.policies),
        checks,
        causes: seen.causes.iter().map(|cause| CauseEntry::from_diagnosis(ui, cause)).collect(),
    }
}

fn list_component_entries(found: &BTreeMap<&'static str, Component>) -> Vec<ComponentEntry> {
    let known = COMPONENTS.iter().filter_map(|(name, _)| Some((*name, found.get(name)?)));
    let entries = known.map(|(name, found)| ComponentEntry {
        name,
        state: found.describe_state(),
        wanted: found.wanted,
        ready: found.ready,
    });
    entries.collect()
}

/// Returns the line on the sides that were seen; in the plain status only where one was not.
fn format_view_line(ui: &Ui, seen: &Seen) -> String {
    let facts = &seen.health.facts;
    let (source, missing) = match seen.view() {
        View::Both => return "Sources: the hosting cluster and the control plane's API\n".to_owned(),
        View::HostingCluster => {
            ("the hosting cluster only, because the control plane's API does not answer", facts.inside.as_ref().err())
        }
        View::ControlPlane | View::Nothing => {
            ("the control plane's API only, without the hosting cluster", facts.components.as_ref().err())
        }
    };
    let why = missing.map(|why| visible_list(why)).unwrap_or_default();
    format!("Source: {source}: {why} {}\n", ui.mark(Mark::Warning))
}

/// The blocks of the specification, then what else is wrong, the worst first.
fn format_status_blocks(ui: &Ui, seen: &Seen) -> String {
    let view = if seen.view() == View::Both { String::new() } else { format_view_line(ui, seen) + "\n" };
    let health = check_report::format_health(ui, seen.name.as_str(), &seen.health.report, &seen.health.facts);
    view + &health
        + &format_causes(ui, &seen.causes)
        + &check_report::format_installation(ui, &seen.installation.report)
}

/// Every check with its id, and a line a workload cluster.
fn format_wide_status(ui: &Ui, global: &Global, seen: &Seen) -> String {
    let inside = seen.health.facts.inside.as_ref().ok();
    let version = seen.installation.version.as_ref();
    let version = version.map(|version| format!(", service version {}", visible_cell(version)));
    let kubernetes = inside.and_then(|inside| inside.kubernetes_version.as_ref());
    let kubernetes = kubernetes.map(|version| format!(", Kubernetes {}", visible_cell(version)));
    let mut text = format!(
        "Control plane {} in namespace {}{}{}\n{}\n",
        seen.name,
        global.namespace,
        version.unwrap_or_default(),
        kubernetes.unwrap_or_default(),
        format_view_line(ui, seen)
    );
    text += &check_table::format_check_table(ui, &format!("control plane {}", seen.name), &seen.combined_report());
    text += &format_causes(ui, &seen.causes);
    let members = inside.map(|inside| inside.members.as_slice()).unwrap_or_default();
    if !members.is_empty() {
        let titles = table_row(["CLUSTER", "READY", "STATUS", "K8S-VERSION", "AGENT"]);
        let lines = members.iter().map(|member| {
            let ready = if member.ready { "True" } else { "False" };
            table_row([&member.name, ready, &member.reason, &member.kubernetes_version, &member.agent_version])
        });
        let rows: Vec<Vec<String>> = std::iter::once(titles).chain(lines).collect();
        text += &format!("\n{}", Columns::from_rows(&rows).format_lines(&rows));
    }
    text
}

/// Describes the reasons that components do not run: the chain from the component to the root, the last words of its
/// log, and the remedy.
fn format_causes(ui: &Ui, causes: &[Diagnosis]) -> String {
    let mut text = String::new();
    for cause in causes {
        if text.is_empty() {
            text.push_str("\nWhat keeps components from running\n\n");
        }
        let _ = writeln!(text, "* {cause} {}", ui.mark(Mark::Bad));
        for line in &cause.logs {
            let _ = writeln!(text, "    log: {}", visible_lines(line));
        }
        let _ = writeln!(text, "    {} (`{} explain {}`)", ui.format_remedy(&cause.remedy), ui.program, cause.cause);
    }
    text
}

/// Everything that fails, health first.
fn all_failures(seen: &Seen) -> impl Iterator<Item = (&Judged, &Problem)> {
    seen.health.report.failures().chain(seen.installation.report.failures())
}

/// The first thing that is wrong, in a line.
pub(super) fn first_failure(seen: &Seen) -> String {
    if let Some(cause) = seen.causes.first() {
        return cause.to_string();
    }
    let failure = all_failures(seen).next();
    failure.map_or_else(String::new, |(judged, problem)| format!("{}: {}", judged.title, problem.what))
}

/// The error of a wait whose time is up.
pub(super) fn still_wrong(seen: &Seen, seconds: u64) -> CliError {
    let headline = format!("control plane {} is not healthy after {seconds} s", seen.name);
    let mut error = CliError::new(Exit::Unhealthy, "Unhealthy", headline);
    for (judged, problem) in all_failures(seen) {
        error = error.cause(format!("{} ({}): {}", judged.title, judged.id, problem.what));
    }
    for cause in &seen.causes {
        error = error.cause(cause.to_string());
    }
    let of_cause = seen.causes.first().map(|cause| cause.remedy.clone());
    match of_cause.or_else(|| all_failures(seen).next().map(|(_, problem)| problem.remedy.clone())) {
        Some(remedy) => error.hint(remedy),
        None => error,
    }
}
