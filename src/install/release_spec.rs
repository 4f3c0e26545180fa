//! The chart of a chosen version with checked values, for one name in one namespace; from there to objects.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::recorded_values::PATCHES;
use crate::api::kinds::Kind;
use crate::api::names::NamespaceName;
use crate::api::util::digest::short_digest;
use crate::api::util::text::visible_line;
use crate::api::version::{KubeMinor, ServiceLine, ServiceVersion};
use crate::apply::Planned;
use crate::chart::inspect::explain::{DecidedBy, ExplainError, Explanation, explain_rendered_field};
use crate::chart::patch::Patches;
use crate::chart::versions::select::{Request, Selection, select_row};
use crate::chart::{
    self, Chart, ChartError, Diagnostic, Diagnostics, Object, RenderInput, Rendered, ValuesBuilder, ValuesTree,
};
use crate::check::support::Support;
use crate::inventory::{KEEP_ANNOTATION, Owner, Release};
use crate::k8s::{apply_merge_patch, merge_diff};
use crate::pki;

/// The most that recorded values take, in bytes.
pub const LARGEST_VALUES: usize = 64 * 1024;

/// There is no chart for what was chosen.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The line is known, but this program has no chart of it.
    #[error("service version {line} cannot be installed by this release: it has no {kind} chart of that line")]
    NoChart {
        /// The kind of chart.
        kind: chart::Kind,
        /// The chosen line.
        line: String,
        /// Lines that can be installed, newest first.
        installable: Vec<String>,
    },
    /// The chart itself is broken.
    #[error("the {kind} chart of service version {line} cannot be loaded")]
    Chart {
        /// The kind of chart.
        kind: chart::Kind,
        /// The chosen line.
        line: String,
        /// The problem with it.
        #[source]
        source: ChartError,
    },
}

/// The chart of a chosen version.
///
/// # Errors
/// [`PackageError`] when this program has none of that line, or a broken one.
pub fn load_chart(kind: chart::Kind, selection: &Selection<'_>) -> Result<Chart, PackageError> {
    let line = selection.row.version.to_string();
    let Some(chart) = selection.row.charts.get(&kind) else {
        return Err(PackageError::NoChart { kind, line, installable: list_installable_lines(kind) });
    };
    Chart::load_embedded(kind, *chart)
        .map(|chart| chart.with_row(selection.row.clone()))
        .map_err(|source| PackageError::Chart { kind, line, source })
}

/// The lines that this program can install, newest first.
fn list_installable_lines(kind: chart::Kind) -> Vec<String> {
    let rows = chart::embedded_versions().rows().iter();
    rows.filter(|row| row.charts.contains_key(&kind)).map(|row| row.version.to_string()).collect()
}

/// A chart with the name, the namespace and the values that it is installed with.
#[derive(Debug)]
pub struct Package {
    /// Name of what is installed; also its name as an owner of objects.
    pub name: String,
    /// Namespace of the components.
    pub namespace: NamespaceName,
    /// The service version.
    pub version: ServiceVersion,
    kubernetes: Vec<KubeMinor>,
    chart: Chart,
    tree: ValuesTree,
    patches: Patches,
}

impl Package {
    /// A package of the chosen version with values that were checked against the schema of its kind.
    pub fn new(
        name: &str,
        namespace: NamespaceName,
        selection: &Selection<'_>,
        chart: Chart,
        tree: ValuesTree,
    ) -> Self {
        Self {
            name: name.to_owned(),
            namespace,
            version: selection.version.clone(),
            kubernetes: selection.row.kubernetes.clone(),
            chart,
            tree,
            patches: Patches::default(),
        }
    }

    /// The same with patches of the rendered objects.
    #[must_use]
    pub fn with_patches(self, patches: Patches) -> Self {
        Self { patches, ..self }
    }

    /// The patches of the rendered objects.
    pub const fn patches(&self) -> &Patches {
        &self.patches
    }

    /// Returns the warnings about values that are valid.
    pub fn value_warnings(&self) -> &[Diagnostic] {
        self.tree.warnings()
    }

    /// The service line.
    pub fn line(&self) -> ServiceLine {
        self.chart.line()
    }

    /// The Kubernetes minors that the row of the version supports.
    pub fn kubernetes_minors(&self) -> &[KubeMinor] {
        &self.kubernetes
    }

    /// Returns whether the row of the version supports a Kubernetes minor.
    pub fn is_minor_supported(&self, minor: KubeMinor) -> bool {
        self.kubernetes.contains(&minor)
    }

    /// The Kubernetes minor of the API server that the version brings, where it brings one.
    pub fn control_plane_api_minor(&self) -> Option<KubeMinor> {
        self.chart.version_row()?.control_plane_minor()
    }

    /// Owner of the objects.
    pub fn owner(&self) -> Owner {
        Owner::new(self.chart.kind().as_str(), &self.name, self.namespace.as_str())
    }

    /// Builds the input that the templates see.
    fn build_render_input(&self, values: &impl Serialize, facts: Value, keys: &pki::Files) -> RenderInput {
        RenderInput {
            values: serde_json::to_value(values).unwrap_or(Value::Null),
            release: json!({
                "name": self.name,
                "namespace": self.namespace.as_str(),
                "version": self.version.to_string(),
                "line": self.chart.line().to_string(),
                "managedBy": crate::k8s::MANAGER,
            }),
            facts,
            pki: keys.expose_all().map(|(name, text)| (name.to_owned(), text.to_owned())).collect::<BTreeMap<_, _>>(),
        }
    }

    /// Explains the origin of a field of an object, such as `deployment/fleet-scheduler#spec.replicas`.
    ///
    /// # Errors
    /// A field that is not there, or values that the templates cannot be rendered with.
    pub fn explain_field(
        &self,
        values: &impl Serialize,
        facts: Value,
        keys: &pki::Files,
        decided_by: &[DecidedBy],
        field: &str,
    ) -> Result<Vec<Explanation>, ExplainError> {
        let explained = explain_rendered_field(
            &self.chart,
            &self.build_render_input(values, facts.clone(), keys),
            &self.tree,
            decided_by,
            field,
        );
        if self.patches.is_empty() {
            return explained;
        }
        self.patches.explain_patches(explained, &self.render_unpatched(values, facts, keys)?.objects, field)
    }

    /// Renders the chart and applies the patches. The same inputs give the same objects.
    ///
    /// # Errors
    /// Values that the templates cannot be rendered with, and patches that cannot be applied, each at its place.
    pub fn render_chart(
        &self,
        values: &impl Serialize,
        facts: Value,
        keys: &pki::Files,
    ) -> Result<Rendered, Diagnostics> {
        let mut rendered = self.render_unpatched(values, facts, keys)?;
        self.patches.apply_to_objects(&mut rendered.objects)?;
        rendered.objects.iter_mut().for_each(name_by_digest);
        Ok(rendered)
    }

    fn render_unpatched(
        &self,
        values: &impl Serialize,
        facts: Value,
        keys: &pki::Files,
    ) -> Result<Rendered, Diagnostics> {
        let mut rendered = self.chart.render(&self.build_render_input(values, facts, keys))?;
        let owner = self.owner();
        for object in &mut rendered.objects {
            owner.set_owner_labels(&mut object.json);
        }
        Ok(rendered)
    }

    /// The same objects as YAML documents; they are written while others are still rendered. `adjust` may change
    /// each before it is written.
    ///
    /// # Errors
    /// Those of [`Self::render_chart`].
    pub fn render_manifests(
        &self,
        values: &impl Serialize,
        facts: Value,
        keys: &pki::Files,
        adjust: fn(&mut Object),
    ) -> Result<Vec<String>, Diagnostics> {
        if !self.patches.is_empty() {
            let mut objects = self.render_chart(values, facts, keys)?.objects;
            objects.iter_mut().for_each(adjust);
            return Ok(objects.iter().map(|object| chart::output::yaml_stream([&object.json])).collect());
        }
        let owner = self.owner();
        self.chart.render_each(&self.build_render_input(values, facts, keys), |mut object| {
            owner.set_owner_labels(&mut object.json);
            name_by_digest(&mut object);
            adjust(&mut object);
            chart::output::yaml_stream([&object.json])
        })
    }

    /// Builds the part of the record that describes this install.
    pub fn build_release(&self, mut facts: BTreeMap<String, String>) -> Release {
        facts.extend(self.patches.patch_summary().map(|summary| (PATCHES.to_owned(), summary)));
        Release {
            chart: format!("{}/{}", self.chart.kind(), self.chart.line()),
            version: self.version.to_string(),
            values_digest: self.values_digest(),
            values: Some(self.given_values()).filter(|given| given.to_string().len() <= LARGEST_VALUES),
            facts,
        }
    }

    /// The digest of the merged values and of the patches.
    pub fn values_digest(&self) -> String {
        self.patches.digest_with(&self.tree.digest_values())
    }

    /// The user's values as the record keeps them: an RFC 7396 patch of the chart's, without secrets, name and version.
    pub fn given_values(&self) -> Value {
        // What a `null` and a mapping over it have deleted; none where the chart has no defaults that could be.
        let defaults = self.chart_default_values();
        let mut given = if defaults.is_null() { json!({}) } else { merge_diff(&defaults, &self.tree.to_json()) };
        for path in self.tree.leaf_paths().iter().filter(|path| self.tree.is_secret(path)) {
            remove_at(&mut given, path);
        }
        unite_patches_over(&mut given, self.tree.user_values());
        for chosen in ["name", "version"] {
            remove_at(&mut given, &[chosen.to_owned()]);
        }
        given
    }

    /// The values of the chart alone; `null` where they are none.
    pub(super) fn chart_default_values(&self) -> Value {
        self.chart.values_of(&self.version).build(|| Value::Null).map_or(Value::Null, |defaults| defaults.to_json())
    }

    /// The size of the user's values in a record, in bytes, where that is more than a record takes.
    pub fn too_large(&self) -> Option<usize> {
        Some(self.given_values().to_string().len()).filter(|size| *size > LARGEST_VALUES)
    }

    /// The checked values.
    pub const fn tree(&self) -> &ValuesTree {
        &self.tree
    }

    /// The chart.
    pub(super) const fn chart(&self) -> &Chart {
        &self.chart
    }

    /// Returns the Kubernetes versions that the line supports, and the lines that support others.
    pub fn support(&self) -> Support {
        let mut support =
            Support { line: self.chart.line().to_string(), supported: self.kubernetes.clone(), ..Support::default() };
        for row in chart::embedded_versions().rows() {
            let has_chart = row.charts.contains_key(&self.chart.kind());
            for minor in &row.kubernetes {
                let lines = if has_chart { &mut support.alternatives } else { &mut support.unavailable };
                lines.entry(*minor).or_default().push(row.version.to_string());
            }
        }
        support
    }
}

/// The plan of a recorded release, which `plan` makes of its version and its values with `secrets` among them.
///
/// # Errors
/// A clause that says why there is none: its values are not recorded, or this program has no such chart.
pub fn plan_recorded_release<P>(
    kind: chart::Kind,
    release: &Release,
    secrets: Value,
    plan: impl FnOnce(&Selection<'_>, Chart, ValuesBuilder) -> Result<P, Diagnostics>,
) -> Result<P, String> {
    let mut values = release.values.clone().ok_or("its values are not recorded")?;
    apply_merge_patch(&mut values, &secrets);
    let request = Request { version: Some(&release.version), ..Request::default() };
    let selection = select_row(chart::embedded_versions(), request)
        .map_err(|error| visible_line(&error.to_string()).into_owned())?;
    let chart = load_chart(kind, &selection).map_err(|error| error.to_string())?;
    if release.chart != format!("{kind}/{}", chart.line()) {
        return Err(format!(
            "its version {} does not belong to its chart {}",
            selection.version,
            visible_line(&release.chart)
        ));
    }
    let values = chart.values_of(&selection.version).any_image().with_recorded(&values);
    plan(&selection, chart, values).map_err(|problems| visible_line(&problems.to_string()).into_owned())
}

/// Lays one patch over another; where they differ, `over` counts.
fn unite_patches_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                unite_patches_over(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

/// Adds a digest of a Job's specification to its name: the template of a Job is immutable, so another one is another Job.
fn name_by_digest(object: &mut Object) {
    if object.group() == "batch" && object.kind() == "Job" {
        let digest = short_digest(object.json["spec"].to_string().as_bytes());
        object.json["metadata"]["name"] = format!("{}-{digest}", object.name()).into();
    }
}

/// Removes the value at a path of keys, where there is one.
pub(super) fn remove_at(value: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else { return };
    let place = above.iter().try_fold(value, |place, key| place.get_mut(key));
    if let Some(place) = place.and_then(Value::as_object_mut) {
        place.remove(last);
    }
}

/// The objects as the engine takes them.
pub fn to_planned_objects<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Vec<Planned> {
    objects.into_iter().map(to_planned_object).collect()
}

fn to_planned_object(object: &Object) -> Planned {
    let stage = u32::try_from(object.stage).unwrap_or(u32::MAX);
    let keep = object.json.pointer("/metadata/labels").and_then(|map| map.get(KEEP_ANNOTATION)).is_some();
    if keep { Planned::new_retained(stage, object.json.clone()) } else { Planned::new(stage, object.json.clone()) }
}

/// Returns the kinds that must be writable so that the objects can be written: API group, resource, and whether it
/// is namespaced.
pub fn list_needed_writes(objects: &[Object]) -> Vec<(String, String, bool)> {
    let kinds: BTreeSet<(String, String, bool)> = objects
        .iter()
        .map(|object| Kind::from_table(object.group(), object.kind()))
        .map(|kind| (kind.group.to_string(), kind.plural.to_string(), kind.namespaced))
        .collect();
    kinds.into_iter().collect()
}
