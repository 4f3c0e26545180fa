//! `simulate`: where objects and policies would be placed, onto a live or a recorded fleet; nothing is written anywhere.

mod files;
pub(in crate::cli) mod live;
mod recording;
mod report;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;

use crate::api::placeable::Kinds;
use crate::api::util::text::visible_cell;
use crate::chart::output;
use crate::cli::args::global::Global;
use crate::cli::commands::why::kind::find_kind;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::fleet_page::format_fleet_page;
use crate::cli::output::terminal::Ui;
use crate::placement::facts::ObjectKey;
use crate::placement::simulate::{Asked, FleetState, simulate};

/// Show where objects and policies would be placed, and what would move
#[derive(Debug, Args)]
#[command(after_help = "\
The command repeats the decisions with the scheduler's rules and changes nothing. With --fleet it needs no connection.
The exit code is 0 if everything has a place, 7 if not, 2 if a file or a name is wrong.

Examples:
  fleetctl simulate -f app.yaml --context demo
  fleetctl simulate -f policies/ --fleet fleet.json.gz
  fleetctl simulate --context demo --record fleet.json.gz
  fleetctl simulate --fleet fleet.json.gz --without-cluster west -o html > west.html")]
pub(crate) struct SimulateArgs {
    /// File or folder of objects and policies to add or to edit, or `-` for stdin; can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    files: Vec<String>,

    /// Recording of a fleet to use in place of a control plane
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,

    /// Record the fleet in this file, compressed if its name ends in `.gz`; a recording contains names, labels and
    /// numbers, no manifests and no data
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Suppose that this cluster is lost; can be repeated
    #[arg(long, value_name = "NAME")]
    cluster_down: Vec<String>,

    /// Suppose that this cluster is not registered; can be repeated
    #[arg(long, value_name = "NAME")]
    without_cluster: Vec<String>,

    /// Suppose another number of replicas of an object, such as `deployment/shop/web=5`; can be repeated
    #[arg(long, value_name = "KIND/NAMESPACE/NAME=N")]
    scale: Vec<String>,

    /// Place everything again, as if nothing ran
    #[arg(long)]
    replace: bool,

    /// Output format [default: table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<SimulateFormat>,
}

/// Formats of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SimulateFormat {
    /// The objects in question and all changes
    Table,
    /// Everything
    Wide,
    Json,
    /// HTML page
    Html,
}

impl SimulateArgs {
    /// Returns whether anything is asked beside what is.
    fn has_question(&self) -> bool {
        let lists = [&self.files, &self.cluster_down, &self.without_cluster, &self.scale];
        self.replace || lists.iter().any(|list| !list.is_empty())
    }
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &SimulateArgs) -> Result<Exit, CliError> {
    let before = match &args.fleet {
        Some(file) => recording::read_recording(file)?,
        None => {
            let mut live = live::read_live_state(ui, global).await?;
            live.strip_at(Timestamp::now().as_second());
            live
        }
    };
    if let Some(file) = &args.record {
        recording::write_recording(file, &before)?;
        let (clusters, objects) = (before.clusters.len(), before.objects.len());
        ui.print_note(&format!("Recorded {clusters} clusters and {objects} objects in {}", file.display()));
        if !args.has_question() && args.output.is_none() {
            return Ok(Exit::Ok);
        }
    }
    let kinds = recording::read_kinds(&before);
    // The namespace of the service's own components is not where workloads are.
    let namespace = if global.namespace_given { global.namespace.as_str() } else { "default" };
    let (state, asked) = suppose(&before, args, &kinds, namespace)?;
    let outcome = simulate(&before, &state, &asked);
    let text = match args.output.unwrap_or(SimulateFormat::Table) {
        SimulateFormat::Table => report::format_simulation(&outcome, false),
        SimulateFormat::Wide => report::format_simulation(&outcome, true),
        SimulateFormat::Json => output::format_json(&outcome),
        SimulateFormat::Html => format_fleet_page(&outcome, true),
    };
    ui.write_stdout(&text)?;
    Ok(if outcome.is_all_placed() { Exit::Ok } else { Exit::Unhealthy })
}

/// Makes the state that is asked about, and what the question is about.
fn suppose(
    before: &FleetState,
    args: &SimulateArgs,
    kinds: &Kinds,
    namespace: &str,
) -> Result<(FleetState, Asked), CliError> {
    let mut state = before.clone();
    let mut asked = Asked { everything: args.replace || !args.has_question(), ..Asked::default() };
    if args.replace {
        state.forget_placements();
    }
    for name in args.cluster_down.iter().chain(&args.without_cluster) {
        check_cluster_name(before, name)?;
    }
    for name in &args.cluster_down {
        state.mark_cluster_lost(name);
    }
    asked.clusters.extend(args.cluster_down.iter().cloned());
    state.freeze_by_losses(asked.clusters.len());
    args.without_cluster.iter().for_each(|name| state.remove_cluster(name));
    if !args.files.is_empty() {
        let given = files::read_given(&args.files, kinds, namespace)?;
        for object in given.objects {
            asked.objects.insert(object.facts.key.clone());
            state.put_object(object);
        }
        for policy in given.policies {
            asked.policies.extend(policy.metadata.name.clone());
            state.put_policy(policy);
        }
    }
    for text in &args.scale {
        let (key, replicas) = parse_scale(kinds, text)?;
        if !state.scale_object(&key, replicas) {
            let headline = format!("there is no {} with replicas in the fleet", visible_cell(&key.format_title()));
            let names = state.objects.iter().filter(|one| one.facts.key.kind() == key.kind());
            let names: Vec<String> = names.map(|one| format_scaled_name(&one.facts.key)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(CliError::usage("NoSuchObject", headline).did_you_mean(&format_scaled_name(&key), &names));
        }
        asked.objects.insert(key);
    }
    state.set_missing_ages();
    Ok((state, asked))
}

fn format_scaled_name(key: &ObjectKey) -> String {
    format!("{}/{}/{}", key.kind().to_lowercase(), key.namespace(), key.name())
}

fn check_cluster_name(state: &FleetState, name: &str) -> Result<(), CliError> {
    let names = state.cluster_names();
    if names.contains(&name) {
        return Ok(());
    }
    let headline = format!("no cluster `{}` is in the fleet", visible_cell(name));
    let list = if names.is_empty() {
        "the fleet has no clusters".to_owned()
    } else {
        format!("its clusters are: {}", names.join(", "))
    };
    Err(CliError::usage("NoSuchCluster", headline).did_you_mean(name, &names).hint(visible_cell(&list).into_owned()))
}

/// Reads `KIND/NAMESPACE/NAME=N`.
fn parse_scale(kinds: &Kinds, text: &str) -> Result<(ObjectKey, i64), CliError> {
    let (object, replicas) = text.split_once('=').ok_or_else(|| invalid_scale(text, "there is no `=`"))?;
    let [kind, namespace, name] = object.split('/').collect::<Vec<_>>()[..] else {
        return Err(invalid_scale(text, "kind, namespace and name are expected"));
    };
    let kind = find_kind(kinds, kind)
        .ok_or_else(|| invalid_scale(text, &format!("`{}` is not a kind that can be placed", visible_cell(kind))))?;
    let replicas = replicas.parse::<i32>().ok().filter(|replicas| *replicas >= 0);
    let replicas = replicas.ok_or_else(|| invalid_scale(text, "a number of replicas is expected after `=`"))?;
    Ok((ObjectKey::new(kind.group, kind.kind, namespace, name), replicas.into()))
}

fn invalid_scale(text: &str, why: &str) -> CliError {
    CliError::usage("InvalidScale", format!("cannot read `--scale {}`: {why}", visible_cell(text)))
        .hint("write KIND/NAMESPACE/NAME=N, such as `--scale deployment/shop/web=5`")
}
