//! What is in a program: each crate with version, licence and checksum, in a file of CycloneDX.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use fs_err as fs;

use super::programs::Build;
use crate::run;

/// Writes what is in a program for a target into a file.
pub(super) fn write(build: &Build<'_>, program: &str, triple: &str, file: &Path) -> Result<()> {
    let cargo = run::cargo(build.checkout);
    let mut command = Command::new(build.tools.cyclonedx());
    for (name, value) in cargo.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(build.checkout).env("SOURCE_DATE_EPOCH", build.time);
    command.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5", "--describe", "binaries"]);
    run::output_of(command.args(["--no-build-deps", "--features", "daemons", "--target", triple]))?;
    // It writes one beside each manifest for each program of the workspace, whatever is asked of it.
    let text = fs::read_to_string(build.checkout.join(format!("{program}_bin.cdx.json")));
    for folder in [build.checkout.to_owned(), build.checkout.join("tests/bed")] {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with("_bin.cdx.json") {
                fs::remove_file(entry.path())?;
            }
        }
    }
    let text = anywhere(&text?, build.checkout);
    if text.contains(&build.checkout.display().to_string()) {
        bail!("what is in {program} names {}", build.checkout.display());
    }
    fs::write(file, text)?;
    Ok(())
}

/// The same for every folder that the sources may be in.
fn anywhere(text: &str, checkout: &Path) -> String {
    text.replace(&format!("path+file://{}#", checkout.display()), "path+file:///fleetctl#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_sources_is_not_in_it() {
        let text = r#"{"bom-ref": "path+file:///a/b#fleetctl@1.2.0", "ref": "path+file:///a/b2#x@1"}"#;
        let expected = r#"{"bom-ref": "path+file:///fleetctl#fleetctl@1.2.0", "ref": "path+file:///a/b2#x@1"}"#;
        assert_eq!(anywhere(text, Path::new("/a/b")), expected);
    }
}
