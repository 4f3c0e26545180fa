//! Promises of the control-plane charts, seen in the objects that they render: for every line and every preset.

mod audit;
mod covered;
mod golden;
mod pods;
mod recorded_use;
mod recorded_values;
mod security;
mod shape;

use crate::chart::embedded_versions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::values::{ControlPlaneValues, PkiRenewal, PkiSource};
use crate::chart::values::proxy_ports;
use crate::chart::{Chart, Kind, Object, RenderInput, Rendered, SetKind, embedded_presets};
use crate::pki::{Endpoint, Files, Lifetimes, Subject, ensure_key_set, placeholder_files};

/// The chart of every line that has one, newest first.
pub(super) fn charts() -> &'static [Chart] {
    static CHARTS: OnceLock<Vec<Chart>> = OnceLock::new();
    CHARTS.get_or_init(|| {
        let lines = embedded_versions().rows().iter().filter(|row| row.charts.contains_key(&Kind::ControlPlane));
        lines.map(|row| Chart::load_embedded(Kind::ControlPlane, row.version).unwrap()).collect()
    })
}

/// The presets that a line can be installed with, and none. Replicas came with v0.8.
pub(super) fn preset_names(chart: &Chart) -> Vec<Option<&'static str>> {
    let has_replicas = chart.line() >= "v0.8".parse().unwrap();
    let names = embedded_presets().map(|preset| preset.name).filter(|name| !name.starts_with("agent"));
    std::iter::once(None).chain(names.filter(|name| has_replicas || *name != "ha").map(Some)).collect()
}

pub(super) fn values(chart: &Chart, preset: Option<&str>, sets: &[&str]) -> ControlPlaneValues {
    let mut builder = chart.values_builder();
    if let Some(preset) = preset.and_then(|name| embedded_presets().find(|preset| preset.name == name)) {
        builder = builder.file(preset.name, preset.text.as_bytes());
    }
    for set in sets {
        builder = builder.set(SetKind::Value, set);
    }
    let tree = builder.build_checked(ControlPlaneValues::schema()).unwrap_or_else(|error| panic!("{error}"));
    tree.deserialize::<ControlPlaneValues>().unwrap().with_derived_values()
}

pub(super) fn input(chart: &Chart, values: &ControlPlaneValues, pki: &Files) -> RenderInput {
    let is_awaited = values.pki.source == PkiSource::InCluster && values.exposure.host.is_none();
    RenderInput {
        values: serde_json::to_value(values).unwrap(),
        release: json!({
            "name": "demo", "namespace": "fleet", "line": chart.line().to_string(), "managedBy": "fleetctl",
            "version": chart.version_row().unwrap().default.to_string(),
        }),
        facts: json!({"server": (!is_awaited).then_some("https://10.0.0.1:32222"), "exposure": {
            "type": "NodePort", "host": "10.0.0.1", "port": 32222, "nodePort": values.exposure.node_port, "sans": values.exposure.extra_sans,
        }, "proxyPorts": proxy_ports(&values.proxy),
        "renewal": values.pki.source != PkiSource::Existing && values.pki.renewal == PkiRenewal::CronJob, "sans": values.exposure.extra_sans}),
        pki: pki.expose_all().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
    }
}

pub(super) fn render_with(chart: &Chart, preset: Option<&str>, sets: &[&str], pki: &Files) -> Rendered {
    chart.render(&input(chart, &values(chart, preset, sets), pki)).unwrap_or_else(|error| panic!("{error}"))
}

/// The chart with a preset and placeholders for keys; each is rendered once for all tests.
pub(super) fn render(chart: &Chart, preset: Option<&'static str>) -> Arc<Rendered> {
    type Cache = BTreeMap<(String, Option<&'static str>), Arc<Rendered>>;
    static CACHE: Mutex<Cache> = Mutex::new(BTreeMap::new());
    let mut cache = CACHE.lock().unwrap();
    let entry = cache.entry((chart.line().to_string(), preset));
    entry.or_insert_with(|| Arc::new(render_with(chart, preset, &[], &placeholder_files()))).clone()
}

pub(super) fn pki_subject() -> Subject {
    Subject {
        control_plane: "demo".to_owned(),
        namespace: "fleet".to_owned(),
        public: Endpoint { host: "10.0.0.1".parse().unwrap(), port: 32222 },
        internal: Subject::internal_endpoint("fleet"),
        extra_sans: Vec::new(),
    }
}

pub(super) fn real_pki() -> Files {
    let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    ensure_key_set(&Files::new(), &pki_subject(), now, &Lifetimes::default()).unwrap().files
}

/// Runs a check on every line with every preset; the text says which one it was.
pub(super) fn everywhere(check: impl Fn(&str, &Rendered)) {
    for chart in charts() {
        for preset in preset_names(chart) {
            check(&format!("{} {}", chart.line(), preset.unwrap_or("defaults")), &render(chart, preset));
        }
    }
}

/// Every pod template, with the object that holds it.
pub(super) fn pods(rendered: &Rendered) -> Vec<(&Object, &Value)> {
    rendered.objects.iter().filter_map(|object| Some((object, object.json.pointer("/spec/template/spec")?))).collect()
}

pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().filter_map(|key| pod.get(key)?.as_array()).flatten()
}

pub(super) fn secret_data(object: &Object) -> BTreeMap<String, String> {
    let data = object.json.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let texts = data.into_iter().map(|(key, value)| {
        let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
        (key, String::from_utf8(bytes).unwrap())
    });
    texts.collect()
}

pub(super) fn secret<'r>(rendered: &'r Rendered, name: &str) -> &'r Object {
    rendered.objects.iter().find(|object| object.kind() == "Secret" && object.name() == name).unwrap()
}
