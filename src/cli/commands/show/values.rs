//! `show values`: the defaults of a chart as commented YAML.

use clap::Args;

use crate::chart::inspect::show::Commented;
use crate::cli::args::chart_choice;
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::args::package::wrong_values;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::terminal::Ui;
use crate::cli::render_offline::typed;

/// Print the default values as commented YAML, ready to be edited and given to `--values`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fleetctl show values > my.yaml
  fleetctl show values agent --version v1.1")]
pub(crate) struct ShowValuesArgs {
    #[command(flatten)]
    chart: ChartArgs,
}

pub(crate) fn run(ui: &Ui, args: &ShowValuesArgs) -> Result<Exit, CliError> {
    let kind = args.chart.kind();
    let selection = args.chart.selection()?;
    let chart = chart_choice::load(kind, &selection)?;
    let (_, values) = typed(kind, chart.values_of(&selection.version)).map_err(|problems| wrong_values(&problems))?;
    // The name under which `show schema` is meant to be kept beside the values.
    let location = format!("{kind}.schema.json");
    let shown = Commented {
        schema: &chart_choice::schema(kind),
        schema_location: &location,
        schema_command: &format!("fleetctl show schema {kind} --version {}", selection.row.version),
        line: Some(selection.row.version),
        decided_by_version: chart.image_paths().into_iter().map(|(_, path)| path).collect(),
    };
    ui.out(&shown.print(&values))?;
    Ok(Exit::Ok)
}
