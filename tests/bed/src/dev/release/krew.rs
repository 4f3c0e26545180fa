//! The plugin for krew: its manifest, and an install by krew itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use super::sha256;
use super::smoke::Way;
use crate::parts::cache::Cache;
use crate::parts::{self, go};
use crate::place::Place;
use crate::run;

/// Name of the plugin for krew, whose index has another project's plugin under `fleet`: `kubectl fleet-scheduler`.
pub(super) const NAME: &str = "fleet-scheduler";

/// The plugin as krew installs it under `plugin`, out of the archives of a release: from a file, by
/// `kubectl krew install --manifest krew.yaml --archive fleetctl-linux-amd64.tar.gz`, or from where the release is.
pub(super) fn manifest(folder: &Path, plugin: &str, names: &[&str], url: &str) -> Result<String> {
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2\nkind: Plugin\nmetadata:\n  name: {plugin}\nspec:\n  \
         version: v{}\n  shortDescription: Runs workloads of one API in many clusters\n  description: |\n    Installs, checks, \
         keeps and removes a control plane that places workloads onto\n    clusters, and the agents in these.\n  platforms:\n",
        env!("CARGO_PKG_VERSION")
    );
    for name in names {
        let (os, architecture) = name.split_once('-').context("a name is of a system and an architecture")?;
        let archive = format!("fleetctl-{name}.tar.gz");
        let digest = sha256(&folder.join(&archive))?;
        write!(
            text,
            "  - selector:\n      matchLabels: {{os: {os}, arch: \"{architecture}\"}}\n    uri: {url}/{archive}\n    sha256: \
             {digest}\n    bin: fleetctl\n    files:\n    - {{from: fleetctl, to: .}}\n    - {{from: LICENSE, to: .}}\n"
        )?;
    }
    Ok(text)
}

/// krew as a program. It is built if the cache lacks it.
pub(super) fn program() -> Result<PathBuf> {
    let cache = Cache::here()?;
    go::build(&Place::here()?, &cache, &[parts::KREW])?;
    Ok(cache.program(&parts::KREW, "krew"))
}

/// Has krew install the plugin from the files of a release for a platform such as `linux-arm64`, which has to give this program;
/// returns what that says of its version when kubectl runs it.
pub(super) fn install(
    krew: &Path,
    release: &Path,
    plugin: &str,
    name: &str,
    program: &Path,
    way: Way,
) -> Result<String> {
    let root = tempfile::tempdir()?;
    let (os, architecture) = name.split_once('-').context("a name is of a system and an architecture")?;
    let mut command = Command::new(krew);
    command.env("KREW_ROOT", root.path()).env("KREW_OS", os).env("KREW_ARCH", architecture);
    command.arg("install").arg("--manifest").arg(release.join("krew.yaml")).arg("--archive");
    run::output_of(command.arg(release.join(format!("fleetctl-{name}.tar.gz"))))?;
    // In the name of a file, a dash would begin a subcommand of the plugin.
    let plugin = root.path().join("bin").join(format!("kubectl-{}", plugin.replace('-', "_")));
    if fs::read(&plugin)? != fs::read(program)? {
        bail!("krew did not install {}", program.display());
    }
    let said = run::output_of(way.command(&plugin).arg("--version"))?;
    Ok(said.trim().to_owned() + &way.remark())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn krew_installs_for_the_platform_it_is_on_and_nothing_else_than_the_manifest_says() {
        let folder = tempfile::tempdir().unwrap();
        let pack = |name: &str, version: u8| {
            let inside = folder.path().join(name);
            fs::create_dir_all(&inside).unwrap();
            let program = inside.join("fleetctl");
            fs::write(&program, format!("#!/bin/sh\necho fleetctl version {version}\n")).unwrap();
            fs::write(inside.join("LICENSE"), "").unwrap();
            run::output("chmod", &["755", &program.display().to_string()]).unwrap();
            let (archive, inside) =
                (folder.path().join(format!("fleetctl-{name}.tar.gz")), inside.display().to_string());
            run::output("tar", &["-czf", &archive.display().to_string(), "-C", &inside, "fleetctl", "LICENSE"])
                .unwrap();
            program
        };
        let names = ["linux-386", "linux-arm64"];
        let programs = names.map(|name| pack(name, 7));
        fs::write(folder.path().join("krew.yaml"), manifest(folder.path(), NAME, &names, ".").unwrap()).unwrap();
        let krew = program().unwrap();
        for (name, program) in names.iter().zip(&programs) {
            let said = install(&krew, folder.path(), NAME, name, program, Way::Native).unwrap();
            assert_eq!(said, "fleetctl version 7");
        }
        let other = pack("linux-386", 8);
        let error = install(&krew, folder.path(), NAME, "linux-386", &other, Way::Native).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
    }

    #[test]
    fn the_manifest_of_krew_names_each_archive_with_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("fleetctl-linux-386.tar.gz"), "x").unwrap();
        let text = manifest(folder.path(), NAME, &["linux-386"], "https://example.com/v1").unwrap();
        for line in [
            "\n  name: fleet-scheduler\n",
            "      matchLabels: {os: linux, arch: \"386\"}\n",
            "    uri: https://example.com/v1/fleetctl-linux-386.tar.gz\n",
            "    sha256: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
