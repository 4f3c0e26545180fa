//! What will be installed: name, namespace, version, chart and checked values; from there to objects, without a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::exposure::{self, Endpoint};
use super::values::{ControlPlaneValues, ExposureType};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::version::{KubeMinor, ServiceVersion};
use crate::apply::{KEEP_ANNOTATION, Kind, Owner, Planned, Release};
use crate::chart::explain::{ExplainError, Explanation, explain};
use crate::chart::select::Selection;
use crate::chart::{
    self, Chart, ChartError, Diagnostic, Diagnostics, Object, RenderInput, Rendered, ValuesBuilder, ValuesTree,
};
use crate::check::hosting::{Wanted, needs};
use crate::pki;

/// The stages that come before everything else: they decide where the API will be reached.
pub const FIRST_STAGES: [&str; 2] = ["namespace", "exposure"];

/// CPU architectures for which every component image exists.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The kind of owner that a control plane is to the engine.
pub const OWNER_KIND: &str = "control-plane";

/// There is no chart for what was chosen.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The line is known, but this program has no chart of it.
    #[error("service version {line} cannot be installed by this release: it has no control-plane chart of that line")]
    NoChart {
        /// The chosen line.
        line: String,
        /// Lines that can be installed, newest first.
        installable: Vec<String>,
    },
    /// The chart itself is broken.
    #[error("the chart of service version {line} cannot be loaded")]
    Chart {
        /// The chosen line.
        line: String,
        /// What is wrong with it.
        #[source]
        source: ChartError,
    },
}

/// The chart of a chosen version.
pub fn load_chart(selection: &Selection<'_>) -> Result<Chart, PlanError> {
    let line = selection.row.version;
    let Some(chart) = selection.row.charts.get(&chart::Kind::ControlPlane) else {
        return Err(PlanError::NoChart { line: line.to_string(), installable: installable() });
    };
    Chart::load(chart::Kind::ControlPlane, *chart)
        .map(|chart| chart.with_row(selection.row.clone()))
        .map_err(|source| PlanError::Chart { line: line.to_string(), source })
}

/// The lines that this program can install as a control plane, newest first.
pub fn installable() -> Vec<String> {
    let rows = chart::versions().rows().iter();
    rows.filter(|row| row.charts.contains_key(&chart::Kind::ControlPlane)).map(|row| row.version.to_string()).collect()
}

/// Everything that decides what is installed but the cluster.
#[derive(Debug)]
pub struct Plan {
    /// Name of the control plane.
    pub name: ControlPlaneName,
    /// Namespace of its components.
    pub namespace: NamespaceName,
    /// The service version.
    pub version: ServiceVersion,
    /// The checked values.
    pub values: ControlPlaneValues,
    kubernetes: Vec<KubeMinor>,
    chart: Chart,
    tree: ValuesTree,
}

impl Plan {
    /// A plan from the chosen version and the user's values on top of the chart's.
    pub fn new(
        name: ControlPlaneName,
        namespace: NamespaceName,
        selection: &Selection<'_>,
        chart: Chart,
        values: ValuesBuilder,
    ) -> Result<Self, Diagnostics> {
        let tree = values.build(ControlPlaneValues::schema)?;
        let values: ControlPlaneValues = tree.deserialize()?;
        Ok(Self {
            name,
            namespace,
            version: selection.version.clone(),
            kubernetes: selection.row.kubernetes.clone(),
            values,
            chart,
            tree,
        })
    }

    /// What is worth a word about the values, though they are right.
    pub fn value_warnings(&self) -> &[Diagnostic] {
        self.tree.warnings()
    }

    /// Whether the row of the version supports a Kubernetes minor.
    pub fn supports(&self, minor: KubeMinor) -> bool {
        self.kubernetes.contains(&minor)
    }

    /// Who owns the objects.
    pub fn owner(&self) -> Owner {
        Owner::new(OWNER_KIND, self.name.as_str(), self.namespace.as_str())
    }

    /// The titles of the chart's stages, in order.
    pub fn stages(&self) -> &[chart::Stage] {
        self.chart.stages()
    }

    /// What the templates get to see.
    fn input(&self, endpoint: &Endpoint, keys: &pki::Files) -> RenderInput {
        RenderInput {
            values: serde_json::to_value(&self.values).unwrap_or(Value::Null),
            release: json!({
                "name": self.name.as_str(),
                "namespace": self.namespace.as_str(),
                "version": self.version.to_string(),
                "line": self.chart.line().to_string(),
                "managedBy": crate::apply::MANAGER,
            }),
            facts: json!({"exposure": endpoint, "server": endpoint.url()}),
            pki: keys.expose().map(|(name, text)| (name.to_owned(), text.to_owned())).collect::<BTreeMap<_, _>>(),
        }
    }

    /// Where a field of an object comes from: `deployment/fleet-scheduler#spec.replicas`.
    pub fn explain(
        &self,
        endpoint: &Endpoint,
        keys: &pki::Files,
        field: &str,
    ) -> Result<Vec<Explanation>, ExplainError> {
        explain(&self.chart, &self.input(endpoint, keys), &self.tree, field)
    }

    /// Renders the chart. The same inputs give the same objects.
    pub fn render(&self, endpoint: &Endpoint, keys: &pki::Files) -> Result<Rendered, Diagnostics> {
        let mut rendered = self.chart.render(&self.input(endpoint, keys))?;
        let owner = self.owner();
        for object in &mut rendered.objects {
            owner.stamp(&mut object.json);
        }
        Ok(rendered)
    }

    /// The objects as the engine takes them.
    pub fn planned<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Vec<Planned> {
        let planned = |object: &Object| {
            let stage = u32::try_from(object.stage).unwrap_or(u32::MAX);
            let keep = object.json.pointer("/metadata/labels").and_then(|map| map.get(KEEP_ANNOTATION)).is_some();
            if keep { Planned::kept(stage, object.json.clone()) } else { Planned::new(stage, object.json.clone()) }
        };
        objects.into_iter().map(planned).collect()
    }

    /// What the record says about this install.
    pub fn release(&self, endpoint: &Endpoint) -> Release {
        Release {
            chart: format!("{OWNER_KIND}/{}", self.chart.line()),
            version: self.version.to_string(),
            values_digest: self.tree.digest(),
            facts: BTreeMap::from([
                ("exposure".to_owned(), format!("{:?}", endpoint.kind)),
                ("server".to_owned(), endpoint.url()),
                ("host".to_owned(), endpoint.host.clone()),
            ]),
        }
    }

    /// What the plan asks of the hosting cluster; `objects` are any rendering of the chart.
    pub fn wanted(&self, objects: &[Object]) -> Wanted {
        let rows = chart::versions().rows();
        let mut alternatives: BTreeMap<KubeMinor, Vec<String>> = BTreeMap::new();
        let mut unavailable: BTreeMap<KubeMinor, Vec<String>> = BTreeMap::new();
        for row in rows {
            let has_chart = row.charts.contains_key(&chart::Kind::ControlPlane);
            for minor in &row.kubernetes {
                let lines = if has_chart { &mut alternatives } else { &mut unavailable };
                lines.entry(*minor).or_default().push(row.version.to_string());
            }
        }
        let kinds: BTreeSet<(String, String, bool)> = objects
            .iter()
            .filter_map(|object| Kind::known(object.group(), object.kind()).into())
            .map(|kind: Kind| (kind.group.to_string(), kind.plural.to_string(), kind.namespaced))
            .collect();
        let etcd = &self.values.etcd;
        Wanted {
            line: self.chart.line().to_string(),
            supported: self.kubernetes.clone(),
            alternatives,
            unavailable,
            namespace: self.namespace.to_string(),
            name: self.name.to_string(),
            storage_class: etcd.storage.storage_class.clone(),
            claims: (0..etcd.replicas).map(|member| format!("etcd-data-etcd-{member}")).collect(),
            node_port: exposure::wanted_node_port(ExposureType::NodePort, &self.values.exposure)
                .filter(|_| matches!(self.values.exposure.kind, ExposureType::NodePort | ExposureType::Auto)),
            writes: kinds.into_iter().collect(),
            load_balancer: self.values.exposure.kind == ExposureType::LoadBalancer,
            needs: needs::of(objects.iter().map(|object| &object.json)),
            architectures: ARCHITECTURES.map(str::to_owned).to_vec(),
        }
    }
}
