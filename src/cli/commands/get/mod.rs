//! `get`: lists what a control plane manages, from its own API; and the values of an installation.

mod blocks;
mod clusters;
mod deployments;
mod groups;
mod node_reports;
pub(in crate::cli) mod values;

use clap::{Subcommand, ValueEnum};
use kube::ResourceExt;
use kube::api::ListParams;
use serde::Serialize;

use crate::api::util::text::visible_cell;
use crate::chart::output;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// List what a control plane manages, or print the values of an installation
#[derive(Debug, Subcommand)]
pub(crate) enum GetCommand {
    /// List registered workload clusters with their nodes
    #[command(visible_alias = "cluster", after_help = clusters::EXAMPLES)]
    Clusters(clusters::GetClustersArgs),
    /// List schedule groups: the objects that are placed together, their clusters and their policy
    #[command(visible_aliases = ["schedulegroup", "sg"], after_help = groups::EXAMPLES)]
    Schedulegroups(groups::GetGroupsArgs),
    /// List the deployments of the control plane's API with the cluster that runs each
    #[command(visible_aliases = ["deployment", "deploy"], after_help = deployments::EXAMPLES)]
    Deployments(deployments::GetDeploymentsArgs),
    /// Print the values of an installed control plane or agent, from the record in its cluster
    #[command(after_help = values::EXAMPLES)]
    Values(values::GetValuesArgs),
}

/// Formats for programs, which every list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GetFormat {
    Json,
    Yaml,
    Name,
}

/// The same, and a table with a row for each cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WideFormat {
    Wide,
    Json,
    Yaml,
    Name,
}

impl WideFormat {
    /// The format for programs, unless it is the wide table.
    const fn for_programs(self) -> Option<GetFormat> {
        match self {
            Self::Wide => None,
            Self::Json => Some(GetFormat::Json),
            Self::Yaml => Some(GetFormat::Yaml),
            Self::Name => Some(GetFormat::Name),
        }
    }
}

pub(crate) async fn run(ui: &Ui, global: &Global, command: GetCommand) -> Result<Exit, CliError> {
    match command {
        GetCommand::Clusters(args) => clusters::run(ui, global, &args).await,
        GetCommand::Schedulegroups(args) => groups::run(ui, global, &args).await,
        GetCommand::Values(args) => values::run(ui, global, &args).await,
        GetCommand::Deployments(args) => deployments::run(ui, global, &args).await,
    }
}

/// Objects in a format for programs; `resource` is the prefix of `-o name`, such as `deployment.apps`.
fn format_objects<K: Serialize + ResourceExt>(format: GetFormat, objects: &[K], resource: &str) -> String {
    match format {
        GetFormat::Json => output::format_json(&build_object_list(objects)),
        GetFormat::Yaml => output::format_yaml(&build_object_list(objects)),
        GetFormat::Name => objects
            .iter()
            .fold(String::new(), |text, object| text + resource + "/" + &visible_cell(&object.name_any()) + "\n"),
    }
}

fn build_object_list<K: Serialize>(objects: &[K]) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "List",
        "items": objects.iter().map(|object| serde_json::json!(object)).collect::<Vec<_>>(),
    })
}

/// One object in a format for programs, not as a list of one.
fn formatted_alone<K: Serialize + ResourceExt>(format: GetFormat, object: &K, resource: &str) -> String {
    match format {
        GetFormat::Json => output::format_json(object),
        GetFormat::Yaml => output::format_yaml(object),
        GetFormat::Name => format_objects(format, std::slice::from_ref(object), resource),
    }
}

fn selector_params(selector: Option<&str>) -> ListParams {
    selector.map_or_else(ListParams::default, |selector| ListParams::default().labels(selector))
}
