//! `kubectl-install`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::{Ran, Sandbox};

fn bin_dir(sandbox: &Sandbox) -> String {
    let folder = sandbox.path().join("bin");
    fs::create_dir(&folder).unwrap();
    folder.display().to_string()
}

#[test]
fn the_plugin_is_linked_and_removed_again() {
    let sandbox = Sandbox::new();
    let bin = bin_dir(&sandbox);
    let plugin = sandbox.path().join("bin/kubectl-fleet");
    for _ in 0..2 {
        let ran = sandbox.run(&["kubectl-install", "--bin-dir", &bin]);
        assert!(ran.succeeds().contains("kubectl fleet --help"), "{ran:?}");
        assert!(ran.stderr.contains("not on PATH"), "{ran:?}");
        assert!(plugin.is_symlink());
    }
    sandbox.run(&["kubectl-install", "--bin-dir", &bin, "--uninstall"]).succeeds();
    assert!(!plugin.exists());
    sandbox.run(&["kubectl-install", "--bin-dir", &bin, "--uninstall"]).succeeds();
}

#[test]
fn another_plugin_before_it_on_path_is_named_and_a_folder_is_compared_as_the_file_system_has_it() {
    let sandbox = Sandbox::new();
    let folder = |name: &str| {
        fs::create_dir(sandbox.path().join(name)).unwrap();
        sandbox.path().join(name).display().to_string()
    };
    let (old, new, real) = (folder("old"), folder("new"), folder("real"));
    let linked = sandbox.path().join("linked");
    symlink(&real, &linked).unwrap();
    let linked = linked.display().to_string();
    let other = sandbox.file("old/kubectl-fleet", "#!/bin/sh\n");
    let said = |path: &str, folder: &str| {
        let args = ["kubectl-install", "--bin-dir", folder];
        let ran = Ran::of(sandbox.command().args(args).env("PATH", path).output().unwrap());
        ran.succeeds();
        ran.stderr
    };
    // What cannot be run is neither found nor hidden.
    assert_eq!(said(&format!("{old}:{new}"), &new), "");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let first = format!("kubectl finds {other} first on PATH");
    for path in [format!("{old}:{new}"), format!("/nonexistent:{old}/"), "old:new".to_owned()] {
        let shown = said(&path, &new);
        assert!(
            shown.contains(&first) || path == "old:new" && shown.contains("finds old/kubectl-fleet first"),
            "{shown}"
        );
    }
    // One that comes behind it is hidden from now on.
    for (path, folder) in [(format!("{new}:{old}"), new.as_str()), (format!("{new}/:{old}"), "new")] {
        let shown = said(&path, folder);
        assert!(
            shown.contains(&format!("this plugin hides {other} (owned by ")) && shown.contains("--name"),
            "{shown}"
        );
    }
    for (path, folder) in [
        (new.clone(), "./new/../new"),
        (real.clone(), linked.as_str()),
        (format!("{linked}/"), real.as_str()),
        (linked.clone(), linked.as_str()),
        ("real".to_owned(), linked.as_str()),
        // The same program in two folders.
        (format!("{real}:{new}"), new.as_str()),
    ] {
        assert_eq!(said(&path, folder), "", "{path} {folder}");
    }
    assert!(sandbox.path().join("new/kubectl-fleet").exists());
    assert!(said("/nonexistent", &new).contains("is not on PATH"));
}

#[test]
fn the_plugin_has_another_name_where_one_is_given() {
    let sandbox = Sandbox::new();
    let bin = bin_dir(&sandbox);
    let install = ["kubectl-install", "--bin-dir", &bin, "--name", "fleet-two"];
    let ran = sandbox.run(&install);
    assert!(ran.succeeds().contains("`kubectl fleet-two --help`"), "{ran:?}");
    // A dash in the file's name would make a subcommand of it.
    let plugin = sandbox.path().join("bin/kubectl-fleet_two");
    let completer = sandbox.path().join("bin/kubectl_complete-fleet_two");
    assert!(plugin.is_symlink() && completer.is_symlink());
    // It speaks of itself under the name that it was called by, in help, errors and completion.
    let called = |args: &[&str]| Ran::of(std::process::Command::new(&plugin).args(args).output().unwrap());
    for args in [&["install", "cp", "--help"][..], &["version", "--client"], &["completion", "--help"], &["--version"]]
    {
        let ran = called(args);
        assert!(ran.succeeds().contains("kubectl fleet-two"), "{ran:?}");
        assert!(!ran.stdout.contains("`fleetctl ") && !ran.stdout.contains("kubectl fleet`"), "{ran:?}");
    }
    assert!(called(&["instal"]).stderr.contains("kubectl fleet-two"));
    let answer = Ran::of(std::process::Command::new(&completer).args(["kubectl-inst"]).output().unwrap());
    assert!(
        answer.succeeds().starts_with("kubectl-install\t") && answer.stdout.contains("`kubectl fleet-two`"),
        "{answer:?}"
    );
    // Where the plugin installs or removes, it is itself that is meant.
    let removed = called(&["kubectl-install", "--uninstall", "--bin-dir", &bin]);
    assert!(removed.succeeds().contains("kubectl-fleet_two"), "{removed:?}");
    assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
}

#[test]
fn a_name_that_kubectl_would_not_run_is_refused() {
    let sandbox = Sandbox::new();
    let bin = bin_dir(&sandbox);
    for (name, part) in [
        ("get", "kubectl has its own command `get`"),
        ("Fleet", "lower-case letters"),
        ("../fleet", "lower-case letters"),
        ("kubectl-fleet", "leave out `kubectl-`"),
    ] {
        sandbox.run(&["kubectl-install", "--bin-dir", &bin, "--name", name]).fails(2, &[part]);
    }
    assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
}

#[test]
fn plugins_of_others_on_the_path_are_told_with_whose_they_are() {
    let sandbox = Sandbox::new();
    let program = |name: &str| {
        fs::create_dir_all(sandbox.path().join(name).parent().unwrap()).unwrap();
        let file = sandbox.file(name, "#!/bin/sh\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    };
    let bin = bin_dir(&sandbox);
    let stored = program(".krew/store/fleet/v0.11.0/fleet");
    fs::create_dir(sandbox.path().join(".krew/bin")).unwrap();
    let of_krew = sandbox.path().join(".krew/bin/kubectl-fleet");
    symlink(&stored, &of_krew).unwrap();
    let below = program("tools/kubectl-fleet-get");
    let at = |name: &str| sandbox.path().join(name).display().to_string();
    let said = |path: &str, more: &[&str]| {
        let args = [&["kubectl-install", "--bin-dir", &bin], more].concat();
        let ran = Ran::of(sandbox.command().args(args).env("PATH", path).output().unwrap());
        ran.succeeds();
        ran.stderr
    };
    let (krew, tools) = (at(".krew/bin"), at("tools"));
    let whose = "krew's plugin fleet v0.11.0: `kubectl krew uninstall fleet` removes it";
    let shown = said(&format!("{bin}:{krew}"), &[]);
    assert!(shown.contains(&format!("this plugin hides {} ({whose})", of_krew.display())), "{shown}");
    let shown = said(&format!("{krew}:{bin}"), &[]);
    assert!(shown.contains(&format!("kubectl finds {} first", of_krew.display())) && shown.contains(whose), "{shown}");
    // kubectl takes the longest name: this one has a command of the plugin.
    let shown = said(&format!("{bin}:{tools}"), &[]);
    assert!(shown.contains(&format!("kubectl runs {below} for `kubectl fleet get`")), "{shown}");
    assert_eq!(said(&format!("{krew}:{tools}:{bin}"), &["--name", "ours"]), "");
    // Where another one has the place, it is left, and named.
    fs::remove_file(sandbox.path().join("bin/kubectl-fleet")).unwrap();
    symlink(&stored, sandbox.path().join("bin/kubectl-fleet")).unwrap();
    sandbox.run(&["kubectl-install", "--bin-dir", &bin]).fails(6, &["is not this program", whose, "--name"]);
}

#[test]
fn kubectl_finds_the_copied_plugin_and_its_version() {
    let sandbox = Sandbox::new();
    let bin = bin_dir(&sandbox);
    sandbox.run(&["kubectl-install", "--copy", "--bin-dir", &bin]).succeeds();
    let plugin = sandbox.path().join("bin/kubectl-fleet");
    let ran = std::process::Command::new(&plugin).arg("--version").output().unwrap();
    assert!(String::from_utf8(ran.stdout).unwrap().starts_with("kubectl fleet version v"));
    // A copy is known again, so an upgrade may replace it.
    sandbox.run(&["kubectl-install", "--copy", "--bin-dir", &bin]).succeeds();
    assert!(plugin.is_file() && !plugin.is_symlink());
}

#[test]
fn a_copied_plugin_removes_itself_and_what_completes_it() {
    let sandbox = Sandbox::new();
    let bin = bin_dir(&sandbox);
    sandbox.run(&["kubectl-install", "--copy", "--bin-dir", &bin]).succeeds();
    let plugin = sandbox.path().join("bin/kubectl-fleet");
    let ran = std::process::Command::new(&plugin).args(["kubectl-install", "--uninstall"]).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(fs::read_dir(&bin).unwrap().count(), 0, "nothing is left");
}

#[test]
fn what_is_not_ours_is_neither_overwritten_nor_removed() {
    let sandbox = Sandbox::new();
    let bin = bin_dir(&sandbox);
    let plugin = sandbox.path().join("bin/kubectl-fleet");
    fs::write(&plugin, "#!/bin/sh\necho other\n").unwrap();
    for extra in [&[][..], &["--copy"], &["--uninstall"]] {
        let args = [&["kubectl-install", "--bin-dir", &bin], extra].concat();
        sandbox.run(&args).fails(6, &["kubectl-fleet", "is not this program"]);
    }
    assert_eq!(fs::read_to_string(&plugin).unwrap(), "#!/bin/sh\necho other\n");
    fs::remove_file(&plugin).unwrap();
    symlink("/bin/true", &plugin).unwrap();
    sandbox.run(&["kubectl-install", "--bin-dir", &bin]).fails(6, &["is not this program"]);
}

#[test]
fn a_folder_that_is_missing_is_a_usage_error() {
    let sandbox = Sandbox::new();
    sandbox.run(&["kubectl-install", "--bin-dir", "nowhere"]).fails(2, &["nowhere is not a folder", "--bin-dir"]);
}

#[test]
fn missing_rights_are_said_with_the_way_out() {
    let sandbox = Sandbox::new();
    let bin = bin_dir(&sandbox);
    let program = sandbox.path().join("fleetctl");
    fs::copy(assert_cmd::cargo::cargo_bin!("fleetctl"), &program).unwrap();
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write anywhere, so the program runs as nobody where the test runs as root.
    let root = fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let mut command = if root {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program);
        command
    } else {
        std::process::Command::new(&program)
    };
    let ran = command.args(["kubectl-install", "--bin-dir", &bin]).output().unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("sudo fleetctl kubectl-install") && stderr.contains("--bin-dir"), "{stderr}");
}
