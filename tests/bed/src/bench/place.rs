//! `cargo bed bench place`: how long it takes from an object in the control plane to its copy in a workload cluster, and what one
//! placement costs in writes.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Bed;
use crate::dev::steps::Steps;
use crate::parts::product::DAEMONS;
use crate::run::cargo;
use crate::say::{print, say};

const LEFT: &str = "clusters may still run: `cargo bed status` shows them, `cargo bed down` removes them";
/// The control plane, and the workload cluster.
const CLUSTERS: [&str; 2] = ["plane", "api"];
const TEST: &str = "placing::measured::placements_are_timed_from_the_object_to_its_copy";

/// Groups decided and recorded in a second, at the least.
const COLD_PER_SECOND: f64 = 220.0;
/// 99 of 100 copies are there within so many milliseconds, at 20 objects a second.
const COPY_P99: f64 = 95.0;

/// One run on clusters of its own.
pub(crate) fn run(bed: &Bed, profile: &str) -> Result<()> {
    crate::require_root()?;
    let mut steps = Steps::new(LEFT);
    bed.down(&CLUSTERS)?;
    steps.run("start a control plane's API and a workload cluster's", || bed.up(&CLUSTERS))?;
    let row = steps.run("place", || measure(bed, profile))?;
    bed.down(&CLUSTERS)?;
    print(table(&row));
    steps.summary();
    Ok(())
}

fn measure(bed: &Bed, profile: &str) -> Result<Value> {
    let mut test = cargo(bed.checkout());
    test.args(["test", "--profile", profile, "--package", "fleetctl", "--test", "runtime"]);
    test.args(DAEMONS).args(["--", "--ignored", "--nocapture", "--exact", TEST]);
    let output = test.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("place {").map(|(_, rest)| format!("{{{rest}")));
    let line = line.with_context(|| format!("nothing was measured:\n{text}"))?;
    if !output.status.success() {
        say(format!("the test failed:\n{text}"));
    }
    Ok(serde_json::from_str(&line)?)
}

/// What was measured, beside its targets.
fn table(row: &Value) -> String {
    let float = |value: &Value| value.as_f64().unwrap_or_default();
    let (cold, steady) = (&row["cold"], &row["steady"]);
    let rate = float(&cold["perSecond"]);
    let mut text = format!(
        "\n{} objects at once: decided and recorded in {:.1} s, {rate:.0}/s (target {COLD_PER_SECOND:.0}/s: {:.2}×); all \
         applied in {:.1} s\n",
        cold["objects"],
        float(&cold["recordedSeconds"]),
        rate / COLD_PER_SECOND,
        float(&cold["appliedSeconds"]),
    );
    text += &format!(
        "{} objects, {:.0}/s, from the request to create each:\n",
        steady["objects"],
        float(&steady["perSecond"])
    );
    for (name, what) in
        [("schedule", "its Schedule"), ("copy", "its copy in the workload cluster"), ("label", "its label")]
    {
        let one = &steady[name];
        text += &format!("  {what:34} p50 {:>6.0} ms   p99 {:>6.0} ms", float(&one["p50"]), float(&one["p99"]));
        if name == "copy" {
            text += &format!("   (target {COPY_P99:.0} ms: {:.2}×)", float(&one["p99"]) / COPY_P99);
        }
        text.push('\n');
    }
    let writes = row["writes"].as_object().into_iter().flatten();
    let writes: Vec<String> = writes.map(|(kind, count)| format!("{:.2} {kind}", float(count))).collect();
    text += &format!("writes of the scheduler for one placement: {}\n", writes.join(", "));
    text += &format!(
        "a decision p50 {:.2} ms, p99 {:.2} ms; peak memory of the scheduler {} MiB, of the agent {} MiB; {} cores\n",
        float(&row["decision"]["p50"]),
        float(&row["decision"]["p99"]),
        row["scheduler"]["peak"],
        row["agent"]["peak"],
        row["cores"],
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn the_table_holds_what_was_measured_and_its_targets() {
        let row = json!({
            "cold": {"objects": 400, "recordedSeconds": 4.0, "perSecond": 110.0, "appliedSeconds": 9.5},
            "steady": {"objects": 400, "perSecond": 20.0, "schedule": {"p50": 12.0, "p99": 40.0},
                "copy": {"p50": 50.0, "p99": 190.0}, "label": {"p50": 60.0, "p99": 99.0}},
            "writes": {"schedule": 1.0, "group": 2.5}, "decision": {"p50": 0.1, "p99": 0.5},
            "scheduler": {"peak": 30}, "agent": {"peak": 20}, "cores": 2,
        });
        let text = super::table(&row);
        for part in ["110/s (target 220/s: 0.50×)", "p99    190 ms   (target 95 ms: 2.00×)", "1.00 schedule", "30 MiB"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
