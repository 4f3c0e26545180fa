//! `cargo bed bench render`: what rendering costs, beside Helm on the same objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use fs_err as fs;
use serde_json::Value;

use crate::Bed;
use crate::bench::{Cost, TEMPLATE, compile};
use crate::dev::steps::Steps;
use crate::run::output_of;
use crate::say::say;

/// Objects of a run, and how often it is repeated.
const SIZES: [(usize, usize); 5] = [(4, 20), (30, 20), (100, 15), (1_000, 5), (5_000, 3)];
/// Runs of a command that ends at once.
const QUICK: usize = 40;

/// The steps, in order. No cluster is needed.
pub(crate) fn run(bed: &Bed, profile: &str) -> Result<()> {
    let mut steps = Steps::new("nothing is left behind");
    let helm = steps.run("build Helm", || bed.helm())?;
    let program = format!("build fleetctl with the profile `{profile}`");
    let fleetctl = steps.run(&program, || compile(bed, profile, &["--bin", "fleetctl"]))?;
    let example = ["--example", "bench-render"];
    let render = steps.run("build the program of the benchmark", || compile(bed, profile, &example))?;
    let charts = bed.checkout().join("tests/bench");
    let home = tempfile::tempdir()?;
    let environment: Vec<(&str, std::ffi::OsString)> =
        ["HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"]
            .map(|name| (name, home.path().as_os_str().to_owned()))
            .to_vec();
    say(format!("\n{:>8} {:28} {:>10} {:>10} {:>10}", "objects", "median of some runs", "CPU", "wall", "peak"));
    let mut missed = Vec::new();
    let mut ours_by_size = BTreeMap::new();
    for (objects, runs) in SIZES {
        let set = format!("count={}", objects / 4);
        let path = |name: &str| charts.join(name).display().to_string();
        let (ours_folder, schema, helm_folder) = (path("ours"), path("values.schema.json"), path("helm"));
        let ours = [&ours_folder, &schema, "demo", "default", "--set", &set];
        let theirs = ["template", "demo", &helm_folder, "--set", &set];
        let objects = check_equal(&render, &ours, &helm, &theirs, &environment)?;
        let a = Cost::of(runs, &render, &ours, &environment)?;
        let b = Cost::of(runs, &helm, &theirs, &environment)?;
        for (name, cost) in [("fleetctl's packager", a), ("helm template", b)] {
            say(format!(
                "{objects:>8} {name:28} {:>7.1} ms {:>7.1} ms {:>6.1} MiB",
                ms(cost.cpu),
                ms(cost.wall),
                cost.peak
            ));
        }
        let (cpu, wall, peak) = (ratio(b.cpu, a.cpu), ratio(b.wall, a.wall), b.peak / a.peak);
        say(format!("{:>8} {:28} {cpu:>8.1} ×  {wall:>8.1} ×  {peak:>7.1} ×", "", "Helm takes"));
        if cpu < 10.0 {
            missed.push(format!("{objects} objects: 10 times less CPU than Helm, not {cpu:.1}"));
        }
        if objects <= 1_000 && peak < 4.0 {
            missed.push(format!("{objects} objects: 4 times less memory than Helm, not {peak:.1}"));
        }
        ours_by_size.insert(objects, a);
    }
    per_object(&ours_by_size, &mut missed);
    real_chart(&fleetctl, &environment, &mut missed)?;
    say(if missed.is_empty() { "\nevery target is met" } else { "\nmissed:" });
    for target in &missed {
        say(format!("  {target}"));
    }
    steps.summary();
    Ok(())
}

/// What one more object costs.
fn per_object(costs: &BTreeMap<usize, Cost>, missed: &mut Vec<String>) {
    let micros = |objects: usize| costs.get(&objects).map_or(0.0, |cost| cost.cpu.as_secs_f64() * 1e6);
    say("\nCPU of one more object");
    for (from, to) in [(4, 100), (100, 1_000), (1_000, 5_000)] {
        #[expect(clippy::cast_precision_loss, reason = "some thousand")]
        let each = (micros(to) - micros(from)) / (to - from) as f64;
        say(format!("{from:>8} to {to:<8} {each:>6.1} µs"));
        if from >= 100 && each > 15.0 {
            missed.push(format!("{from} to {to} objects: 15 µs an object, not {each:.1}"));
        }
    }
}

/// The real chart, from the start of the process to its last byte.
fn real_chart(fleetctl: &Path, environment: &[(&str, std::ffi::OsString)], missed: &mut Vec<String>) -> Result<()> {
    say("\nthe control-plane chart, from the start of the process to the last byte");
    let template = [&["--quiet"], &TEMPLATE[..]].concat();
    // Milliseconds, where `kubectl version --client` takes about forty.
    let commands: [(&str, &[&str], f64); 3] = [
        ("--version", &["--version"], 5.0),
        ("install --dry-run, defaults", &["--quiet", "install", "cp", "demo", "--dry-run"], 12.0),
        ("template, values and keys", &template, 12.0),
    ];
    for (name, arguments, most) in commands {
        let cost = Cost::of(QUICK, fleetctl, arguments, environment)?;
        say(format!("{:>8} {name:28} {:>7.1} ms {:>7.1} ms {:>6.1} MiB", "", ms(cost.cpu), ms(cost.wall), cost.peak));
        if ms(cost.wall) > most {
            missed.push(format!("{name}: {most} ms, not {:.1}", ms(cost.wall)));
        }
        if cost.peak > 14.0 {
            missed.push(format!("{name}: 14 MiB, not {:.1}", cost.peak));
        }
    }
    Ok(())
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn ratio(a: std::time::Duration, b: std::time::Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// Holds that both give the same objects, whatever their order, and counts them.
fn check_equal(
    render: &Path,
    ours: &[&str],
    helm: &Path,
    theirs: &[&str],
    environment: &[(&str, std::ffi::OsString)],
) -> Result<usize> {
    let objects = |program: &Path, arguments: &[&str]| -> Result<BTreeMap<String, Value>> {
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        // One by one: the reader takes no more than a thousand documents at a time.
        let text = format!("\n{}", output_of(&mut command)?);
        let documents = text.split("\n---\n").filter(|document| !document.trim().is_empty());
        let documents: Vec<Value> = documents.map(serde_saphyr::from_str).collect::<Result<_, _>>()?;
        let named = |object: Value| (format!("{}/{}", object["kind"], object["metadata"]["name"]), object);
        Ok(documents.into_iter().map(named).collect())
    };
    let (ours, theirs) = (objects(render, ours)?, objects(helm, theirs)?);
    for (name, object) in &ours {
        if theirs.get(name) != Some(object) {
            let file = std::env::temp_dir().join("bench-difference.txt");
            fs::write(&file, format!("{object:#}\n\n{:#}", theirs.get(name).unwrap_or(&Value::Null)))?;
            bail!("{name} is not the same object in both charts: see {}", file.display());
        }
    }
    if ours.len() != theirs.len() {
        bail!("{} objects of ours, {} of Helm's", ours.len(), theirs.len());
    }
    Ok(ours.len())
}
