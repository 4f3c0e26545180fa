//! `cargo bed order`: writes anew which functions of `fleetctl` lie together in the program.
//!
//! A command that asks no cluster runs a tenth of the program's code, in pieces all over it, and the kernel maps sixteen
//! pages around each. `build.rs` has the linker put what is listed here side by side.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::Bed;
use crate::bench::TEMPLATE;
use crate::run::{cargo, find, output_of};
use crate::steps::Steps;

/// The list, below the checkout.
const LIST: &str = "src/bin/fleetctl.order";

/// What is run to see which functions that takes.
const COMMANDS: [&[&str]; 4] =
    [&TEMPLATE, &["install", "control-plane", "demo", "--dry-run"], &["template", "agent", "west"], &["--version"]];

const HEAD: &str = "\
# The functions that a command needs which asks no cluster, as the linker knows them; `*` stands for what another compiler
# or other versions of the dependencies would name differently. Made by `cargo bed order`, read by build.rs. A name that
# nothing has any longer does no harm.
";

/// Builds the program with its symbols, runs the commands under callgrind, and writes the list.
pub(crate) fn write(bed: &Bed) -> Result<()> {
    if find("valgrind").is_none() {
        bail!("valgrind is needed to see which functions run: `apt-get install valgrind`");
    }
    let mut steps = Steps::new("nothing is left behind");
    let program = steps.run("build fleetctl as users get it, with symbols", || {
        let mut cargo = cargo(bed.checkout());
        cargo.args(["rustc", "--release", "--package", "fleetctl", "--bin", "fleetctl"]);
        cargo.args(["--message-format=json-render-diagnostics", "--", "-C", "strip=none"]);
        crate::product::executables(&output_of(&mut cargo)?).pop().context("cargo built nothing")
    })?;
    let home = tempfile::tempdir()?;
    // Keys are made once and found ever after.
    steps.run("make the keys", || called(&program, home.path(), &TEMPLATE))?;
    let mut names = BTreeSet::new();
    for command in COMMANDS {
        names.extend(steps.run(&command.join(" "), || called(&program, home.path(), command))?);
    }
    let list: String = names.iter().map(|name| format!("{name}\n")).collect();
    fs::write(bed.checkout().join(LIST), format!("{HEAD}{list}"))?;
    steps.summary();
    Ok(())
}

/// The functions of Rust that a run calls.
fn called(program: &Path, home: &Path, command: &[&str]) -> Result<BTreeSet<String>> {
    let profile = home.join("profile");
    let mut run = Command::new("valgrind");
    run.args(["--tool=callgrind", "--demangle=no"]).arg(format!("--callgrind-out-file={}", profile.display()));
    run.arg(program).args(command).env("HOME", home).env_remove("KUBECONFIG").stdin(Stdio::null());
    output_of(&mut run)?;
    Ok(names(&fs::read_to_string(&profile)?))
}

/// The names of Rust's functions in a profile of callgrind, without what differs from one compiler to the next.
fn names(profile: &str) -> BTreeSet<String> {
    let named = profile.lines().filter_map(|line| line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=(")));
    let named = named.filter_map(|rest| Some(rest.split_once(") ")?.1));
    named
        .filter(|name| name.starts_with("_ZN") || name.starts_with("_R"))
        // Behind an apostrophe is the depth of a recursion.
        .map(|name| lasting(name.split('\'').next().unwrap_or(name)))
        .collect()
}

/// A mangled name, in which `*` stands for each hash.
fn lasting(name: &str) -> String {
    // `_ZN…17h0123456789abcdefE`
    if let Some(at) = name.rfind("17h").filter(|at| name.starts_with("_ZN") && name.len() == at + 20) {
        return format!("{}17h*E", &name[..at]);
    }
    // `_RNvMNtCslNYArtu3iFV_5alloc…`: a crate's disambiguator.
    let mut parts = name.split("Cs");
    let mut lasting = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        lasting.push_str("Cs");
        match part.split_once('_') {
            Some((hash, rest)) if hash.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                lasting.push_str("*_");
                lasting.push_str(rest);
            }
            _ => lasting.push_str(part),
        }
    }
    lasting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rust_without_their_hashes() {
        let profile = "fl=(1) ???\nfn=(12) _ZN5alloc3vec4push17h0123456789abcdefE\n10 5\ncfn=(13) malloc\n\
                       cfn=(14) _RNvMNtCslNYArtu3iFV_5alloc6string3new'2\nfn=(12)\n";
        let found: Vec<String> = names(profile).into_iter().collect();
        assert_eq!(found, ["_RNvMNtCs*_5alloc6string3new", "_ZN5alloc3vec4push17h*E"]);
    }
}
