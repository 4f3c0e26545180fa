//! Completion as bash and kubectl ask for it.

use std::process::Command;
use std::time::Instant;

use crate::{Ran, Sandbox};

const CONFIG: &str = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"SERVER\"}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: hosting, context: {cluster: c, user: u}}, {name: other, context: {cluster: c, user: u}}]\ncurrent-context: hosting\n";

/// What a real bash offers after `words`, the last of which is being typed.
fn offered(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let bin = assert_cmd::cargo::cargo_bin!("fleetctl").parent().unwrap().display().to_string();
    let script = "source <(fleetctl completion bash) || exit 9
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(( $# - 1 )); COMP_TYPE=9
        _clap_complete_fleetctl fleetctl \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\" 2>/dev/null
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "bash"]).args(words).env_clear();
    command.env("PATH", path).env("HOME", sandbox.path()).current_dir(sandbox.path());
    let ran = Ran::of(command.output().unwrap());
    ran.succeeds().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_names_versions_values_and_ids() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path().join(".fleet/demo")).unwrap();
    std::fs::create_dir_all(sandbox.path().join(".kube")).unwrap();
    sandbox.file(".kube/config", &CONFIG.replace("SERVER", "https://127.0.0.1:1"));
    for (words, expected) in [
        (&["fleetctl", "kubectl-"][..], "kubectl-install"),
        (&["fleetctl", "install", "cp", "--dry"], "--dry-run"),
        (&["fleetctl", "status", ""], "demo"),
        (&["fleetctl", "status", "--context", "o"], "other"),
        (&["fleetctl", "install", "cp", "demo", "--version", "v1"], "v1.1"),
        (&["fleetctl", "install", "cp", "demo", "--version", ""], "auto"),
        (&["fleetctl", "install", "cp", "demo", "--set", "etcd.sto"], "etcd.storage.size="),
        (&["fleetctl", "install", "cp", "demo", "--skip-preflight", "sto"], "storage"),
        (&["fleetctl", "explain", "crash"], "crash-loop"),
        (&["fleetctl", "show", "presets", "h"], "ha"),
        (&["fleetctl", "check", "-o", "j"], "junit"),
    ] {
        let found = offered(&sandbox, words);
        assert!(found.iter().any(|word| word.trim() == expected), "{words:?}: {found:?}");
        let last = words.last().unwrap();
        assert!(found.iter().all(|word| word.starts_with(last)), "{words:?}: {found:?}");
    }
}

#[test]
fn a_cluster_that_does_not_answer_is_not_waited_for() {
    let sandbox = Sandbox::new();
    // Connections are accepted by the system, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    std::fs::create_dir_all(sandbox.path().join(".kube")).unwrap();
    sandbox.file(".kube/config", &CONFIG.replace("SERVER", &server));
    let started = Instant::now();
    assert_eq!(offered(&sandbox, &["fleetctl", "get", "clusters", "x"]), Vec::<String>::new());
    // The limit is 300 ms; a busy machine starts bash and the program slowly.
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
}

#[test]
fn kubectl_is_answered_by_the_completer_that_kubectl_install_puts_beside_the_plugin() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("bin")).unwrap();
    sandbox.run(&["kubectl-install", "--bin-dir", "bin"]).succeeds();
    let completer = sandbox.path().join("bin/kubectl_complete-fleet");
    let ask = |words: &[&str]| Ran::of(Command::new(&completer).args(words).env_clear().output().unwrap());
    let versions = ask(&["install", "control-plane", "demo", "--version", "v1"]);
    assert!(versions.succeeds().starts_with("v1.1\tKubernetes v1.29 to v1.31\n"), "{versions:?}");
    assert!(versions.stdout.ends_with(":4\n"), "{versions:?}");
    let commands = ask(&[""]);
    assert!(commands.succeeds().contains("install\tInstall a control plane or an agent\n"), "{commands:?}");
    sandbox.run(&["kubectl-install", "--bin-dir", "bin", "--uninstall"]).succeeds();
    assert_eq!(std::fs::read_dir(sandbox.path().join("bin")).unwrap().count(), 0);
}

#[test]
fn a_completer_of_another_program_is_left_alone() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("bin")).unwrap();
    sandbox.file("bin/kubectl_complete-fleet", "#!/bin/sh\n");
    let ran = sandbox.run(&["kubectl-install", "--bin-dir", "bin"]);
    ran.succeeds();
    assert!(ran.stderr.contains("is not this program"), "{ran:?}");
    sandbox.run(&["kubectl-install", "--bin-dir", "bin", "--uninstall"]).succeeds();
    assert!(sandbox.path().join("bin/kubectl_complete-fleet").exists());
}

#[test]
fn every_shell_has_a_script() {
    let sandbox = Sandbox::new();
    for (shell, part) in [
        ("bash", "complete -"),
        ("zsh", "#compdef fleetctl"),
        ("fish", "complete "),
        ("powershell", "Register-ArgumentCompleter"),
        ("nushell", "export extern"),
    ] {
        let script = sandbox.run(&["completion", shell]);
        assert!(script.succeeds().contains(part), "{shell}: {script:?}");
    }
    sandbox.run(&["completion", "tcsh"]).fails(2, &["tcsh", "bash"]);
}
