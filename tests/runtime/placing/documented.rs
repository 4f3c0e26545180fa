//! The policies and the values of `docs/placement.md`, as they stand there.

use std::io::Write as _;
use std::process::Stdio;

use super::*;

/// The blocks of YAML of a page.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("```yaml\n").skip(1);
    parts.filter_map(|part| Some(part.split_once("```")?.0.to_owned())).collect()
}

/// The spec of a policy of the page, for the objects of another team.
pub(super) fn documented_policy(name: &str, team: &str) -> Value {
    let page = fs_err::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/placement.md")).unwrap();
    let all = blocks(&page).into_iter().filter(|text| chart_of(text).is_none());
    let mut all = all.map(|text| serde_saphyr::from_str::<Value>(&text).unwrap());
    let mut policy = all.find(|policy| policy["metadata"]["name"] == name).expect("the page has it");
    policy["spec"]["namespaceSelector"]["matchLabels"]["team"] = json!(team);
    policy["spec"].take()
}

/// Whether a block is of values, and of which chart.
fn chart_of(block: &str) -> Option<&'static str> {
    let charts = [("# values of the control plane\n", "control-plane"), ("# values of each agent\n", "agent")];
    charts.into_iter().find(|(first, _)| block.starts_with(first)).map(|(_, chart)| chart)
}

#[test]
fn the_values_of_the_documentation_are_valid() {
    let page = fs_err::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/placement.md")).unwrap();
    let values: Vec<_> = blocks(&page).into_iter().filter_map(|text| Some((chart_of(&text)?, text))).collect();
    assert_eq!(values.iter().map(|(chart, _)| *chart).collect::<Vec<_>>(), ["control-plane", "agent"]);
    for (chart, text) in values {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut lint = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        let answer = lint.args(["lint", chart, "--all-versions", "--values"]).arg(file.path()).output().unwrap();
        assert!(answer.status.success(), "{text}{}", String::from_utf8_lossy(&answer.stderr));
    }
}

#[tokio::test]
async fn the_policies_of_the_documentation_are_valid() {
    let fleet = Fleet::new().await;
    let page = fs_err::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/placement.md")).unwrap();
    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    let blocks: Vec<String> = blocks(&page).into_iter().filter(|text| chart_of(text).is_none()).collect();
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
            find_condition(&status.conditions, "Valid").is_some_and(Condition::is_true)
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
