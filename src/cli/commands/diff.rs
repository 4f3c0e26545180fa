//! `diff`: what an install would change; also what `install --dry-run=server` prints.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;

use super::install::{
    AgentArgs, Prepared, PreparedAgent, Way, WriteArgs, prepare_agent, prepare_control_plane, show_recorded_values,
};
use crate::api::shell::quote_always;
use crate::api::util::text::{visible_line, visible_list};
use crate::apply::{Change, Difference};
use crate::cli::args::control_plane::PlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::recorded::RecordedArgs;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::{agent_failed, control_plane_failed};
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::control_plane::diff::compare_control_plane;
use crate::install::diff::Comparison;
use crate::install::failure::{Failure, FailureOutcome};
use crate::install::progress::Progress;
use crate::workload_cluster;

/// Show what an install would change, and change nothing
#[derive(Debug, Subcommand)]
pub(crate) enum DiffCommand {
    /// Compare a control plane with the cluster of `--context`
    #[command(visible_alias = "cp", after_help = comparison_help(EXAMPLES))]
    ControlPlane(Box<DiffControlPlaneArgs>),
    /// Compare an agent with the cluster of `--context`
    #[command(after_help = comparison_help(AGENT_EXAMPLES))]
    Agent(Box<DiffAgentArgs>),
}

const EXAMPLES: &str = "fleetctl diff control-plane demo
  fleetctl diff cp demo --version v0.7 -o json";

const AGENT_EXAMPLES: &str = "fleetctl diff agent west --context west
  fleetctl diff agent west --context west --version v1.1 -o json";

/// Builds the end of the help of a comparison: the text that both share, then the examples of the one.
fn comparison_help(examples: &str) -> String {
    format!(
        "The API server computes the comparison by dry runs; values of Secrets are shown as hashes.\n\
         Exit code: 0 nothing would change, 1 something would, above 1 an error.\n\nExamples:\n  {examples}"
    )
}

/// Compare a control plane with the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct DiffControlPlaneArgs {
    #[command(flatten)]
    plan: PlanArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    recorded: RecordedArgs,

    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Compare an agent with the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct DiffAgentArgs {
    #[command(flatten)]
    what: AgentArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    recorded: RecordedArgs,

    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: DiffCommand) -> Result<Exit, CliError> {
    let (compared, output) = match command {
        DiffCommand::ControlPlane(args) => {
            let way = Way::for_install(args.recorded.choice());
            (compare_plan_with_cluster(ui, global, &args.plan, &args.write, way).await, args.output)
        }
        DiffCommand::Agent(args) => {
            let way = Way::for_install(args.recorded.choice());
            (agent_comparison(ui, global, &args.what, &args.write, way).await, args.output)
        }
    };
    // 1 means that something differs; whatever fails has to have another code.
    let comparison = compared.map_err(|mut error| {
        if error.exit == Exit::Failed {
            error.exit = Exit::Usage;
        }
        error
    })?;
    ui.write_last_result(
        &format_comparison(ui, output, &comparison),
        if comparison.is_same() { Exit::Ok } else { Exit::Failed },
    )
}

/// The comparison behind both commands.
pub(crate) async fn compare_plan_with_cluster(
    ui: &Ui,
    global: &Global,
    plan: &PlanArgs,
    write: &WriteArgs,
    way: Way,
) -> Result<Comparison, CliError> {
    let Prepared { plan, hosting, home, options, used, .. } =
        prepare_control_plane(ui, global, plan, write, way).await?;
    show_recorded_values(ui, &format!("control plane {}", plan.name), &used);
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    let compared = Box::pin(compare_control_plane(&plan, &hosting.client, &home, &options, &progress)).await;
    display.close_step(compared.is_ok());
    compared.map_err(|error| {
        let failure = Failure { error, aftermath: FailureOutcome::NothingWritten };
        control_plane_failed(ui, &plan, failure)
    })
}

/// As [`compare_plan_with_cluster`], of an agent.
pub(crate) async fn agent_comparison(
    ui: &Ui,
    global: &Global,
    what: &AgentArgs,
    write: &WriteArgs,
    way: Way,
) -> Result<Comparison, CliError> {
    let prepared = prepare_agent(ui, global, what, write, way).await?;
    let PreparedAgent { plan, workload, used, .. } = &prepared;
    show_recorded_values(ui, &format!("workload cluster {}", plan.name), used);
    let options = write.install_options(global.rollback, way);
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    let place = prepared.agent_place();
    let compared =
        Box::pin(workload_cluster::install::compare_agent(plan, &workload.client, &place, &options, &progress));
    let compared = compared.await;
    display.close_step(compared.is_ok());
    compared.map_err(|error| {
        agent_failed(plan, Failure { error, aftermath: FailureOutcome::NothingWritten }, global, prepared.hub.as_ref())
    })
}

/// The comparison as it is printed.
pub(crate) fn format_comparison(ui: &Ui, format: Option<Format>, comparison: &Comparison) -> String {
    format.map_or_else(|| format_differences(ui, comparison), |format| format.serialize_value(&json_of(ui, comparison)))
}

/// One block an object, then a sentence that counts.
fn format_differences(ui: &Ui, comparison: &Comparison) -> String {
    let mut text = String::new();
    // What is to be said about many objects is said once, below them.
    let mut remarks: Vec<&str> = comparison.differences.iter().filter_map(|d| d.note.as_deref()).collect();
    remarks.sort_unstable();
    remarks.dedup();
    let shared = if let [only] = remarks[..] { Some(only) } else { None };
    for difference in &comparison.differences {
        write_difference(&mut text, difference, shared.is_some());
    }
    if let Some(remark) = shared {
        let _ = writeln!(text, "* {}", visible_line(remark));
    }
    for foreign in &comparison.foreign {
        let why = match foreign.install {
            Some(_) => "not created by this installation; an install refuses it, even with `--adopt`",
            None => "not created by this installation; an install refuses it without `--adopt`",
        };
        let _ = writeln!(text, "! {foreign}: {why}");
    }
    for note in &comparison.notes {
        let _ = writeln!(text, "# {}", visible_list(&ui.format_remedy(note)));
    }
    if comparison.is_same() {
        let _ = writeln!(text, "Nothing would change: all {} objects match the install.", comparison.same);
    } else {
        let [create, update, delete] = [Change::Create, Change::Update, Change::Delete]
            .map(|change| comparison.differences.iter().filter(|d| d.change == change).count());
        let _ = writeln!(
            text,
            "{create} to create, {update} to change, {delete} to delete, {} unchanged.",
            comparison.same
        );
    }
    text
}

fn write_difference(text: &mut String, difference: &Difference, starred: bool) {
    let sign = match difference.change {
        Change::Create => '+',
        Change::Update => '~',
        Change::Delete => '-',
        Change::Keep => '=',
    };
    let note = match &difference.note {
        Some(_) if starred => " *".to_owned(),
        Some(note) => format!(" ({})", visible_line(note)),
        None => String::new(),
    };
    let _ = writeln!(text, "{sign} {}{note}", difference.object);
    // A new object is told by its name; `template` shows it whole.
    if difference.change == Change::Update {
        for field in &difference.fields {
            let [before, after] = [&field.before, &field.after]
                .map(|value| value.as_deref().map_or_else(|| "(none)".to_owned(), shorten_value));
            let _ = writeln!(text, "    {}: {before} → {after}", visible_line(&field.path));
        }
    }
    for conflict in &difference.conflicts {
        let _ = writeln!(
            text,
            "    ! {conflict}; an install fails here without `--take-fields {}`",
            quote_always(&visible_line(&conflict.take_fields_flag()))
        );
    }
}

/// Values longer than this are cut, at a boundary of characters.
const SHOWN: usize = 160;

fn shorten_value(value: &str) -> String {
    if value.chars().count() <= SHOWN {
        return visible_line(value).into_owned();
    }
    let head: String = value.chars().take(SHOWN).collect();
    let head = visible_line(&head);
    format!("{head}… ({} characters)", value.chars().count())
}

fn json_of(ui: &Ui, comparison: &Comparison) -> serde_json::Value {
    let foreign: Vec<_> = comparison
        .foreign
        .iter()
        .map(|f| json!({"object": f.object, "managers": f.managers, "install": f.install}))
        .collect();
    let objects: Vec<_> = comparison
        .differences
        .iter()
        .map(|difference| {
            let mut object = serde_json::to_value(difference).unwrap_or_default();
            for field in object["fields"].as_array_mut().into_iter().flatten() {
                for side in ["before", "after"] {
                    // Text that is no JSON is the hash of a secret value.
                    if let Some(value) = field[side].as_str().and_then(|text| serde_json::from_str(text).ok()) {
                        field[side] = value;
                    }
                }
            }
            object["conflicts"] = difference.conflicts.iter().map(ToString::to_string).collect();
            object
        })
        .collect();
    json!({
        "differs": !comparison.is_same(),
        "objects": objects,
        "notOurs": foreign,
        "same": comparison.same,
        "notes": comparison.notes.iter().map(|note| ui.format_remedy(note)).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{FieldChange, Foreign};
    use crate::k8s::ObjectRef;

    fn difference(change: Change, name: &str) -> Difference {
        let object = ObjectRef {
            group: String::new(),
            kind: "ConfigMap".into(),
            namespace: Some("fleet".into()),
            name: name.into(),
        };
        let fields = vec![FieldChange { path: ".data.a".into(), before: Some("\"1\"".into()), after: None }];
        Difference { object, change, fields, conflicts: Vec::new(), note: None }
    }

    #[test]
    fn a_change_is_told_by_its_fields_and_a_new_object_by_its_name() {
        let mut differences = vec![difference(Change::Create, "new"), difference(Change::Update, "old")];
        differences[0].note = Some("not checked".to_owned());
        let comparison = Comparison { differences, same: 3, foreign: Vec::new(), notes: vec!["a note".into()] };
        assert_eq!(
            format_differences(&Ui::for_tests(), &comparison),
            "+ ConfigMap fleet/new *\n~ ConfigMap fleet/old\n    .data.a: \"1\" → (none)\n* not checked\n# a note\n\
             1 to create, 1 to change, 0 to delete, 3 unchanged.\n"
        );
        let json = json_of(&Ui::for_tests(), &comparison);
        assert_eq!(json["objects"][1]["fields"][0]["before"], "1", "the value, and no text of JSON");
        assert_eq!((json["differs"].as_bool(), json["objects"][1]["change"].as_str()), (Some(true), Some("update")));
    }

    #[test]
    fn what_stays_though_it_is_planned_no_more_is_told_and_is_no_change() {
        let mut kept = difference(Change::Keep, "kept");
        kept.note = Some("kept: it now has a different owner".to_owned());
        let comparison = Comparison { differences: vec![kept], same: 3, foreign: Vec::new(), notes: Vec::new() };
        assert!(comparison.is_same());
        assert_eq!(
            format_differences(&Ui::for_tests(), &comparison),
            "= ConfigMap fleet/kept *\n* kept: it now has a different owner\n\
             Nothing would change: all 3 objects match the install.\n"
        );
    }

    #[test]
    fn adopting_is_offered_for_what_belongs_to_no_other_installation() {
        let foreign = [("helms", None), ("others", Some("other"))].map(|(name, install)| Foreign {
            object: difference(Change::Update, name).object,
            managers: vec!["helm".to_owned()],
            install: install.map(str::to_owned),
        });
        let text = format_differences(
            &Ui::for_tests(),
            &Comparison { differences: Vec::new(), same: 0, foreign: foreign.into(), notes: Vec::new() },
        );
        let [helms, others, _] = &text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(helms.ends_with("an install refuses it without `--adopt`"), "{helms}");
        assert!(others.ends_with("an install refuses it, even with `--adopt`"), "{others}");
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let shown = shorten_value(&"ü".repeat(500));
        assert!(shown.starts_with(&"ü".repeat(SHOWN)) && shown.ends_with("(500 characters)"), "{shown}");
    }
}
