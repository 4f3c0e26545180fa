//! Texts of reports of checks: the preflight's problems, and the blocks of `status`.

use std::fmt::Write as _;

use super::error::CliError;
use super::exit_code::Exit;
use super::terminal::{Mark, Ui};
use crate::api::util::text::visible_cell;
use crate::check::inside::{HOSTING, HealthFacts, OWN_API};
use crate::check::{CheckResult, Judged, Report};

/// The error of a refused preflight: every reason at once, each with its remedy; nothing was written.
pub(crate) fn preflight_refused(report: &Report, lenient_flag: bool) -> CliError {
    let failures: Vec<_> = report.failures().collect();
    let mut error = CliError::new(
        Exit::Preflight,
        "PreflightRefused",
        match failures.as_slice() {
            [_] => "preflight refused the install; nothing was written".to_owned(),
            many => format!("preflight refused the install for {} reasons; nothing was written", many.len()),
        },
    );
    for (judged, problem) in &failures {
        error = error.cause(format!("{} ({}): {}", judged.title, judged.id, problem.what)).hint(problem.remedy.clone());
    }
    error = error.hint(match failures.as_slice() {
        [(judged, _)] => format!("explain it: `fleetctl explain {}`", judged.id),
        _ => "explain them: `fleetctl explain ID`, with the ids in brackets".to_owned(),
    });
    if let ([(judged, _), ..], true) = (failures.as_slice(), lenient_flag) {
        error = error.hint(format!("to continue anyway: `--skip-preflight {}`", judged.id));
    }
    error
}

fn find_result<'a>(report: &'a Report, id: &str) -> Option<&'a Judged> {
    report.judged.iter().find(|judged| judged.id == id)
}

/// One line of a block: what, its state, its mark; a remedy below where something is wrong.
fn write_result_line(text: &mut String, ui: &Ui, judged: &Judged, shown: &str) {
    let (state, mark, remedy) = match &judged.result {
        CheckResult::Passed(state) => (state.clone(), Mark::Good, None),
        CheckResult::Failed(problem) => (problem.what.clone(), Mark::Bad, Some(problem.remedy.clone())),
        CheckResult::Warned(problem) => (problem.what.clone(), Mark::Warning, Some(problem.remedy.clone())),
        CheckResult::Skipped(needed) => (format!("not checked, because of `{needed}`"), Mark::Warning, None),
    };
    // What was seen of it names itself; what was not seen must be named.
    let shown = if shown.is_empty() && matches!(judged.result, CheckResult::Skipped(_)) { judged.title } else { shown };
    let shown = if shown.is_empty() { String::new() } else { format!("{shown}... ") };
    let _ = writeln!(text, "* {shown}{state} {}", ui.mark(mark));
    if let Some(remedy) = remedy {
        let _ = writeln!(text, "    {}", ui.with_program_name(&ui.format_remedy(&remedy)).replace('\n', "\n    "));
    }
}

/// The two blocks of the specification: components and overall line; definitions, clusters and policies.
pub(crate) fn format_health(ui: &Ui, name: &str, report: &Report, facts: &HealthFacts) -> String {
    let mut text = String::from("Checking the components of the control plane\n\n");
    let components = ["apiserver", "controller-manager", "etcd", "scheduler"];
    for judged in components.iter().filter_map(|id| find_result(report, id)) {
        write_result_line(&mut text, ui, judged, &format!("{} status", judged.title));
    }
    let seen: Vec<&Judged> = report.judged.iter().filter(|judged| components.contains(&judged.id)).collect();
    let _ = if seen.iter().all(|judged| matches!(judged.result, CheckResult::Passed(_))) {
        writeln!(text, "Control plane {name} is healthy {}", ui.mark(Mark::Good))
    } else if seen.iter().all(|judged| matches!(judged.result, CheckResult::Passed(_) | CheckResult::Warned(_))) {
        writeln!(text, "Control plane {name} is healthy, but a change is not rolled out {}", ui.mark(Mark::Warning))
    } else if seen.iter().all(|judged| matches!(judged.result, CheckResult::Skipped(_))) {
        writeln!(text, "Control plane {name} answers; its components were not checked {}", ui.mark(Mark::Warning))
    } else {
        writeln!(text, "Control plane {name} is not healthy {}", ui.mark(Mark::Bad))
    };
    text.push_str("\nChecking the custom resource definitions\n\n");
    write_definition_line(&mut text, ui, report, "definition-cluster");
    write_cluster_lines(&mut text, ui, report, facts);
    write_definition_line(&mut text, ui, report, "definition-schedulepolicy");
    if let Some(judged) = find_result(report, "policies") {
        write_result_line(&mut text, ui, judged, "");
    }
    write_definition_line(&mut text, ui, report, "definition-schedulegroup");
    if let Some(judged) = find_result(report, "init-secret") {
        write_result_line(&mut text, ui, judged, "");
    }
    let missing = report.failures().filter(|(judged, _)| judged.id.starts_with("definition-")).count();
    let _ = match missing {
        0 => writeln!(text, "All custom resource definitions are installed {}", ui.mark(Mark::Good)),
        n => writeln!(text, "{n} of 3 custom resource definitions are missing or unknown {}", ui.mark(Mark::Bad)),
    };
    own_api(&mut text, ui, report);
    text
}

fn write_definition_line(text: &mut String, ui: &Ui, report: &Report, id: &str) {
    if let Some(judged) = find_result(report, id) {
        write_result_line(text, ui, judged, &format!("{} definition", judged.title));
    }
}

/// The block about what acts on the control plane's own API server; nothing where that is well or was not checked.
fn own_api(text: &mut String, ui: &Ui, report: &Report) {
    let mut reported = report.judged.iter().filter(|judged| judged.category == OWN_API).collect::<Vec<_>>();
    reported.retain(|judged| match judged.result {
        CheckResult::Passed(_) => false,
        CheckResult::Skipped(needed) => needed == HOSTING,
        CheckResult::Warned(_) | CheckResult::Failed(_) => true,
    });
    if reported.is_empty() {
        return;
    }
    text.push_str("\nChecking webhooks and APIServices of the control plane\n\n");
    for judged in reported {
        write_result_line(text, ui, judged, judged.title);
    }
}

/// The block about the installation itself, the worst first.
pub(crate) fn format_installation(ui: &Ui, report: &Report) -> String {
    let mut text = String::from("\nChecking the installation\n\n");
    for judged in report.worst_first() {
        write_result_line(&mut text, ui, judged, judged.title);
    }
    text
}

/// One line a workload cluster, or the warning that there is none.
fn write_cluster_lines(text: &mut String, ui: &Ui, report: &Report, facts: &HealthFacts) {
    let members = facts.inside.as_ref().map(|inside| inside.members.as_slice()).unwrap_or_default();
    if members.is_empty() {
        if let Some(judged) = find_result(report, "clusters") {
            write_result_line(text, ui, judged, "");
        }
        return;
    }
    for member in members {
        let (state, mark) =
            if member.ready { ("connected and ready", Mark::Good) } else { (member.reason.as_str(), Mark::Warning) };
        let (name, state) = (visible_cell(&member.name), visible_cell(state));
        let _ = writeln!(text, "* Cluster {name} {state} {}", ui.mark(mark));
    }
}
