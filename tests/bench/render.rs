//! Renders the chart of the benchmark as `fleetctl template` renders its own: values and their schema, templates, YAML.
//!
//! `render FOLDER SCHEMA NAME NAMESPACE [--set …]`

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use fleetctl::chart::{Chart, Files, Kind, RenderInput, SetKind, output};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, schema, name, namespace, sets @ ..] = args.as_slice() else {
        return Err("a folder, a schema, a name and a namespace are needed".into());
    };
    let files = Files::from_dir(Path::new(folder))?;
    let chart = Chart::from_files(&files, Kind::Agent, "v0.6".parse()?)?;
    let sets = sets.iter().filter(|argument| *argument != "--set");
    let builder = sets.fold(chart.values_builder(), |builder, set| builder.set(SetKind::Value, set));
    let schema = serde_json::from_str(&std::fs::read_to_string(schema)?)?;
    let input = RenderInput {
        values: builder.build(|| schema)?.to_json(),
        release: json!({"name": name, "namespace": namespace}),
        facts: json!({}),
        pki: BTreeMap::new(),
    };
    let documents = chart.render_each(&input, |object| output::yaml_stream([&object.json]))?;
    std::io::stdout().lock().write_all(documents.concat().as_bytes())?;
    Ok(())
}
