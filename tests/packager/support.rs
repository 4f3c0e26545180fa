//! Every set of objects that the charts can render: each line with each preset and fixture.

use std::collections::BTreeMap;

use fleetctl::api::version::KubeMinor;
use fleetctl::chart::patch::Patches;
use fleetctl::chart::versions::select::{Request, Selection, select_row};
use fleetctl::chart::{
    Chart, Kind, Object, RenderInput, Rendered, Row, ValuesBuilder, embedded_presets, embedded_versions, output,
};
use fleetctl::control_plane::endpoint::exposure::unknown_endpoint;
use fleetctl::control_plane::endpoint::exposure::{Endpoint, endpoint_from_values};
use fleetctl::control_plane::plan::Plan;
use fleetctl::control_plane::values::{ControlPlaneValues, ExposureType};
use fleetctl::install::release_spec::load_chart;
use fleetctl::pki::placeholder_files;
use fleetctl::workload_cluster::values::AgentValues;
use serde_json::{Value, json};

const FIXTURES: [(Kind, &str, &str); 8] = [
    (Kind::ControlPlane, "full", include_str!("fixtures/control-plane-full.yaml")),
    (Kind::ControlPlane, "cloud", include_str!("fixtures/control-plane-cloud.yaml")),
    (Kind::ControlPlane, "spread", include_str!("fixtures/control-plane-spread.yaml")),
    (Kind::ControlPlane, "keys", include_str!("fixtures/control-plane-keys.yaml")),
    (Kind::ControlPlane, "keys-addressed", include_str!("fixtures/control-plane-keys-addressed.yaml")),
    (Kind::ControlPlane, "existing-keys", include_str!("fixtures/control-plane-existing-keys.yaml")),
    (Kind::Agent, "full", include_str!("fixtures/agent-full.yaml")),
    (Kind::Agent, "policy", include_str!("fixtures/agent-policy.yaml")),
];

/// What one chart renders with one file of values.
pub(crate) struct Set {
    pub(crate) row: &'static Row,
    /// `control-plane v0.6 ha`.
    pub(crate) name: String,
    pub(crate) rendered: Rendered,
}

impl Set {
    /// The Kubernetes minors that the objects are for.
    pub(crate) fn minors(&self) -> Vec<u32> {
        self.row.kubernetes.iter().map(|minor| minor.minor).collect()
    }

    /// The minor of the control plane's own API server, which gets what is in `bootstrap`.
    pub(crate) fn own_minor(&self) -> u32 {
        self.row.images["apiserver"].tag.parse::<KubeMinor>().unwrap().minor
    }
}

/// All of them, newest line first.
pub(crate) fn sets() -> Vec<Set> {
    let mut sets = Vec::new();
    for row in embedded_versions().rows() {
        for kind in [Kind::ControlPlane, Kind::Agent] {
            let files = embedded_presets().map(|preset| (preset.name, preset.text));
            let fixtures = FIXTURES.iter().filter(|(of, ..)| *of == kind).map(|(_, name, text)| (*name, *text));
            for (name, text) in [("defaults", "")].into_iter().chain(files).chain(fixtures) {
                // A preset is not for every chart, nor a newer line's values for an older one.
                if let Some(rendered) = render(kind, row, text) {
                    sets.push(Set { row, name: format!("{kind} {} {name}", row.version), rendered });
                }
            }
        }
    }
    sets
}

fn render(kind: Kind, row: &'static Row, text: &str) -> Option<Rendered> {
    let version = row.version.to_string();
    let request = Request { version: Some(&version), image_tag: None, server: None };
    let selection = select_row(embedded_versions(), request).unwrap();
    match kind {
        Kind::ControlPlane => control_plane(&selection, text),
        Kind::Agent => agent(&selection, text),
    }
}

fn with(chart: &Chart, text: &str) -> ValuesBuilder {
    chart.values_builder().file("values.yaml", text.as_bytes())
}

fn control_plane(selection: &Selection<'_>, text: &str) -> Option<Rendered> {
    let chart = load_chart(Kind::ControlPlane, selection).unwrap();
    with(&chart, text).build_checked(ControlPlaneValues::schema()).ok()?;
    let builder = with(&chart, text);
    let plan = Plan::new("demo".parse().unwrap(), "fleet".parse().unwrap(), selection, chart, builder).unwrap();
    let wanted = &plan.values.exposure;
    let kind = if wanted.kind == ExposureType::Auto { ExposureType::NodePort } else { wanted.kind };
    let endpoint = endpoint_from_values(wanted).unwrap_or_else(|_| Endpoint {
        node_port: wanted.node_port.and_then(|port| u16::try_from(port).ok()),
        ..unknown_endpoint(kind)
    });
    Some(plan.render_control_plane(&endpoint, &placeholder_files()).unwrap_or_else(|error| panic!("{error}")))
}

/// The objects of the newest control plane with these texts in variables and annotations of the API server, by values and by
/// a patch.
pub(crate) fn with_hostile_texts(texts: &[String]) -> Vec<Value> {
    let selection = select_row(embedded_versions(), Request { version: Some("v1.1"), ..Request::default() }).unwrap();
    let chart = load_chart(Kind::ControlPlane, &selection).unwrap();
    let numbered = |prefix: &str| -> serde_json::Map<String, Value> {
        texts.iter().enumerate().map(|(number, text)| (format!("example.com/{prefix}{number}"), json!(text))).collect()
    };
    let env: Vec<Value> =
        texts.iter().enumerate().map(|(number, text)| json!({"name": format!("E{number}"), "value": text})).collect();
    let values = json!({"apiserver": {"extraEnv": env, "podAnnotations": numbered("n")}});
    let patch = json!({"kind": "Deployment", "metadata": {"name": "apiserver"},
        "spec": {"template": {"metadata": {"annotations": numbered("p")}}}});
    let patches =
        Patches::read_patch_files([("p.yaml".to_owned(), Ok(output::object_yaml(&patch).into_bytes()))]).unwrap();
    let builder = with(&chart, &output::object_yaml(&values));
    let plan = Plan::new("demo".parse().unwrap(), "fleet".parse().unwrap(), &selection, chart, builder).unwrap();
    let rendered = plan
        .with_patches(patches)
        .render_control_plane(&unknown_endpoint(ExposureType::NodePort), &placeholder_files())
        .unwrap();
    rendered.objects.into_iter().map(|object| object.json).collect()
}

fn agent(selection: &Selection<'_>, text: &str) -> Option<Rendered> {
    let chart =
        Chart::load_embedded(Kind::Agent, selection.row.charts[&Kind::Agent]).unwrap().with_row(selection.row.clone());
    let tree = with(&chart, text).build_checked(AgentValues::schema()).ok()?;
    let values: AgentValues = tree.deserialize().unwrap();
    let input = RenderInput {
        values: serde_json::to_value(values).unwrap(),
        release: json!({
            "name": "member-1", "namespace": "fleet", "line": chart.line().to_string(), "managedBy": "fleetctl",
            "version": selection.version.to_string(),
        }),
        facts: json!({ "admissionPolicies": selection.row.kubernetes.iter().all(|minor| minor.minor >= 30) }),
        pki: BTreeMap::new(),
    };
    Some(chart.render(&input).unwrap_or_else(|error| panic!("{error}")))
}

/// The objects as JSON.
pub(crate) fn values(objects: &[Object]) -> Vec<&Value> {
    objects.iter().map(|object| &object.json).collect()
}
