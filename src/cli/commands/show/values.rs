//! `show values`: the defaults of a chart as commented YAML, or what values make of them.

use clap::Args;

use crate::chart::inspect::merged::merged;
use crate::chart::inspect::show::Commented;
use crate::cli::args::chart_choice;
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::args::package::wrong_values;
use crate::cli::args::values::{ValuesArgs, with_precedence};
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::terminal::Ui;
use crate::cli::render_offline::typed;

/// Print the default values as commented YAML, ready to be edited and given to `--values`; with values, what they make of
/// the defaults, and where each comes from
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
    let chart = chart_choice::load(kind, &selection)?;
    if !args.values.is_empty() {
        let builder = args.values.apply(chart.values_of(&selection.version));
        let tree = builder.build_checked(chart_choice::schema(kind)).map_err(|problems| wrong_values(&problems))?;
        for warning in tree.warnings() {
            ui.err(&warning.render(false));
        }
        ui.out(&merged(&tree))?;
        return Ok(Exit::Ok);
    }
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
