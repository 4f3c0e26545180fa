//! `show values`: the defaults of a chart as commented YAML, or what values make of them.

use clap::Args;

use crate::chart::inspect::merged::format_merged_values;
use crate::chart::inspect::show::Commented;
use crate::cli::args::chart_choice;
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::args::values::{ValuesArgs, with_precedence};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_values;
use crate::cli::render_offline::build_typed_values;

/// Print the default values as commented YAML for `--values`; with values given, print the merged result and the source
/// of each value
#[derive(Debug, Args)]
#[command(after_help = with_precedence!("Examples:
  fleetctl show values > my.yaml
  fleetctl show values agent --version v1.1
  fleetctl show values --preset ha --values my.yaml --version v1.1"))]
pub(crate) struct ShowValuesArgs {
    #[command(flatten)]
    chart: ChartArgs,

    #[command(flatten)]
    values: ValuesArgs,
}

pub(crate) fn run(ui: &Ui, args: &ShowValuesArgs) -> Result<Exit, CliError> {
    let kind = args.chart.kind();
    let selection = args.chart.selection_with(&args.values, None)?;
    let chart = chart_choice::load_selected_chart(kind, &selection)?;
    if !args.values.is_empty() {
        let builder = args.values.apply_values(chart.values_of(&selection.version));
        let tree =
            builder.build_checked(chart_choice::values_schema(kind)).map_err(|problems| wrong_values(&problems))?;
        for warning in tree.warnings() {
            ui.write_stderr(&warning.render_diagnostic(false));
        }
        ui.write_stdout(&format_merged_values(&tree))?;
        return Ok(Exit::Ok);
    }
    let (_, values) =
        build_typed_values(kind, chart.values_of(&selection.version)).map_err(|problems| wrong_values(&problems))?;
    // The name under which `show schema` is meant to be kept beside the values.
    let location = format!("{kind}.schema.json");
    let shown = Commented {
        schema: &chart_choice::values_schema(kind),
        schema_location: &location,
        schema_command: &format!("fleetctl show schema {kind} --version {}", selection.row.version),
        line: Some(selection.row.version),
        decided_by_version: chart.image_paths().into_iter().map(|(_, path)| path).collect(),
    };
    ui.write_stdout(&shown.format_commented_values(&values))?;
    Ok(Exit::Ok)
}
