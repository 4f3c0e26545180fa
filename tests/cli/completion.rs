//! Completion as bash and kubectl ask for it; for shells that need not be on this machine, what their scripts ask and get.

use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::server::{serve, with_kubeconfig};
use crate::{Ran, Sandbox};

const CONFIG: &str = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"SERVER\"}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: hosting, context: {cluster: c, user: u}}, {name: other, context: {cluster: c, user: u}}]\ncurrent-context: hosting\n";

/// A word as bash splits it: what ends words is a word itself.
fn split(word: &str) -> Vec<&str> {
    let ends = |c: char| "=:@".contains(c);
    let mut parts = Vec::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let (part, behind) = rest.split_at(rest.find(|c| ends(c) != ends(first)).unwrap_or(rest.len()));
        parts.push(part);
        rest = behind;
    }
    if word.is_empty() { vec![word] } else { parts }
}

/// What a real bash offers after `words`, the last of which is being typed, in place of what bash takes for that word; with
/// the space that follows where it is the only answer.
fn offered(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let bin = assert_cmd::cargo::cargo_bin!("fleetctl").parent().unwrap().display().to_string();
    let script = "source <(fleetctl completion bash) || exit 9
        space=' '; compopt() { [ \"$*\" = '-o nospace' ] && space=; }
        COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 typed=$2; shift 2
        COMP_WORDS=(\"$@\") COMP_CWORD=$(( $# - 1 ))
        _fleetctl fleetctl \"$typed\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]/%/$space}\"";
    let parts = split(words.last().unwrap());
    // An address is completed with its `@`.
    let typed = match parts[..] {
        [.., "@", last] => format!("@{last}"),
        [.., last] if !last.starts_with(['=', ':', '@']) => last.to_owned(),
        _ => String::new(),
    };
    let line = words.join(" ");
    let words = words.iter().flat_map(|word| split(word));
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "bash", &line, &typed]).args(words).env_clear();
    command.env("PATH", path).env("HOME", sandbox.path()).current_dir(sandbox.path());
    let ran = Ran::of(command.output().unwrap());
    ran.succeeds().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_names_versions_values_and_ids() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path().join(".fleet/demo")).unwrap();
    with_kubeconfig(&sandbox, &CONFIG.replace("SERVER", "https://127.0.0.1:1"));
    for (words, expected) in [
        (&["fleetctl", "kubectl-"][..], "kubectl-install"),
        (&["fleetctl", "install", "cp", "--dry"], "--dry-run"),
        (&["fleetctl", "status", ""], "demo"),
        (&["fleetctl", "status", "--context", "o"], "other"),
        (&["fleetctl", "install", "cp", "demo", "--version", "v1"], "v1.2"),
        (&["fleetctl", "install", "cp", "demo", "--version", ""], "auto"),
        (&["fleetctl", "install", "cp", "demo", "--set", "etcd.sto"], "etcd.storage.size="),
        (&["fleetctl", "install", "cp", "demo", "--skip-preflight", "sto"], "storage"),
        (&["fleetctl", "install", "agent", "west", "--skip-preflight", "p"], "probe"),
        (&["fleetctl", "install", "agent", "west", "--control-plane", ""], "demo"),
        (&["fleetctl", "template", "cp", "demo", "-s", "deployment/ap"], "deployment/apiserver"),
        (&["fleetctl", "template", "agent", "west", "--show-only", "dep"], "deployment/fleet-agent"),
        (&["fleetctl", "template", "cp", "demo", "--include-kind", "Stat"], "StatefulSet"),
        (&["fleetctl", "template", "cp", "demo", "--include-kind", "Service,Stat"], "Service,StatefulSet"),
        (&["fleetctl", "template", "cp", "demo", "--explain", "statefulset/e"], "statefulset/etcd#"),
        (&["fleetctl", "explain", "crash"], "crash-loop"),
        (&["fleetctl", "show", "presets", "h"], "ha"),
        (&["fleetctl", "check", "-o", "j"], "junit"),
        (&["fleetctl", "status", "-o", "w"], "wide"),
        (&["fleetctl", "status", "--wa"], "--wait"),
        (&["fleetctl", "status", "--watch", "d"], "demo"),
    ] {
        let found = offered(&sandbox, words);
        assert!(found.iter().any(|word| word.trim() == expected), "{words:?}: {found:?}");
        let last = words.last().unwrap();
        assert!(found.iter().all(|word| word.starts_with(last)), "{words:?}: {found:?}");
    }
}

#[test]
fn what_bash_splits_is_one_word_and_only_the_rest_of_it_is_offered() {
    let sandbox = Sandbox::new();
    let contexts = ["hosting", "arn:aws:eks:eu:1:cluster/x", "admin@east", "admin@west"]
        .map(|name| format!("{{name: \"{name}\", context: {{cluster: c, user: u}}}}"));
    let (before, _) = CONFIG.split_once("contexts: ").unwrap();
    with_kubeconfig(&sandbox, &format!("{}contexts: [{}]\n", before.replace("SERVER", "x"), contexts.join(", ")));
    let lint = |last: &[&'static str]| [&["fleetctl", "lint"], last].concat();
    let status = |last: &[&'static str]| [&["fleetctl", "status"], last].concat();
    for (words, expected) in [
        (status(&["--context=ho"]), &["hosting "][..]),
        (status(&["--context=arn"]), &["arn:aws:eks:eu:1:cluster/x "]),
        (status(&["--context=arn:aws:e"]), &["eks:eu:1:cluster/x "]),
        (status(&["--context", "arn:aws:eks:eu:1:"]), &["cluster/x "]),
        (status(&["--context", "admin@w"]), &["@west "]),
        (status(&["--output=j"]), &["json "]),
        (status(&["-o=j"]), &["json "]),
        (lint(&["--set", "exposure.ty"]), &["exposure.type="]),
        (lint(&["--set=exposure.ty"]), &["exposure.type="]),
        (lint(&["--set", "exposure.type="]), &[]),
        (lint(&["--set=exposure.type="]), &[]),
        // Words before the one that is typed are whole, too: this is no name of a control plane.
        (status(&["--context=hosting", "--wat"]), &["--watch "]),
    ] {
        assert_eq!(offered(&sandbox, &words), expected, "{words:?}");
    }
}

#[test]
fn registered_clusters_are_offered_to_every_command_about_one() {
    let sandbox = Sandbox::new();
    let columns = json!([{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]);
    let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": columns,
        "rows": [{"cells": ["west"]}]});
    let server = serve(move |_, _| (200, table.clone()));
    with_kubeconfig(&sandbox, &CONFIG.replace("SERVER", &server));
    for command in [
        &["get", "clusters"][..],
        &["accept"],
        &["delete", "cluster"],
        &["drain", "cluster"],
        &["cordon", "cluster"],
        &["uncordon", "cluster"],
        &["taint", "cluster"],
    ] {
        let words = [&["fleetctl"], command, &["w"]].concat();
        // A machine that is busy may not answer in the time that a user waits for.
        let found = (0..20).map(|_| offered(&sandbox, &words)).find(|found| !found.is_empty());
        assert_eq!(found.as_deref(), Some(&["west ".to_owned()][..]), "{words:?}");
    }
}

#[test]
fn an_agents_install_is_offered_its_own_checks() {
    let sandbox = Sandbox::new();
    let found = offered(&sandbox, &["fleetctl", "install", "agent", "west", "--skip-preflight", ""]);
    assert!(found.iter().any(|word| word.trim() == "access"), "{found:?}");
    assert!(!found.iter().any(|word| ["storage", "node-port"].contains(&word.trim())), "{found:?}");
}

#[test]
fn a_cluster_that_does_not_answer_is_not_waited_for() {
    let sandbox = Sandbox::new();
    // Connections are accepted by the system, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    with_kubeconfig(&sandbox, &CONFIG.replace("SERVER", &server));
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
    assert!(versions.succeeds().starts_with("v1.2\tKubernetes v1.31 to v1.37\n"), "{versions:?}");
    assert!(versions.stdout.ends_with(":4\n"), "{versions:?}");
    // What is not whole yet is not ended by a space either.
    let paths = ask(&["lint", "--set", "exposure.ty"]);
    assert!(paths.succeeds().starts_with("exposure.type=\t") && paths.stdout.ends_with(":6\n"), "{paths:?}");
    // It takes `--flag=` for a word of its own.
    let paths = ask(&["lint", "--set=exposure.ty"]);
    assert!(paths.succeeds().starts_with("exposure.type=\t") && paths.stdout.ends_with(":6\n"), "{paths:?}");
    let formats = ask(&["status", "--output=j"]);
    assert!(formats.succeeds().starts_with("json"), "{formats:?}");
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

/// What the program answers to the script of a shell after `words`, the last of which is being typed; meanings left out.
fn answered(sandbox: &Sandbox, shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = sandbox.command();
    // How each script asks: zsh gives the index of the word and what to put between answers, the others the words alone.
    command.env("FLEET_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let ran = Ran::of(command.env("_CLAP_IFS", "\n").arg("--").args(words).output().unwrap());
    assert_eq!(ran.stderr, "", "a message would stand in the middle of the line: {ran:?}");
    let meaning: &[char] = if shell == "zsh" { &[':'] } else { &['\t'] };
    ran.succeeds().lines().map(|line| line.split(meaning).next().unwrap().trim().to_owned()).collect()
}

#[test]
fn the_scripts_of_other_shells_get_the_same_words_as_bash() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path().join(".fleet/demo")).unwrap();
    with_kubeconfig(&sandbox, &CONFIG.replace("SERVER", "https://127.0.0.1:1"));
    let cases: [(&[&str], &[&str]); 5] = [
        (&["fleetctl", "status", "d"], &["demo"]),
        (&["fleetctl", "status", "--output", ""], &["wide", "json", "yaml"]),
        (&["fleetctl", "status", "--context", ""], &["hosting", "other"]),
        (&["fleetctl", "status", "--wa"], &["--watch", "--wait"]),
        (&["fleetctl", "kubectl-"], &["kubectl-install"]),
    ];
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        for (words, expected) in cases {
            let mut found = answered(&sandbox, shell, words);
            let mut expected: Vec<String> = expected.iter().map(|word| (*word).to_owned()).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{shell} {words:?}");
        }
    }
}

/// Whether what a script opens it also closes, in the right order, quoted text and comments left aside.
fn is_balanced(script: &str) -> bool {
    let (mut open, mut quote, mut before) = (Vec::new(), None, ' ');
    let mut characters = script.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', _) => drop(characters.next()),
            (c, Some(end)) => quote = quote.filter(|_| c != end),
            ('"' | '\'', None) => quote = Some(c),
            ('#', None) if before.is_whitespace() => while characters.next_if(|c| *c != '\n').is_some() {},
            ('(' | '[' | '{', None) => open.push(c),
            (')' | ']' | '}', None) => {
                let opened = match c {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                if open.pop() != Some(opened) {
                    return false;
                }
            }
            _ => {}
        }
        before = c;
    }
    open.is_empty() && quote.is_none()
}

#[test]
fn scripts_are_whole_ask_by_name_and_hold_nothing_of_this_machine() {
    assert!(is_balanced("f() { a \"b)\"; } # (") && !is_balanced("f() { (a }") && !is_balanced("'a"));
    let sandbox = Sandbox::new();
    let binary = assert_cmd::cargo::cargo_bin!("fleetctl").display().to_string();
    for shell in ["zsh", "fish", "powershell", "nushell"] {
        let ran = sandbox.run(&["completion", shell]);
        let script = ran.succeeds();
        assert!(script.ends_with('\n') && is_balanced(script), "{shell}: {script}");
        assert!(
            !script.contains(&binary) && !script.contains(&sandbox.path().display().to_string()),
            "{shell}: {script}"
        );
        // Nushell is answered as fish is.
        let asks_as = if shell == "nushell" { "fish" } else { shell };
        assert!(script.contains("FLEET_COMPLETE") && script.contains(asks_as), "{shell}: {script}");
    }
}

#[test]
fn every_shell_has_a_script() {
    let sandbox = Sandbox::new();
    for (shell, part) in [
        ("bash", "complete -"),
        ("zsh", "#compdef fleetctl"),
        ("fish", "complete "),
        ("powershell", "Register-ArgumentCompleter"),
        ("nushell", "export extern fleetctl"),
    ] {
        let script = sandbox.run(&["completion", shell]);
        assert!(script.succeeds().contains(part), "{shell}: {script:?}");
    }
    sandbox.run(&["completion", "tcsh"]).fails(2, &["tcsh", "bash"]);
}
