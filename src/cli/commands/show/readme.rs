//! `show readme`: the documentation of a chart as Markdown.

use clap::Args;

use super::presets;
use crate::chart::inspect::readme::{Readme, readme};
use crate::chart::versions::select::Selection;
use crate::chart::{self, Kind};
use crate::cli::args::chart_choice;
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::args::package::wrong_values;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::terminal::Ui;
use crate::cli::render_offline::typed;

/// Print the documentation of a chart as Markdown
#[derive(Debug, Args)]
#[command(after_help = "Example:
  fleetctl show readme agent --version v1.1")]
pub(crate) struct ShowReadmeArgs {
    #[command(flatten)]
    chart: ChartArgs,
}

pub(crate) fn run(ui: &Ui, args: &ShowReadmeArgs) -> Result<Exit, CliError> {
    ui.out(&text(args.chart.kind(), &args.chart.selection()?)?)?;
    Ok(Exit::Ok)
}

/// The documentation of the newest line that has the chart.
pub(crate) fn newest(kind: Kind) -> Result<String, CliError> {
    let rows = chart::versions().rows();
    let version = rows.iter().find(|row| row.charts.contains_key(&kind)).map(|row| row.version.to_string());
    let chart = ChartArgs { chart: Some(kind), version };
    text(kind, &chart.selection()?)
}

fn text(kind: Kind, selection: &Selection<'_>) -> Result<String, CliError> {
    let chart = chart_choice::load(kind, selection)?;
    let (_, values) = typed(kind, chart.values_of(&selection.version)).map_err(|problems| wrong_values(&problems))?;
    let presets = presets::fitting(&chart);
    let schema = chart_choice::schema(kind);
    Ok(readme(&Readme { chart: &chart, row: selection.row, schema: &schema, values: &values, presets: &presets }))
}
