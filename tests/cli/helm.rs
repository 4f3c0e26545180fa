//! The table of `docs/coming-from-helm.md`: every line of it is what the program does.

use std::path::Path;

use crate::docs::words;
use crate::{Ran, Sandbox};

struct Row {
    theirs: String,
    ours: String,
}

fn rows() -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/coming-from-helm.md");
    let text = std::fs::read_to_string(page).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Helm |"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        Row { theirs: cells[0].trim_start_matches("| ").to_owned(), ours: cells[1].to_owned() }
    };
    lines.map(row).collect()
}

fn spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// A home with the files that the table names.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("my.yaml", "exposure: {type: NodePort, host: 192.0.2.10, port: 32222}\n");
    sandbox.file("patch.yaml", "kind: Deployment\nmetadata: {name: apiserver}\nspec: {minReadySeconds: 5}\n");
    let images = sandbox.run(&["show", "images", "cp", "-o", "name"]).succeeds().to_owned()
        + sandbox.run(&["show", "images", "cp", "-o", "name", "--version", "v1.1"]).succeeds();
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let lines: String = images.lines().map(|image| format!("{image} {digest}\n")).collect();
    let digests = sandbox.file("digests.txt", &lines);
    let lock = sandbox.run(&["show", "images", "cp", "--digests", &digests]);
    sandbox.file("images.lock", lock.succeeds());
    sandbox
}

/// Returns whether a command asks no cluster.
fn is_offline(args: &[String]) -> bool {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    match args[0].as_str() {
        "template" | "lint" | "show" | "versions" | "completion" => true,
        "install" => has("--dry-run"),
        _ => false,
    }
}

#[test]
fn every_command_of_the_table_is_run_or_at_least_read() {
    let sandbox = sandbox();
    let (mut run, mut read) = (0, 0);
    for Row { ours, .. } in rows() {
        for command in spans(&ours) {
            let rest = command.strip_prefix("fleetctl ").unwrap_or_else(|| panic!("{command} is no command"));
            let mut args = words(rest);
            if is_offline(&args) {
                run += 1;
            } else {
                read += 1;
                args.push("--help".to_owned());
            }
            let ran = Ran::of(sandbox.command().args(&args).output().unwrap());
            assert_eq!(ran.code, 0, "{command}: {ran:?}");
            assert!(!ran.stdout.is_empty(), "{command}");
        }
    }
    assert!(run > 30 && read > 25, "{run} run, {read} read");
}

#[test]
fn a_flag_that_is_not_there_says_what_there_is() {
    let sandbox = Sandbox::new();
    let commands: [&[&str]; 5] = [
        &["install", "cp", "demo"],
        &["template", "cp", "demo"],
        &["diff", "cp", "demo"],
        &["rollback", "demo"],
        &["lint"],
    ];
    let mut tried = 0;
    for Row { theirs, ours } in rows().into_iter().filter(|row| row.ours == "—") {
        for flag in spans(&theirs).into_iter().filter(|flag| flag.starts_with("--")) {
            tried += 1;
            for command in commands {
                let ran = sandbox.run(&[command, &[flag]].concat());
                ran.fails(2, &["tip: "]);
            }
        }
        assert!(ours == "—" && !theirs.is_empty());
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn a_flag_of_helm_is_one_here_or_has_a_tip() {
    let sandbox = Sandbox::new();
    for Row { theirs, ours } in rows() {
        for flag in spans(&theirs).into_iter().filter(|flag| flag.starts_with("--")) {
            let flag = flag.split([' ', '=']).next().unwrap();
            let is_ours = ours.contains(flag);
            let ran = sandbox.run(&["install", "cp", "demo", flag, "--help"]);
            let has_tip = ran.code == 2 && ran.stderr.contains("tip: ");
            let takes_value = ran.stderr.contains("a value is required for");
            assert!(is_ours || has_tip || takes_value || ran.code == 0, "{flag}: {ran:?}");
        }
    }
}
