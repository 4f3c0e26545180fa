//! `show readme`: the documentation of a chart as Markdown.

use clap::Args;

use super::presets;
use crate::chart::inspect::readme::{Readme, format_chart_readme};
use crate::chart::versions::select::Selection;
use crate::chart::{self, Kind};
use crate::cli::args::chart_choice;
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_values;
use crate::cli::render_offline::build_typed_values;

/// Print the documentation of a chart as Markdown
#[derive(Debug, Args)]
#[command(after_help = "Example:
  fleetctl show readme agent --version v1.1")]
pub(crate) struct ShowReadmeArgs {
    #[command(flatten)]
    chart: ChartArgs,
}

pub(crate) fn run(ui: &Ui, args: &ShowReadmeArgs) -> Result<Exit, CliError> {
    ui.write_stdout(&render_readme(args.chart.kind(), &args.chart.select_version()?)?)?;
    Ok(Exit::Ok)
}

/// The documentation of the newest line that has the chart.
pub(crate) fn render_newest_readme(kind: Kind) -> Result<String, CliError> {
    let rows = chart::embedded_versions().rows();
    let version = rows.iter().find(|row| row.charts.contains_key(&kind)).map(|row| row.version.to_string());
    let chart = ChartArgs { chart: Some(kind), version };
    render_readme(kind, &chart.select_version()?)
}

fn render_readme(kind: Kind, selection: &Selection<'_>) -> Result<String, CliError> {
    let chart = chart_choice::load_selected_chart(kind, selection)?;
    let (_, values) =
        build_typed_values(kind, chart.values_of(&selection.version)).map_err(|problems| wrong_values(&problems))?;
    let presets = presets::find_fitting_presets(&chart);
    let schema = chart_choice::values_schema(kind);
    Ok(format_chart_readme(&Readme {
        chart: &chart,
        row: selection.row,
        schema: &schema,
        values: &values,
        presets: &presets,
    }))
}
