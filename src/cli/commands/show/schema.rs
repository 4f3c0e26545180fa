//! `show schema`: the JSON Schema of a file of values, for editors.

use clap::Args;

use crate::chart::output;
use crate::chart::values::{schema_of_line, written_schema};
use crate::cli::args::chart_choice;
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// Print the JSON Schema of a values file, for editors
#[derive(Debug, Args)]
#[command(after_help = "Example, with the file name that the first line of `show values` refers to:
  fleetctl show schema > control-plane.schema.json")]
pub(crate) struct ShowSchemaArgs {
    #[command(flatten)]
    chart: ChartArgs,
}

pub(crate) fn run(ui: &Ui, args: &ShowSchemaArgs) -> Result<Exit, CliError> {
    let kind = args.chart.kind();
    let selection = args.chart.select_version()?;
    chart_choice::load_selected_chart(kind, &selection)?;
    let schema = schema_of_line(chart_choice::values_schema(kind), selection.row.version);
    ui.write_stdout(&output::format_json(&written_schema(schema, kind)))?;
    Ok(Exit::Ok)
}
