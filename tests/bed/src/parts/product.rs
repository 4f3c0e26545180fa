//! The container images of this project's own programs, by the command that a release would use as well.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::parts::cache::remove_tree;
use crate::parts::images::Builder;
use crate::parts::packages::is_static;
use crate::place::Place;
use crate::run;
use crate::say::say;

/// The programs that run in pods.
pub(crate) const PROGRAMS: [&str; 2] = ["fleet-scheduler", "fleet-agent"];
/// Arguments of cargo with which those are built too. The whole bed builds with them, for one build of the library.
pub(crate) const DAEMONS: [&str; 2] = ["--features", "fleetctl/daemons"];
/// Where the charts look for them.
const VENDOR: &str = "docker.io/fleetscheduler";

/// Makes an image of each program and pushes it to the registry under every tag. Returns the names.
pub(crate) fn push(place: &Place, programs: &[PathBuf], tags: &[String], endpoint: &str) -> Result<Vec<String>> {
    let work = place.state.join("hub/images");
    remove_tree(&work)?;
    let context = work.join("context");
    fs::create_dir_all(&context)?;
    for program in programs {
        require_static(program)?;
        fs::copy(program, context.join(program.file_name().context("a program has a name")?))?;
    }
    let builder = Builder::in_folder(work.join("store"));
    let file = place.checkout.join("src/bin/Containerfile");
    let mut names = Vec::new();
    for program in PROGRAMS {
        let local = format!("localhost/{program}");
        builder.build(&file, &context, &local, Some(program))?;
        for tag in tags {
            let name = format!("{VENDOR}/{program}:{tag}");
            builder.push(&local, &name, endpoint)?;
            names.push(name);
        }
    }
    remove_tree(&work)?;
    Ok(names)
}

/// Builds the programs as static binaries with a profile of Cargo.toml.
/// Only their last step differs from that of the usual builds of this checkout: they share every library with them.
pub(crate) fn compile(place: &Place, profile: &str) -> Result<Vec<PathBuf>> {
    say(format!("building {} for images (profile {profile})", PROGRAMS.join(" and ")));
    let mut built = Vec::new();
    for program in PROGRAMS {
        let mut command = run::cargo(&place.checkout);
        command.args(["rustc", "--package", "fleetctl", "--profile", profile, "--bin", program]);
        command.args(DAEMONS).args(["--message-format=json-render-diagnostics", "--"]);
        command.args(["-C", "target-feature=+crt-static", "-C", "strip=symbols"]);
        built.extend(executables(&run::output_of(&mut command)?));
    }
    if built.len() != PROGRAMS.len() {
        bail!("cargo built {} of the {} programs {PROGRAMS:?}", built.len(), PROGRAMS.len());
    }
    Ok(built)
}

/// The programs that cargo says it made, of its messages.
pub(crate) fn executables(messages: &str) -> Vec<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .collect()
}

fn require_static(program: &Path) -> Result<()> {
    if is_static(&fs::read(program)?) == Some(true) {
        return Ok(());
    }
    bail!(
        "{} is not static, so it cannot run in an image from scratch; does RUSTFLAGS or a configuration of cargo say so?",
        program.display()
    )
}
