//! `cargo bed bench decide`: what deciding where a group goes costs, on fleets of several sizes.

use anyhow::Result;
use serde_json::Value;

use crate::Bed;
use crate::bench::compile;
use crate::dev::steps::Steps;
use crate::run::output_of;
use crate::say::say;

/// Clusters of a fleet.
const SIZES: [&str; 3] = ["10", "100", "1000"];
/// Decisions a second that unspread groups have to reach with a thousand clusters.
const RATE: f64 = 5_000.0;
/// The 99th percentile of one such decision, in microseconds.
const P99: f64 = 1_000.0;

/// The steps, in order. No cluster is needed.
pub(crate) fn run(bed: &Bed, profile: &str) -> Result<()> {
    let mut steps = Steps::new("nothing is left behind");
    let example = ["--example", "bench-decide"];
    let program = steps.run("build the program of the benchmark", || compile(bed, profile, &example))?;
    // A process for each size, so that what one leaves in memory is not counted for the next.
    let decide = || {
        let of = |size: &&str| output_of(std::process::Command::new(&program).arg(size));
        SIZES.iter().map(of).collect::<Result<Vec<String>>>()
    };
    let lines = steps.run("decide", decide)?.join("\n");
    say("\n100 nodes a cluster, 5 replicas a member; a decision and the promise of its room");
    say(format!(
        "{:>8} {:>8} {:10} {:>12} {:>12} {:>12} {:>10}",
        "clusters", "members", "policy", "decisions/s", "P50", "P99", "fleet"
    ));
    let mut missed = Vec::new();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_f64().unwrap_or_default();
        let (rate, policy) = (number("decisions") / number("seconds"), row["policy"].as_str().unwrap_or_default());
        say(format!(
            "{:>8} {:>8} {policy:10} {rate:>12.0} {:>9.1} µs {:>9.1} µs {:>6.1} MiB",
            number("clusters"),
            number("members"),
            number("p50"),
            number("p99"),
            number("bytes") / f64::from(1 << 20),
        ));
        let is_target = number("clusters") >= 1000.0 && number("members") < 2.0 && policy == "unspread";
        if is_target && rate < RATE {
            missed.push(format!("{RATE:.0} decisions a second, not {rate:.0}"));
        }
        if is_target && number("p99") > P99 {
            missed.push(format!("99 % within {P99:.0} µs, not {:.0}", number("p99")));
        }
    }
    say(if missed.is_empty() { "\nevery target is met" } else { "\nmissed:" });
    for target in &missed {
        say(format!("  {target}"));
    }
    steps.summary();
    Ok(())
}
