//! `show presets`: the values that come with the program.

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets as styles};
use serde::Serialize;

use crate::chart::{self, Chart, Kind, Preset, output};
use crate::cli::args::chart_choice;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;

/// List the presets, or print one of them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fleetctl show presets
  fleetctl show presets ha > ha.yaml
  fleetctl install cp demo --version v1.1 --preset ha")]
pub(crate) struct ShowPresetsArgs {
    /// The preset to print, ready for `--values`
    #[arg(value_name = "PRESET")]
    name: Option<String>,

    /// Output format of the list [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<PresetsFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PresetsFormat {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Serialize)]
struct ListedPreset {
    name: &'static str,
    description: String,
    /// The charts and lines that take it, newest line first.
    charts: Vec<String>,
}

pub(crate) fn run(ui: &Ui, args: &ShowPresetsArgs) -> Result<Exit, CliError> {
    let text = match &args.name {
        Some(name) => find_preset(name)?.text.to_owned(),
        None => list_presets(args.output.unwrap_or(PresetsFormat::Table))?,
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

fn find_preset(name: &str) -> Result<Preset, CliError> {
    chart::embedded_presets().find(|preset| preset.name == name).ok_or_else(|| {
        let known: Vec<&str> = chart::embedded_presets().map(|preset| preset.name).collect();
        CliError::usage("NoSuchPreset", format!("there is no preset `{name}`"))
            .did_you_mean(name, &known)
            .hint(format!("the presets are: {}", known.join(", ")))
    })
}

/// The presets that a chart takes.
pub(crate) fn find_fitting_presets(chart: &Chart) -> Vec<Preset> {
    let schema = chart_choice::values_schema(chart.kind());
    let presets = chart::embedded_presets().filter(|preset| {
        chart.values_builder().file(preset.name, preset.text.as_bytes()).build_checked(schema.clone()).is_ok()
    });
    presets.collect()
}

fn list_presets(format: PresetsFormat) -> Result<String, CliError> {
    let mut listed: Vec<ListedPreset> = chart::embedded_presets()
        .map(|preset| ListedPreset { name: preset.name, description: preset.description(), charts: Vec::new() })
        .collect();
    for row in chart::embedded_versions().rows() {
        for (kind, line) in &row.charts {
            let chart = Chart::load_embedded(*kind, *line).map_err(|error| {
                CliError::new(Exit::Failed, "NoChart", format!("the {kind} chart of {line} cannot be loaded"))
                    .because(&error)
            })?;
            for preset in find_fitting_presets(&chart) {
                let found = listed.iter_mut().find(|listed| listed.name == preset.name);
                if let Some(listed) = found {
                    listed.charts.push(format!("{kind}/{}", row.version));
                }
            }
        }
    }
    Ok(match format {
        PresetsFormat::Json => output::format_json(&listed),
        PresetsFormat::Yaml => output::format_yaml(&listed),
        PresetsFormat::Table => format_presets(&listed),
    })
}

fn format_presets(listed: &[ListedPreset]) -> String {
    let mut table = Table::new();
    table.load_style(styles::NOTHING).set_header(["PRESET", "CONTROL PLANE", "AGENT", "DESCRIPTION"]);
    for preset in listed {
        let [control_plane, agent] = [Kind::ControlPlane, Kind::Agent].map(|kind| {
            let prefix = format!("{kind}/");
            let lines: Vec<&str> = preset.charts.iter().filter_map(|chart| chart.strip_prefix(&prefix)).collect();
            match (lines.first(), lines.last()) {
                (Some(newest), Some(oldest)) if newest != oldest => format!("{oldest} to {newest}"),
                (Some(only), _) => (*only).to_owned(),
                _ => "-".to_owned(),
            }
        });
        // The first sentence says what it is for.
        let short = preset.description.split_once(". ").map_or(preset.description.as_str(), |(first, _)| first);
        table.add_row([preset.name.to_owned(), control_plane, agent, short.trim_end_matches('.').to_owned()]);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n") + "\n"
}
