//! The policies of `docs/placement.md`, applied as they stand there.

use std::io::Write as _;
use std::process::Stdio;

use super::*;

/// The blocks of YAML of a page.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("```yaml\n").skip(1);
    parts.filter_map(|part| Some(part.split_once("```")?.0.to_owned())).collect()
}

#[tokio::test]
async fn the_policies_of_the_documentation_are_valid() {
    let fleet = Fleet::new().await;
    let page = fs_err::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/placement.md")).unwrap();
    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    let blocks = blocks(&page);
    assert!(blocks.len() >= 4, "{} examples", blocks.len());
    for text in blocks {
        let name = serde_saphyr::from_str::<Value>(&text).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        let mut apply = Command::new(fleet.stage.kubectl());
        apply.args(["apply", "--filename", "-"]).env("KUBECONFIG", &fleet.stage.hub.kubeconfig);
        let mut apply = apply.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        apply.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let answer = apply.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(answer.status.success() && said.is_empty(), "{said}\n{text}");
        wait(&format!("policy {name} is valid"), async || {
            let status = policies.get(&name).await.unwrap().status.unwrap_or_default();
            find(&status.conditions, "Valid").is_some_and(Condition::is_true)
        })
        .await;
        // No field of it is one that the definition does not know.
        let kept = serde_json::to_value(&policies.get(&name).await.unwrap().spec).unwrap();
        let written = serde_saphyr::from_str::<Value>(&text).unwrap()["spec"].take();
        assert!(is_within(&written, &kept), "{written} is not in {kept}");
        policies.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    fleet.end(&[]).await;
}

/// Whether everything in `part` is in `whole`.
fn is_within(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(key, value)| {
            // Empty selectors are left out when they are written again.
            let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty);
            whole.get(key).map_or(is_empty, |found| is_within(value, found))
        }),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_within(part, whole))
        }
        (part, whole) => part == whole,
    }
}
