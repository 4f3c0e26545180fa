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
    // What cannot be run is not found either.
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
    for (path, folder) in [
        (format!("{new}:{old}"), new.as_str()),
        (format!("{new}/:{old}"), "new"),
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
