//! Help, version and usage errors.

use crate::{Ran, Sandbox};

#[test]
fn help_lists_the_commands_of_the_specification_in_groups() {
    let sandbox = Sandbox::new();
    let help = sandbox.run(&["--help"]);
    let lines: Vec<&str> = help.succeeds().lines().collect();
    let place = |start: &str| {
        lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("`{start}`: {}", help.stdout))
    };
    for (group, commands) in [
        ("Install and remove:", ["install", "uninstall", "rollback"].as_slice()),
        ("Inspect:", &["status", "get", "check"]),
        ("Workload clusters:", &["accept", "delete"]),
        ("Charts and values, without a cluster:", &["template", "versions"]),
        ("This machine:", &["kubectl-install", "help"]),
    ] {
        let end = lines[place(group)..].iter().position(|line| line.is_empty()).unwrap() + place(group);
        for command in commands {
            let at = place(&format!("  {command} "));
            assert!(place(group) < at && at < end, "`{command}` is not below `{group}`: {}", help.stdout);
        }
    }
    assert!(help.stdout.contains("-v, --version") && help.stdout.contains("-h, --help"), "{help:?}");
    assert_eq!(sandbox.run(&["help"]).succeeds(), help.stdout);
    // Nothing at all is a mistake, which is answered with the same text.
    sandbox.run(&[]).fails(2, &["Install and remove:\n  install "]);
    let narrow = Ran::of(sandbox.command().arg("--help").env("COLUMNS", "60").output().unwrap());
    assert!(
        narrow.succeeds().lines().all(|line| line.chars().count() <= 60 || line.contains("  FLEET_")),
        "{narrow:?}"
    );
}

#[test]
fn version_names_program_release_commit_and_time() {
    let sandbox = Sandbox::new();
    for flag in ["-v", "--version"] {
        let version = sandbox.run(&[flag]);
        let words: Vec<&str> = version.succeeds().split_whitespace().collect();
        assert_eq!(words[..3], ["fleetctl", "version", concat!("v", env!("CARGO_PKG_VERSION"))], "{version:?}");
        assert_eq!(words[3], "(git:", "{version:?}");
        assert!(words[4].ends_with(')') && words[5] == "built:" && words[6].len() == 14, "{version:?}");
    }
}

#[test]
fn the_plugin_speaks_of_itself_as_kubectl_fleet() {
    let sandbox = Sandbox::new();
    let plugin = sandbox.path().join("kubectl-fleet");
    std::os::unix::fs::symlink(assert_cmd::cargo::cargo_bin!("fleetctl"), &plugin).unwrap();
    let help = Ran::of(std::process::Command::new(&plugin).args(["install", "--help"]).output().unwrap());
    assert!(help.succeeds().contains("Usage: kubectl fleet install"), "{help:?}");
    for args in [&["install", "cp", "--help"][..], &["help", "version"], &["version", "--client"]] {
        let ran = Ran::of(std::process::Command::new(&plugin).args(args).output().unwrap());
        assert!(ran.succeeds().contains("kubectl fleet "), "{ran:?}");
        assert!(!ran.stdout.contains("fleetctl "), "{ran:?}");
    }
}

#[test]
fn wrong_usage_is_an_error_document_where_json_is_asked_for() {
    let sandbox = Sandbox::new();
    for args in [
        &["status", "-o", "json", "--foo"][..],
        &["lint", "-o=json", "--bogus"],
        &["install", "cp", "--output=json", "--dryrun"],
        &["show", "-ojson"],
    ] {
        let ran = sandbox.run(args);
        ran.fails(2, &[]);
        let line: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!((&line["type"], &line["sequence"]), (&"error".into(), &1.into()), "{line}");
        assert_eq!((&line["error"]["reason"], &line["error"]["exitCode"]), (&"Usage".into(), &2.into()), "{line}");
        let message = line["error"]["message"].as_str().unwrap();
        assert!(!message.starts_with("error") && message.contains('\''), "{line}");
    }
    let near = sandbox.run(&["install", "cp", "-o", "json", "--dryrun"]);
    near.fails(2, &["a similar argument exists: '--dry-run'", "Usage: fleetctl install"]);
    let missing: serde_json::Value = serde_json::from_str(&sandbox.run(&["-o", "json"]).stderr).unwrap();
    assert_eq!(missing["error"]["reason"], "Usage");
    sandbox.run(&["status", "-o", "text", "--", "-o", "json"]).fails(2, &["error: ", "For more information"]);
    assert!(sandbox.run(&["explain", "Usage"]).succeeds().contains("The command line cannot be parsed."));
}

#[test]
fn what_every_command_takes_stands_below_what_is_a_commands_own() {
    let sandbox = Sandbox::new();
    for (command, own) in
        [("check", "Values:"), ("lint", "Values:"), ("template agent", "Output:"), ("show images", "Values:")]
    {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = sandbox.run(&words);
        let (own, all) = (help.succeeds().find(own), help.stdout.find("Global options:"));
        assert!(own.is_some() && own < all, "{help:?}");
    }
}

#[test]
fn the_order_in_which_values_win_has_the_environment_where_it_is_read() {
    let sandbox = Sandbox::new();
    let help = |words: &[&str]| sandbox.run(&[words, &["--help"]].concat()).succeeds().to_owned();
    assert!(help(&["template", "cp"]).contains("  2  environment, such as FLEET_NODE_IP  "));
    for words in [["install", "cp"], ["upgrade", "cp"]] {
        let help = help(&words);
        assert!(help.contains("  2  values of the last install  "), "{words:?}");
        assert!(help.contains("  3  environment, such as FLEET_NODE_IP  "), "{words:?}");
    }
    assert!(help(&["upgrade", "agent"]).contains("  3  --preset NAME  "));
    assert!(help(&["template", "agent"]).contains("  2  --preset NAME  "));
}

#[test]
fn wrong_commands_and_flags_are_usage_errors_with_a_suggestion() {
    let sandbox = Sandbox::new();
    sandbox.run(&["instal"]).fails(2, &["instal", "install"]);
    sandbox.run(&["install", "cp", "demo", "--dryrun"]).fails(2, &["--dry-run"]);
    sandbox.run(&["status", "--namespace", "Not_Valid"]).fails(2, &["Not_Valid", "lower-case"]);
}

#[test]
fn versions_lists_the_rows_of_the_specification() {
    let sandbox = Sandbox::new();
    let table = sandbox.run(&["versions"]);
    for (line, minors) in [
        ("v1.2", "v1.31, v1.32, v1.33, v1.34, v1.35, v1.36, v1.37"),
        ("v1.1", "v1.29, v1.30, v1.31"),
        ("v1.0", "v1.29, v1.30, v1.31"),
        ("v0.9", "v1.26, v1.27, v1.28, v1.29"),
        ("v0.8", "v1.26, v1.27, v1.28, v1.29"),
        ("v0.7", "v1.25, v1.26, v1.27, v1.28"),
        ("v0.6", "v1.24, v1.25"),
    ] {
        let row = table.succeeds().lines().find(|row| row.starts_with(line));
        assert!(row.is_some_and(|row| row.contains(minors)), "{line}: {table:?}");
    }
    let json: serde_json::Value = serde_json::from_str(sandbox.run(&["versions", "-o", "json"]).succeeds()).unwrap();
    assert_eq!(json[0]["version"], "v1.2");
}

#[test]
fn a_reader_that_goes_away_is_not_an_error() {
    let sandbox = Sandbox::new();
    let script = format!("'{}' versions -o yaml | head -n 1", assert_cmd::cargo::cargo_bin!("fleetctl").display());
    let ran = std::process::Command::new("bash")
        .args(["-o", "pipefail", "-c", &script])
        .env("HOME", sandbox.path())
        .output()
        .unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
}
