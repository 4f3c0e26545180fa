//! `get values`: what an installation was given, or all that it was made with.

use clap::Args;
use serde_json::{Value, json};

use crate::api::util::text::visible_line;
use crate::chart::versions::select::{Request, select_row};
use crate::chart::{self, Kind, ValuesTree};
use crate::cli::args::chart_choice::values_schema;
use crate::cli::args::global::Global;
use crate::cli::args::installation::{Installation, InstallationArgs, not_applied_by_others};
use crate::cli::connect;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_values;
use crate::install::recorded_values::RecordedRelease;
use crate::install::release_spec::load_chart;
use crate::inventory::Phase;
use crate::{control_plane, workload_cluster};

pub(super) const EXAMPLES: &str = "Secret values are left out; with `--all` they are masked.

Examples:
  fleetctl get values demo > demo.yaml
  fleetctl get values demo --all
  fleetctl get values west --context west -o json";

/// Print the values that a control plane or an agent was installed with
#[derive(Debug, Args)]
pub(crate) struct GetValuesArgs {
    #[command(flatten)]
    installation: InstallationArgs,

    /// Also print the defaults of the chart
    #[arg(long)]
    all: bool,

    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

const NOT_RECORDED: &str = "its record does not contain them";

pub(super) async fn run(ui: &Ui, global: &Global, args: &GetValuesArgs) -> Result<Exit, CliError> {
    let client = connect::connect_cluster(global).await?.client;
    let Installation { kind, owner, state } = args.installation.find_installation(global, &client).await?;
    let Some(record) = &state.record else {
        return Err(unknown_values_error(&owner.name, "its install has not finished yet"));
    };
    if record.phase == Phase::Removed {
        not_applied_by_others(&client, &owner).await?;
    }
    let values = if args.all {
        let secrets: &[_] = match kind {
            Kind::ControlPlane => &control_plane::charts::SECRET_VALUES,
            Kind::Agent => &workload_cluster::charts::SECRET_VALUES,
        };
        let release = RecordedRelease::from_record(record, &client, secrets).await;
        let release = release.map_err(|error| connect::request_failed("cannot read the secret values", &error))?;
        if release.values.is_none() {
            return Err(unknown_values_error(&owner.name, NOT_RECORDED));
        }
        let merged = merge_recorded_values(kind, &release);
        merged.map_err(|why| unknown_values_error(&owner.name, &visible_line(&why)))??.to_masked_json()
    } else {
        record.release.values.clone().ok_or_else(|| unknown_values_error(&owner.name, NOT_RECORDED))?
    };
    // As nothing rather than as an empty mapping, `fleetctl get values demo > demo.yaml` is a file of values, too.
    let values = if values == json!({}) && args.output == Format::Yaml { Value::Null } else { values };
    ui.write_stdout(&if values.is_null() {
        "# the defaults of the chart\n{}\n".to_owned()
    } else {
        args.output.serialize_value(&values)
    })?;
    Ok(Exit::Ok)
}

/// The error of an installation whose values cannot be told.
pub(crate) fn unknown_values_error(name: &str, why: &str) -> CliError {
    CliError::new(Exit::Failed, "ValuesNotRecorded", format!("the values of {name} are unknown: {why}"))
        .hint("run `install` with all values and `--reset-values`; this records them")
}

/// The recorded values over the defaults of the recorded version.
fn merge_recorded_values(kind: Kind, release: &RecordedRelease) -> Result<Result<ValuesTree, CliError>, String> {
    let request = Request { version: Some(&release.version), ..Request::default() };
    let selection = select_row(chart::embedded_versions(), request).map_err(|error| error.to_string())?;
    let chart = load_chart(kind, &selection).map_err(|error| error.to_string())?;
    let values = chart.values_of(&selection.version).any_image().with_recorded(&release.values_for(&chart));
    Ok(values.build_checked(values_schema(kind)).map_err(|problems| wrong_values(&problems)))
}
