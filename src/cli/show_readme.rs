//! `show readme`: the documentation of a chart as Markdown.

use clap::Args;

use super::chart_choice::{self, ChartArgs};
use super::error::{CliError, Exit};
use super::package_args::wrong_values;
use super::preview::typed;
use super::show_presets;
use super::ui::Ui;
use crate::chart::readme::{Readme, readme};
use crate::chart::select::Selection;
use crate::chart::{self, Kind};

/// Print the documentation of a chart as Markdown
#[derive(Debug, Args)]
#[command(after_help = "Example:
  fleetctl show readme agent --version v1.1")]
pub(super) struct ShowReadmeArgs {
    #[command(flatten)]
    chart: ChartArgs,
}

pub(super) fn run(ui: &Ui, args: &ShowReadmeArgs) -> Result<Exit, CliError> {
    ui.out(&text(args.chart.kind(), &args.chart.selection()?)?)?;
    Ok(Exit::Ok)
}

/// The documentation of the newest line that has the chart.
pub(super) fn newest(kind: Kind) -> Result<String, CliError> {
    let rows = chart::versions().rows();
    let version = rows.iter().find(|row| row.charts.contains_key(&kind)).map(|row| row.version.to_string());
    let chart = ChartArgs { chart: Some(kind), version };
    text(kind, &chart.selection()?)
}

fn text(kind: Kind, selection: &Selection<'_>) -> Result<String, CliError> {
    let chart = chart_choice::load(kind, selection)?;
    let (_, values) = typed(kind, chart.values_of(&selection.version)).map_err(|problems| wrong_values(&problems))?;
    let presets = show_presets::fitting(&chart);
    let schema = chart_choice::schema(kind);
    Ok(readme(&Readme { chart: &chart, row: selection.row, schema: &schema, values: &values, presets: &presets }))
}
