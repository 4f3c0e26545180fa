//! The command line as a user meets it, without any cluster.

mod access;
mod agent;
mod backup;
mod bounds;
mod check;
mod chosen;
mod completion;
mod diff;
mod docs;
mod environment;
mod etcd;
mod examples;
mod exit_codes;
mod explain;
mod fleet_page;
mod fuzz;
mod get;
mod helm;
mod help;
mod hostile;
mod install;
mod install_script;

mod kept;
mod kubeconfig;
mod lint;
mod local_files;
mod mistakes;
mod patch;
mod plugin;
mod pods;
mod rbac;
mod recover;
mod restore;
mod server;
mod show;
mod simulate;
mod small;
mod status;
mod taint;
mod template;
mod template_keys;
mod uninstall;
mod values;
mod version;
mod version_images;
mod way;
mod why;

use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStdout, Output, Stdio};

use assert_cmd::Command;
use tempfile::TempDir;

/// A home of its own, without any kubeconfig, for one test.
pub(crate) struct Sandbox {
    home: TempDir,
}

/// What a run printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { home: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file below the home and gives its path.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("fleetctl"));
        command.env_clear().env("HOME", self.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("COLUMNS", "100").env("LC_ALL", "C.UTF-8").current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command().args(args).output().unwrap())
    }
}

/// A command that goes on, until its test ends.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// A command, and what it prints while it runs.
    pub(crate) fn start(sandbox: &Sandbox, args: &[&str]) -> (Self, BufReader<ChildStdout>) {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("fleetctl"));
        command.args(args).env_clear().env("HOME", sandbox.path()).stdout(Stdio::piped());
        let mut running = Self(command.spawn().unwrap());
        let stdout = running.0.stdout.take().unwrap();
        (running, BufReader::new(stdout))
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts the exit code and that every part is on stderr.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in:\n{}", self.stderr);
        }
        assert_eq!(self.stdout, "", "a failed command prints no result");
    }

    /// Asserts success and gives stdout.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        &self.stdout
    }
}
