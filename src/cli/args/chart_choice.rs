//! Choice of the chart that a command is about: that of the control plane or of the agent, and the service version.

use clap::Args;

use super::values::ValuesArgs;
use crate::api::version::KubeMinor;
use crate::chart::versions::select;
use crate::chart::versions::select::{Request, SelectError, Selection};
use crate::chart::{self, Chart, Diagnostic, Kind};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::values_error::wrong_values;
use crate::control_plane::values::ControlPlaneValues;
use crate::workload_cluster::values::AgentValues;

/// Flags that choose a chart.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ChartArgs {
    /// The chart: `control-plane` (also `cp`) or `agent` [default: control-plane]
    #[arg(value_name = "CHART")]
    pub(crate) chart: Option<Kind>,

    /// Service version: a line (`v0.6`) or a version (`v0.6.1`) [default: v0.6.1]
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<String>,
}

impl ChartArgs {
    /// Returns the kind of the chart, the control plane's if none is named.
    pub(crate) fn kind(&self) -> Kind {
        self.chart.unwrap_or(Kind::ControlPlane)
    }

    /// The row of the table.
    pub(crate) fn select_version(&self) -> Result<Selection<'static>, CliError> {
        self.selection_with(&ValuesArgs::default(), None)
    }

    /// The row of the table: that of `--version`, else that of the values, else that of the tag of `--image-tag`.
    pub(crate) fn selection_with(
        &self,
        values: &ValuesArgs,
        image_tag: Option<&str>,
    ) -> Result<Selection<'static>, CliError> {
        choose_version(self.version.as_deref(), values, image_tag, None, None)
    }
}

/// The row of the table: that of the flag `--version`, else that of the values, else that of the tag of `--image-tag`,
/// else `otherwise`.
/// `server` is the version of the cluster for `auto`.
pub(crate) fn choose_version(
    flag: Option<&str>,
    values: &ValuesArgs,
    image_tag: Option<&str>,
    server: Option<KubeMinor>,
    otherwise: Option<&str>,
) -> Result<Selection<'static>, CliError> {
    let given = if flag.is_some() { None } else { values.peek_version() };
    let version = flag.or(given.as_ref().map(|(text, _)| text.as_str()));
    let version = version.or(otherwise.filter(|_| image_tag.is_none()));
    let request = Request { version, image_tag, server };
    select::select_row(chart::embedded_versions(), request).map_err(|error| match given {
        Some((_, place)) if !matches!(error, SelectError::NoneSupports { .. }) => {
            // The words are those of the flag, which was not given.
            let message = error.to_string().replace("`--version ", "`version: ");
            let problem = Diagnostic::error("no-such-version", message).at(place).path("version");
            wrong_values(&problem.help("list all versions with `fleetctl versions`").into())
        }
        _ => no_version(&error),
    })
}

/// A version that is not in the table, or that does not fit the rest of the command line.
pub(crate) fn no_version(error: &SelectError) -> CliError {
    let exit = if matches!(error, SelectError::NoneSupports { .. }) { Exit::Preflight } else { Exit::Usage };
    CliError::new(exit, "NoSuchVersion", error.to_string()).hint("list all versions with `fleetctl versions`")
}

/// The chart of a kind that a row installs.
pub(crate) fn load_selected_chart(kind: Kind, selection: &Selection<'_>) -> Result<Chart, CliError> {
    let row = selection.row;
    let Some(line) = row.charts.get(&kind) else {
        return Err(CliError::usage("NoChart", format!("service version {} has no {kind} chart", row.version))
            .hint("list all versions with `fleetctl versions`"));
    };
    let chart = Chart::load_embedded(kind, *line).map_err(|error| {
        CliError::new(Exit::Failed, "NoChart", format!("the {kind} chart of {line} cannot be loaded")).because(&error)
    })?;
    Ok(chart.with_row(row.clone()))
}

/// The JSON Schema of a chart's values, those of every line.
pub(crate) fn values_schema(kind: Kind) -> serde_json::Value {
    match kind {
        Kind::ControlPlane => ControlPlaneValues::schema(),
        Kind::Agent => AgentValues::schema(),
    }
}
