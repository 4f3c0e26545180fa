//! Rendering of a chart without a cluster and without keys: placeholders stand for what only those have.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::chart_choice;
use super::output::error::CliError;
use super::output::values_error::wrong_name;
use crate::api::names::{ClusterName, ControlPlaneName, NamespaceName};
use crate::chart::patch::Patches;
use crate::chart::versions::select::Selection;
use crate::chart::{Chart, Diagnostic, Diagnostics, Kind, Rendered, ValuesBuilder, ValuesTree};
use crate::control_plane::endpoint::exposure;
use crate::control_plane::endpoint::exposure::{Endpoint, unknown_endpoint};
use crate::control_plane::values::{ControlPlaneValues, ExposureType, ExposureValues};
use crate::control_plane::{self};
use crate::workload_cluster::values::AgentValues;
use crate::{pki, workload_cluster};

/// The name of what is installed where the values give none.
const NAME: &str = "demo";

/// A chart, its values and its objects.
#[derive(Debug)]
pub(super) struct Preview {
    pub(super) chart: Chart,
    pub(super) rendered: Rendered,
    /// Warnings about values that are valid.
    pub(super) warnings: Vec<Diagnostic>,
}

/// Reason that there is no preview: problems with the values, or another error, such as a wrong name in them.
#[derive(Debug)]
pub(super) enum NoPreview {
    Values(Diagnostics),
    Other(CliError),
}

impl From<Diagnostics> for NoPreview {
    fn from(problems: Diagnostics) -> Self {
        Self::Values(problems)
    }
}

impl From<CliError> for NoPreview {
    fn from(error: CliError) -> Self {
        Self::Other(error)
    }
}

/// Checks the values that `add` lays over the chart's, renders, and applies the patches.
pub(super) fn render_preview(
    kind: Kind,
    selection: &Selection<'_>,
    namespace: &NamespaceName,
    patches: &Patches,
    add: impl FnOnce(ValuesBuilder) -> Result<ValuesBuilder, CliError>,
) -> Result<Preview, NoPreview> {
    let chart = chart_choice::load_selected_chart(kind, selection)?;
    let builder = add(chart.values_of(&selection.version))?;
    let (rendered, warnings) = match kind {
        Kind::ControlPlane => {
            let name: ControlPlaneName = name_in(&builder)?.parse().map_err(|error| wrong_name(&error))?;
            let plan = control_plane::plan::Plan::new(name, namespace.clone(), selection, chart.clone(), builder)?;
            let plan = plan.with_patches(patches.clone());
            let rendered =
                plan.render_control_plane(&offline_endpoint(&plan.values.exposure), &pki::placeholder_files())?;
            (rendered, plan.package.value_warnings().to_vec())
        }
        Kind::Agent => {
            let name: ClusterName = name_in(&builder)?.parse().map_err(|error| wrong_name(&error))?;
            let plan = workload_cluster::plan::Plan::new(name, namespace.clone(), selection, chart.clone(), builder)?;
            let plan = plan.with_patches(patches.clone());
            (plan.render_agent()?, plan.package.value_warnings().to_vec())
        }
    };
    Ok(Preview { chart, rendered, warnings })
}

fn name_in(builder: &ValuesBuilder) -> Result<String, Diagnostics> {
    Ok(builder.peek_text("name")?.unwrap_or_else(|| NAME.to_owned()))
}

/// The checked values, and the same as JSON in which every optional one is there as null.
pub(super) fn build_typed_values(kind: Kind, builder: ValuesBuilder) -> Result<(ValuesTree, Value), Diagnostics> {
    fn to_typed_json<T: Serialize + DeserializeOwned>(tree: &ValuesTree) -> Result<Value, Diagnostics> {
        Ok(serde_json::to_value(tree.deserialize::<T>()?).unwrap_or_default())
    }
    let tree = builder.build(|| chart_choice::values_schema(kind))?;
    let values = match kind {
        Kind::ControlPlane => to_typed_json::<ControlPlaneValues>(&tree)?,
        Kind::Agent => to_typed_json::<AgentValues>(&tree)?,
    };
    Ok((tree, values))
}

/// Returns the endpoint that the values decide. Where only a cluster can decide it, its host is a name that no DNS has,
/// and its shape that of a node port where the values leave the type of exposure to the cluster.
pub(super) fn offline_endpoint(wanted: &ExposureValues) -> Endpoint {
    exposure::endpoint_from_values(wanted).unwrap_or_else(|_| {
        let kind = if wanted.kind == ExposureType::Auto { ExposureType::NodePort } else { wanted.kind };
        Endpoint { node_port: exposure::wanted_node_port(kind, wanted), ..unknown_endpoint(kind) }
    })
}
