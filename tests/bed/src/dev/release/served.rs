//! Installs from the files of a release as users do: by `install.sh`, from a server.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::run;

/// A server of files on this machine, for as long as it is held.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn of(folder: &Path) -> Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory"]).arg(folder).arg("0");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut first = String::new();
        let stdout = child.stdout.take().context("the server has an output")?;
        let mut server = Self { child, address: String::new() };
        BufReader::new(stdout).read_line(&mut first)?;
        // `Serving HTTP on 127.0.0.1 port 40123 (http://127.0.0.1:40123/) ...`
        let address = first.split_once("(http://").and_then(|(_, rest)| rest.split_once("/)"));
        let (address, _) = address.with_context(|| format!("the server of files says `{}`", first.trim()))?;
        address.clone_into(&mut server.address);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has `install.sh` of a release install from it, which has to give this file; returns what it says.
pub(super) fn install(release: &Path, program: &Path) -> Result<String> {
    let server = Server::of(release)?;
    let home = tempfile::tempdir()?;
    let bin = home.path().join("bin");
    let mut script = Command::new("sh");
    script.arg(release.join("install.sh")).env("HOME", home.path()).env("FLEETCTL_BIN_DIR", &bin);
    for name in ["FLEETCTL_VERSION", "FLEETCTL_KEY", "http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
        script.env_remove(name);
    }
    let said = run::output_of(script.env("FLEETCTL_URL", format!("http://{}", server.address)))?;
    if fs::read(bin.join("fleetctl"))? != fs::read(program)? {
        bail!("install.sh did not install {}", program.display());
    }
    let version = said.lines().next().and_then(|line| line.split_once(" is installed: ")).map(|(_, version)| version);
    Ok(version.context("install.sh does not say what it installed")?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_is_installed_from_the_server_and_another_than_its_sum_says_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../install.sh");
        fs::copy(script, folder.path().join("install.sh")).unwrap();
        let name = format!("fleetctl-linux-{}", super::super::own_architecture().unwrap());
        let program = folder.path().join(&name);
        fs::write(&program, "#!/bin/sh\necho fleetctl version 7\n").unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        super::super::sums(folder.path()).unwrap();
        assert_eq!(install(folder.path(), &program).unwrap(), "fleetctl version 7");
        fs::write(&program, "#!/bin/sh\necho fleetctl version 8\n").unwrap();
        let error = install(folder.path(), &program).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} does not match SHA256SUMS")), "{error}");
    }
}
