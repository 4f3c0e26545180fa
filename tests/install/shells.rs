//! Completion in the shells themselves. Bash is asked by the tests without a cluster.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bed::Bed;

/// A shell that finds the program, and nothing of this machine's user.
fn shell(words: &[&str], home: &Path) -> Command {
    Bed::here().unwrap().shells().unwrap();
    let folder = Path::new(assert_cmd::cargo::cargo_bin!("fleetctl")).parent().unwrap();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().env("HOME", home).env("TERM", "vt100").env("LC_ALL", "C.UTF-8");
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    command
}

/// A shell in a terminal.
struct Terminal {
    child: Child,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(shell_line: &str, home: &Path) -> Self {
        let mut script = shell(&["script", "--quiet", "--command", shell_line, "/dev/null"], home);
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let into = shown.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Some(count) = output.read(&mut bytes).ok().filter(|count| *count > 0) {
                into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, shown }
    }

    /// Types, and waits until something is shown after that. What was typed is shown too, so it must not be in the keys.
    fn type_until(&mut self, keys: &str, expected: &str) {
        let before = self.shown().len();
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !self.shown()[before..].contains(expected) {
            assert!(Instant::now() < end, "`{expected}` is not in:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What was shown so far, without the bells that ring in between.
    fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.chars().filter(|c| !c.is_control() || *c == '\n').collect()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn zsh_completes_from_its_first_key_and_leaves_the_cursor_where_a_value_goes() {
    let home = tempfile::tempdir().unwrap();
    let mut script = shell(&["sh", "-c", "mkdir zfunc && fleetctl completion zsh > zfunc/_fleetctl"], home.path());
    assert!(script.current_dir(home.path()).status().unwrap().success());
    for way in [
        "fpath=(~/zfunc $fpath); autoload -U compinit; compinit -u -D",
        "autoload -U compinit; compinit -u -D; source <(fleetctl completion zsh)",
    ] {
        let mut zsh = Terminal::open("zsh -f -i", home.path());
        zsh.type_until(&format!("{way}; print re''ady\n"), "ready");
        zsh.type_until("fleetctl lint --set exposure.ty\t", "exposure.type=");
        // With a space between them, it would be the name of a chart.
        zsh.type_until("Bogus\n", "`Bogus` is not an option of `exposure.type`");
        // What is whole is ended by one.
        zsh.type_until("fleetctl kubectl-in\t", "kubectl-install");
        zsh.type_until("--bogus\n", "unexpected argument");
    }
}

#[test]
fn fish_completes_commands_and_the_paths_of_values() {
    let home = tempfile::tempdir().unwrap();
    for (typed, expected) in [
        ("fleetctl kubectl-in", "kubectl-install\t"),
        ("fleetctl lint --set exposure.ty", "exposure.type=\tKind of"),
        ("fleetctl status -o ", "json"),
    ] {
        let line = format!("fleetctl completion fish | source; complete --do-complete '{typed}'");
        let output = shell(&["fish", "--no-config", "--command", &line], home.path()).output().unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(found.lines().any(|line| line.starts_with(expected)), "{typed}: {found}");
    }
}

#[test]
#[ignore = "nushell is no package of Debian: `npm install nushell`, then NU=node_modules/@nushell/linux-x64/bin/nu"]
fn nushell_completes_commands_names_and_the_paths_of_values() {
    let nu = std::env::var("NU").expect("NU, the path of nushell");
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join(".fleet/demo")).unwrap();
    let script = "fleetctl completion nushell > fleetctl.nu";
    assert!(shell(&["sh", "-c", script], home.path()).current_dir(home.path()).status().unwrap().success());
    for (typed, expected) in [
        ("fleetctl kubectl-in", "kubectl-install"),
        ("fleetctl lint --set exposure.ty", "exposure.type="),
        ("fleetctl status -o ''", "json"),
        ("fleetctl status d", "demo"),
    ] {
        // What the shell itself calls, with the words of the line.
        let line = format!("source fleetctl.nu; nu-complete fleetctl [{typed}] | get value | to text");
        let mut nu = shell(&[&nu, "--no-config-file", "--commands", &line], home.path());
        let output = nu.current_dir(home.path()).output().unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(found.lines().any(|line| line == expected), "{typed}: {found}\n{:?}", output.stderr);
    }
}
