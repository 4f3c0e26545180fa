//! Files, flags and answers that nobody writes by hand: each ends in an error that says what to do, never in a signal, a
//! panic, or all of the memory.

use assert_cmd::Command;

use crate::{Ran, Sandbox};

/// Runs the program with little memory and time. A panic is looked for in what it prints: users' builds abort on one.
#[track_caller]
fn bounded(sandbox: &Sandbox, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let binary = assert_cmd::cargo::cargo_bin!("fleetctl");
    let mut command = Command::new("bash");
    command.env_clear().env("HOME", sandbox.path()).env("LC_ALL", "C.UTF-8").current_dir(sandbox.path());
    command.envs(environment.iter().copied());
    command.args(["-c", "ulimit -t 10; ulimit -v 400000; exec \"$0\" \"$@\""]).arg(binary).args(args);
    let ran = Ran::of(command.timeout(std::time::Duration::from_secs(30)).output().unwrap());
    let shown: Vec<String> = args.iter().map(|arg| arg.chars().take(60).collect()).collect();
    assert_ne!(ran.code, -1, "{shown:?} ended by a signal: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{shown:?} panicked: {}", ran.stderr);
    ran
}

const DRY: [&str; 4] = ["install", "cp", "demo", "--dry-run"];

#[test]
fn values_that_nest_too_deep_are_an_error_with_its_place_whatever_they_come_from() {
    let sandbox = Sandbox::new();
    let keys = |n: usize| vec!["a"; n].join(".");
    let lists = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    sandbox.file("key", "x");
    sandbox.file("flow.yaml", &format!("a: {}\n", lists(100_000)));
    sandbox.file("block.yaml", &(0..1000).map(|n| " ".repeat(n) + "a:\n").collect::<String>());
    sandbox.file(
        "mixed.yaml",
        &format!("{}{}\n", (0..40).map(|n| " ".repeat(n) + "a:\n").collect::<String>(), " ".repeat(40) + &lists(40)),
    );
    // JSON that is no YAML is read by another reader.
    sandbox.file("deep.json", &format!(r#"{{"b":	"\ud83d\ude00", "a": {}}}"#, lists(100)));
    let aliases: String =
        (1..9).map(|n| format!("a{n}: &a{n} {}*a{}{}\n", "[".repeat(20), n - 1, "]".repeat(20))).collect();
    sandbox.file("aliases.yaml", &format!("a0: &a0 x\n{aliases}"));
    let set = |path: &str, value: &str| format!("{path}={value}");
    let cases: [(&[&str], &str); 13] = [
        (&["--set", &set(&keys(8000), "1")], "--set:1:"),
        (&["--set", &format!("a{}=1", "[0]".repeat(8000))], "--set:1:"),
        (&["--set", &set(&keys(65), "1")], "--set:1:"),
        (&["--set-string", &set(&keys(8000), "1")], "--set-string:1:"),
        (&["--set-file", &set(&keys(8000), "key")], "--set-file:1:"),
        (&["--set-json", &set(&keys(8000), "1")], "--set-json:1:"),
        (&["--set-json", &set("a", &lists(8000))], "--set-json:1:"),
        (&["--set-json", &set(&keys(40), &lists(40))], "--set-json:1:"),
        (&["-f", "flow.yaml"], "flow.yaml:1:"),
        (&["-f", "block.yaml"], "block.yaml:65:"),
        (&["-f", "mixed.yaml"], "mixed.yaml:41:"),
        (&["-f", "deep.json"], "deep.json:1:"),
        (&["-f", "aliases.yaml"], "aliases.yaml:5:"),
    ];
    for (flags, place) in cases {
        let ran = bounded(&sandbox, &[&DRY[..], flags].concat(), &[]);
        ran.fails(2, &["error[too-deep]: values nest deeper than 64 levels", place, "^", "help: check the brackets"]);
    }
    // What is as deep as allowed is only unknown, and an index is looked at before a list is made for it.
    let deepest = set(&keys(64), "1");
    bounded(&sandbox, &[&DRY[..], &["--set", &deepest]].concat(), &[]).fails(2, &["error[unknown-key]"]);
    bounded(&sandbox, &[&DRY[..], &["--set", "a[99999999]=1"]].concat(), &[]).fails(2, &["not an index of a list"]);
}
