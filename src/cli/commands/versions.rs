//! `versions`: the table of service versions and the Kubernetes versions they support.

use clap::Args;
use comfy_table::{Table, presets};

use crate::chart;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::terminal::Ui;

/// List service versions and the Kubernetes versions they support
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fleetctl versions -o json")]
pub(crate) struct VersionsArgs {
    /// Output format [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(crate) fn run(ui: &Ui, args: &VersionsArgs) -> Result<Exit, CliError> {
    let versions = chart::embedded_versions();
    let text = match args.output {
        Some(format) => format.serialize_value(versions),
        None => format_versions(versions),
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

fn format_versions(versions: &chart::Versions) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["SERVICE VERSION", "KUBERNETES VERSIONS", "NEWEST", "INSTALLABLE"]);
    for row in versions.rows() {
        let minors: Vec<String> = row.kubernetes.iter().map(ToString::to_string).collect();
        let charts: Vec<String> = row.charts.keys().map(ToString::to_string).collect();
        let charts = if charts.is_empty() { "not yet".to_owned() } else { charts.join(", ") };
        table.add_row([row.version.to_string(), minors.join(", "), row.default.to_string(), charts]);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n") + "\n"
}
