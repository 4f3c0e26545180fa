//! `cargo bed bench crowd`: how many agents one control plane carries, and what each component pays for it.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Bed;
use crate::dev::steps::Steps;
use crate::parts::product::DAEMONS;
use crate::run::cargo;
use crate::say::{print, say};

const LEFT: &str = "a cluster may still run: `cargo bed status` shows it, `cargo bed down` removes it";
/// The API that plays the control plane's.
const HUB: &str = "plane";
const TEST: &str = "scale::a_crowd_of_agents_stays_ready";

/// One run for each size, each on a control plane of its own.
pub(crate) fn run(bed: &Bed, agents: &[usize], minutes: f64) -> Result<()> {
    crate::require_root()?;
    let mut steps = Steps::new(LEFT);
    let mut rows = Vec::new();
    for count in agents {
        bed.down(&[HUB])?;
        bed.up(&[HUB])?;
        rows.push(steps.run(&format!("{count} agents"), || measure(bed, *count, minutes))?);
    }
    bed.down(&[HUB])?;
    print(tables(&rows));
    steps.summary();
    Ok(())
}

fn measure(bed: &Bed, count: usize, minutes: f64) -> Result<Value> {
    let mut test = cargo(bed.checkout());
    // Quick to build, and quick enough not to be what is measured.
    test.args(["test", "--profile", "e2e", "--package", "fleetctl", "--test", "runtime"]);
    test.args(DAEMONS).args(["--", "--ignored", "--nocapture", "--exact", TEST]);
    test.env("FLEETBED_PROFILE", "e2e");
    test.env("FLEET_CROWD", count.to_string()).env("FLEET_CROWD_MINUTES", minutes.to_string());
    let output = test.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("crowd {").map(|(_, rest)| format!("{{{rest}")));
    let line = line.with_context(|| format!("nothing was measured:\n{text}"))?;
    if !output.status.success() {
        say(format!("{count} agents: the test failed:\n{text}"));
    }
    Ok(serde_json::from_str(&line)?)
}

/// What was measured: for the agents, and for the components.
fn tables(rows: &[Value]) -> String {
    let mut text = format!(
        "{:>7} {:>9} {:>8} {:>13} {:>13} {:>13} {:>13} {:>9} {:>7} {:>15}\n",
        "agents",
        "joins/min",
        "ready s",
        "lease p50/99",
        "joining**",
        "status p50/99",
        "joining**",
        "NotReady*",
        "errors",
        "detection s"
    );
    let float = |value: &Value| value.as_f64().unwrap_or_default();
    // A value of JSON takes no notice of a width.
    let whole = |value: &Value| value.as_u64().unwrap_or_default();
    for row in rows {
        let pair = |name: &str| format!("{:.0}/{:.0} ms", float(&row[name]["p50"]), float(&row[name]["p99"]));
        let found: Vec<f64> = row["detection"].as_array().into_iter().flatten().map(float).collect();
        let found = format!(
            "{:.0} to {:.0} ({})",
            found.first().copied().unwrap_or_default(),
            found.last().copied().unwrap_or_default(),
            found.len()
        );
        text += &format!(
            "{:>7} {:>9.0} {:>8.1} {:>13} {:>13} {:>13} {:>13} {:>9} {:>7.0} {:>15}\n",
            whole(&row["agents"]),
            float(&row["joinsPerMinute"]),
            float(&row["readySeconds"]),
            pair("lease"),
            pair("leaseJoining"),
            pair("status"),
            pair("statusJoining"),
            whole(&row["falseNotReady"]),
            float(&row["errors"]),
            found
        );
    }
    text += "* false: of clusters whose agent lived\n** until all were ready; all other columns but the first three are of the time after\n\n";
    text += "cores while quiet, and peak memory\n";
    for (index, row) in rows.iter().enumerate() {
        let components = row["components"].as_array().map(Vec::as_slice).unwrap_or_default();
        if index == 0 {
            let names = components.iter().map(|c| format!(" {:>24}", c["name"].as_str().unwrap_or_default()));
            text += &format!("{:>7}{}\n", "agents", names.collect::<String>());
        }
        let cells = components.iter().map(|component| {
            let cell = format!("{:.3}, {} MiB", float(&component["cores"]), component["peak"]);
            format!(" {cell:>24}")
        });
        text += &format!("{:>7}{}\n", whole(&row["agents"]), cells.collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_row_says_what_was_measured() {
        let row = json!({
            "agents": 10, "joinsPerMinute": 612.4, "readySeconds": 5.04, "lease": {"p50": 3.2, "p99": 9.9},
            "status": {"p50": 12.0, "p99": 48.6}, "leaseJoining": {"p50": 30.0, "p99": 99.0},
            "statusJoining": {"p50": 31.0, "p99": 98.0}, "falseNotReady": 0, "errors": 0.0, "detection": [41.2, 49.7],
            "components": [{"name": "etcd", "cores": 0.0123, "peak": 60}],
        });
        let text = super::tables(&[row]);
        for part in ["612", "3/10 ms", "30/99 ms", "12/49 ms", "31/98 ms", "41 to 50 (2)", "0.012, 60 MiB", "etcd"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
