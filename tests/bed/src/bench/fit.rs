//! `cargo bed bench fit`: whether a real kube-scheduler binds what placement says has room.

use anyhow::Result;
use serde_json::Value;

use crate::Bed;
use crate::bench::compile;
use crate::dev::steps::Steps;
use crate::run::output_of;
use crate::say::say;

const LEFT: &str = "a cluster may still run: `cargo bed status` shows it, `cargo bed down` removes it";
/// The cluster whose kube-scheduler is asked. Its own node is cordoned.
const CLUSTER: &str = "member-2";

/// Groups of which all pods were bound, and of which not.
#[derive(Default, Clone, Copy)]
struct Count {
    bound: f64,
    unbound: f64,
}

impl Count {
    fn share(self) -> f64 {
        100.0 * self.bound / (self.bound + self.unbound)
    }
}

/// The steps, in order.
pub(crate) fn run(bed: &Bed, groups: usize, profile: &str) -> Result<()> {
    crate::require_root()?;
    let mut steps = Steps::new(LEFT);
    let program =
        steps.run("build the program of the benchmark", || compile(bed, profile, &["--example", "bench-fit"]))?;
    bed.down(&[CLUSTER])?;
    steps.run(&format!("start the cluster `{CLUSTER}`"), || bed.up(&[CLUSTER]))?;
    let lines = steps.run("ask the scheduler", || {
        let mut ask = std::process::Command::new(&program);
        output_of(ask.arg(groups.to_string()).env("KUBECONFIG", bed.kubeconfig(CLUSTER)?))
    })?;
    bed.down(&[CLUSTER])?;
    say(format!("\n{groups} groups at each fill, 40 nodes; groups of which all pods were bound"));
    say(format!("{:>6} {:13} {:8} {:>8} {:>8} {:>8}", "fill", "placement", "shapes", "bound", "not", "share"));
    let mut missed = Vec::new();
    let (mut mixed, mut fragmented) = (Count::default(), Count::default());
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_f64().unwrap_or_default();
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let (said, shapes, fill) = (text("said"), text("shapes"), number("fill"));
        let count = Count { bound: number("bound"), unbound: number("unbound") };
        let (bound, unbound) = (count.bound, count.unbound);
        say(format!("{fill:>5}% {said:13} {shapes:8} {bound:>8} {unbound:>8} {:>7.1}%", count.share()));
        match (said, shapes) {
            ("Room", "one") if unbound > 0.0 => missed.push(format!("one shape at {fill} %: {unbound} did not bind")),
            ("Room", "mixed") => mixed = Count { bound: mixed.bound + bound, unbound: mixed.unbound + unbound },
            ("Insufficient", _) if bound > 0.0 => missed.push(format!("insufficient at {fill} %, and {bound} bound")),
            ("Fragmented", _) => {
                fragmented = Count { bound: fragmented.bound + bound, unbound: fragmented.unbound + unbound };
            }
            _ => {}
        }
    }
    if mixed.share() < 99.0 {
        missed.push(format!("99 % of mixed groups with room, not {:.1} %", mixed.share()));
    }
    if fragmented.share() > 3.0 {
        missed.push(format!("3 % of fragmented groups at most, not {:.1} %", fragmented.share()));
    }
    say(if missed.is_empty() { "\nevery target is met" } else { "\nmissed:" });
    for target in &missed {
        say(format!("  {target}"));
    }
    steps.summary();
    Ok(())
}
