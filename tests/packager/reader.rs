//! Whatever is written is read by Kubernetes' own reader, which follows YAML 1.1, as it was meant.

use std::io::Write as _;
use std::process::{Command, Stdio};

use bed::Bed;
use fleetctl::chart::output;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::hostile::hostile;
use crate::support;

/// How many strings are tried.
const STRINGS: usize = 20_000;

/// The documents as Kubernetes reads them.
fn read(documents: &[String]) -> Vec<Value> {
    let program = Bed::here().unwrap().yaml_reader().unwrap();
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = documents.iter().map(|text| json!(text).to_string() + "\n").collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn hostile_text_reads_back_as_it_was_written() {
    let mut runner = TestRunner::deterministic();
    let values: Vec<Value> = (0..STRINGS)
        .map(|_| {
            let text = hostile().new_tree(&mut runner).unwrap().current();
            json!({"kind": "x", "data": {"value": text, format!("k{text}"): [text, {"a": text}]}})
        })
        .collect();
    let documents: Vec<String> = values.iter().map(output::object_yaml).collect();
    let found = read(&documents);
    assert_eq!(found.len(), values.len());
    for ((found, value), document) in found.iter().zip(&values).zip(&documents) {
        assert_eq!(found, value, "{document}");
    }
}

#[test]
fn every_rendered_object_reads_back_as_it_was_rendered() {
    let sets = support::sets();
    let objects: Vec<&Value> = sets.iter().flat_map(|set| support::values(&set.rendered.objects)).collect();
    let documents: Vec<String> = objects.iter().copied().map(output::object_yaml).collect();
    assert!(documents.len() > 500);
    for ((found, object), document) in read(&documents).iter().zip(&objects).zip(&documents) {
        assert_eq!(&found, object, "{document}");
        let newer: Value = serde_saphyr::from_str(document).unwrap();
        assert_eq!(&&newer, object, "a reader of YAML 1.2 agrees: {document}");
    }
}

#[test]
fn hostile_variables_annotations_and_patches_read_back_as_they_were_given() {
    let mut runner = TestRunner::deterministic();
    let texts: Vec<String> = (0..2_000).map(|_| hostile().new_tree(&mut runner).unwrap().current()).collect();
    let objects = support::with_hostile_texts(&texts);
    let documents: Vec<String> = objects.iter().map(output::object_yaml).collect();
    for ((found, object), document) in read(&documents).iter().zip(&objects).zip(&documents) {
        assert_eq!(found, object, "{document}");
    }
    let is_it = |object: &&Value| object["metadata"]["name"] == "apiserver" && object["kind"] == "Deployment";
    let template = &objects.iter().find(is_it).unwrap()["spec"]["template"];
    for (number, text) in texts.iter().enumerate() {
        assert_eq!(template["spec"]["containers"][0]["env"][number]["value"], *text);
        assert_eq!(template["metadata"]["annotations"][format!("example.com/n{number}")], *text);
        assert_eq!(template["metadata"]["annotations"][format!("example.com/p{number}")], *text, "by a patch");
    }
}

#[test]
fn a_scalar_that_is_written_wrongly_is_noticed() {
    let found = read(&["a: no\n".to_owned(), "a: [\n".to_owned()]);
    assert_eq!(found[0], json!({"a": false}), "the reader is one of YAML 1.1");
    assert!(found[1].as_str().is_some_and(|text| text.starts_with("error: ")), "{found:?}");
}
