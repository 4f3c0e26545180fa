//! What is fuzzed: each takes any bytes and panics if something does not hold.

#![allow(dead_code, reason = "each program uses one of them")]

use std::collections::BTreeMap;
use std::sync::OnceLock;

use fleetctl::chart::{Chart, Kind, RenderInput, SetKind, ValuesBuilder, output, versions};
use fleetctl::workload_cluster::values::AgentValues;
use serde_json::{Value, json};

fn agent() -> &'static Chart {
    static CHART: OnceLock<Chart> = OnceLock::new();
    let newest = versions().newest().version;
    CHART.get_or_init(|| Chart::load(Kind::Agent, newest).expect("the newest line has an agent"))
}

/// Bytes as a file of values: whatever they are, either an error that can be shown, or objects of the same kinds as
/// without them, which read back as they were written.
pub(crate) fn values(data: &[u8]) {
    let chart = agent();
    let tree = match chart.values().file("fuzz.yaml", data).build(AgentValues::schema) {
        Ok(tree) => tree,
        Err(problems) => {
            assert!(problems.has_errors() && !problems.render(true).is_empty());
            return;
        }
    };
    let typed: AgentValues = tree.deserialize().expect("what the schema takes fits the type");
    let input = RenderInput {
        values: serde_json::to_value(typed).expect("values are JSON"),
        release: json!({"name": "x", "namespace": "fleet", "line": "v1.1", "managedBy": "fleetctl", "version": "v1.1.0"}),
        facts: json!({}),
        pki: BTreeMap::new(),
    };
    let rendered = chart.render(&input).expect("valid values render");
    assert!((5..=12).contains(&rendered.objects.len()), "{} objects", rendered.objects.len());
    for object in &rendered.objects {
        // One Role is about the autoscaler, which lives in kube-system.
        let expected = object.namespace().is_none_or(|namespace| ["fleet", "kube-system"].contains(&namespace));
        assert!(expected, "{}", object.id());
        let text = output::object_yaml(&object.json);
        let back: Value = serde_saphyr::from_str(&text).expect("what is written can be read");
        assert_eq!(back, object.json, "{text}");
    }
}

/// The first byte chooses the flag, the rest is its argument: an error that can be shown, or values.
pub(crate) fn set(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(argument) = std::str::from_utf8(rest) else { return };
    let kind = [SetKind::Value, SetKind::Text, SetKind::Json, SetKind::File][usize::from(first % 4)];
    #[allow(clippy::result_large_err)] // As the builder wants it.
    let read = |path: &str| Ok(path.as_bytes().to_vec());
    let builder =
        || ValuesBuilder::new(None).file("below.yaml", b"a: {b: [1, {c: 2}]}\n").set_with(kind, argument, &read);
    match builder().peek() {
        Ok(values) => assert_eq!(builder().peek().expect("the same again"), values),
        Err(problems) => assert!(!problems.render(true).is_empty()),
    }
}
