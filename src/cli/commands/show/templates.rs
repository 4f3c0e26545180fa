//! `show templates`: the templates of a line, as `template --explain` and errors name them.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::args::chart_choice;
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// Print the templates of a chart
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fleetctl show templates --version v1.1
  fleetctl show templates agent templates/deployment-agent.yaml --version v1.1")]
pub(crate) struct ShowTemplatesArgs {
    #[command(flatten)]
    chart: ChartArgs,

    /// Templates to print, such as `templates/namespace.yaml` or its file name alone [default: all]
    #[arg(value_name = "TEMPLATE")]
    names: Vec<String>,
}

pub(crate) fn run(ui: &Ui, args: &ShowTemplatesArgs) -> Result<Exit, CliError> {
    let (kind, selection) = (args.chart.kind(), args.chart.select_version()?);
    let chart = chart_choice::load_selected_chart(kind, &selection)?;
    let files: Vec<(&str, &str, &str)> = chart.flattened_files().collect();
    let unknown = args.names.iter().find(|asked| !files.iter().any(|(name, ..)| is_template_named(name, asked)));
    if let Some(asked) = unknown {
        let known: Vec<&str> = files.iter().map(|(name, ..)| *name).collect();
        let error = CliError::usage("NoSuchObject", format!("the {kind} chart has no template `{asked}`"));
        return Err(error.did_you_mean(asked, &known).hint(format!("the templates are: {}", known.join(", "))));
    }
    let one = args.names.len() == 1;
    let mut text = String::new();
    for (name, path, content) in files {
        if !args.names.is_empty() && !args.names.iter().any(|asked| is_template_named(name, asked)) {
            continue;
        }
        // Alone it has the lines that `--explain` counts.
        if !one {
            let from = path.split('/').nth(1).unwrap_or_default();
            let line = chart.line().to_string();
            let origin = if from == line { String::new() } else { format!(", as in {from}") };
            let _ = writeln!(text, "### charts/{kind}/{line}/{name}{origin}");
        }
        text.push_str(content);
        if !content.ends_with('\n') {
            text.push('\n');
        }
    }
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

fn is_template_named(name: &str, asked: &str) -> bool {
    name == asked || name.ends_with(&format!("/{asked}"))
}
