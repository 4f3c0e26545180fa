//! Files of this machine that cannot be read, written or replaced: the path, the cause, whose it is, and the command that mends it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::check::empty;
use crate::server::{serve, use_cluster};
use crate::{Ran, Sandbox};

const TEMPLATE: [&str; 9] = [
    "template",
    "cp",
    "demo",
    "--version",
    "v1.1",
    "--set",
    "exposure.type=NodePort",
    "--set",
    "exposure.host=192.0.2.10,exposure.port=32222",
];

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Runs the program as nobody, in a home that nobody may enter.
fn as_nobody(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let program = sandbox.path().join("program");
    if !program.exists() {
        fs::copy(assert_cmd::cargo::cargo_bin!("fleetctl"), &program).unwrap();
        fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program).args(args);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("HOME", sandbox.path()).env("PATH", path).current_dir("/");
    Ran::of(command.output().unwrap())
}

/// Runs the program after `mounts`, lines of a shell, with mounts of its own; none where the machine allows no mounts.
fn mounted(sandbox: &Sandbox, mounts: &str, args: &[&str]) -> Option<Ran> {
    let mut command = Command::new("unshare");
    let script = format!("{{ {mounts}\n}} >&2 || exit 77\nexec \"$@\"");
    command.args(["-m", "sh", "-c", &script, "sh"]).arg(assert_cmd::cargo::cargo_bin!("fleetctl")).args(args);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("HOME", sandbox.path()).env("PATH", path).current_dir(sandbox.path());
    let ran = Ran::of(command.output().unwrap());
    (is_root() && ran.code != 77).then_some(ran)
}

#[test]
fn files_of_root_in_a_home_are_named_with_their_owner() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    // Once with sudo and the user's own HOME.
    sandbox.run(&TEMPLATE).succeeds();
    fs::set_permissions(sandbox.path().join(".fleet"), fs::Permissions::from_mode(0o700)).unwrap();
    let home = sandbox.path().display().to_string();
    let owner = format!("permission denied: `{home}/.fleet` is owned by root (mode 0700), and this program runs as ");
    let command = format!(" {home}/.fleet`");
    let told = |ran: &Ran| {
        ran.fails(1, &[&owner, "take ownership again: `sudo chown -R ", &command]);
        assert!(!ran.stderr.contains("delete-data") && !ran.stderr.contains("there is no"), "{ran:?}");
    };
    told(&as_nobody(&sandbox, &TEMPLATE));
    told(&as_nobody(&sandbox, &["kubeconfig", "demo", "--show"]));
    told(&as_nobody(&sandbox, &["get", "clusters", "--context", "demo"]));
    told(&as_nobody(&sandbox, &["status", "demo"]));
    told(&as_nobody(&sandbox, &["status"]));
    // One file alone, in folders of one's own.
    let key = sandbox.path().join(".fleet/demo/fleet-kubeconfig");
    for part in [".fleet", ".fleet/demo"] {
        std::os::unix::fs::chown(sandbox.path().join(part), Some(65534), Some(65534)).unwrap();
    }
    let ran = as_nobody(&sandbox, &["get", "clusters", "--context", "demo"]);
    ran.fails(1, &["is owned by root (mode 0600)", &format!(" {}`", key.display())]);
    assert!(!ran.stderr.contains("chown -R"), "{ran:?}");
    // Where the permission alone is missing, it is that which is named.
    std::os::unix::fs::chown(&key, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o0)).unwrap();
    let ran = as_nobody(&sandbox, &["get", "clusters", "--context", "demo"]);
    ran.fails(1, &[&format!("`chmod u+rw {}`", key.display())]);
    // It is neither replaced by another identity nor set aside.
    as_nobody(&sandbox, &TEMPLATE).fails(1, &["permission denied"]);
    assert_eq!(fs::read_dir(sandbox.path().join(".fleet/demo")).unwrap().count(), 2);
}

#[test]
fn a_kubeconfig_that_may_not_be_read_is_not_one_that_is_missing() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join(".kube")).unwrap();
    sandbox.file(".kube/config", "apiVersion: v1\nkind: Config\n");
    fs::set_permissions(sandbox.path().join(".kube"), fs::Permissions::from_mode(0o700)).unwrap();
    let folder = format!("`{}/.kube` is owned by root", sandbox.path().display());
    for args in [&["get", "clusters"][..], &["status", "demo"], &["check", "--pre"], &["kubeconfig", "demo", "--show"]]
    {
        let ran = as_nobody(&sandbox, args);
        ran.fails(1, &["cannot use the kubeconfig", &folder, "sudo chown -R "]);
        assert!(!ran.stderr.contains("does not exist"), "{ran:?}");
    }
    // Entries in it may be those that are to be removed.
    as_nobody(&sandbox, &["kubeconfig", "demo", "--remove"]).fails(1, &[&folder, "sudo chown -R "]);
    // Of somebody else outside of the home, a copy is what helps.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("admin.yaml");
    fs::write(&file, "apiVersion: v1\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.display().to_string();
    for args in [&["get", "clusters", "--kubeconfig", &file][..], &["lint", "--values", &file]] {
        let ran = as_nobody(&sandbox, args);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.code != 0 && text.contains("is owned by root (mode 0600)"), "{ran:?}");
        assert!(text.contains("`sudo install -m 600 -o ") && !text.contains("chown"), "{ran:?}");
    }
}

#[test]
fn keys_that_are_empty_or_cut_are_named_and_nothing_is_to_be_deleted() {
    let sandbox = Sandbox::new();
    sandbox.run(&TEMPLATE).succeeds();
    let keys = sandbox.path().join(".fleet/demo/pki");
    for name in
        ["ca.key", "ca.crt", "sa.key", "sa.pub", "encryption.yaml", "etcd-ca.key", "etcd-ca.crt", "front-proxy-ca.crt"]
    {
        let whole = fs::read(keys.join(name)).unwrap();
        let zeros = vec![0; whole.len()];
        for (damaged, told) in
            [(&whole[..0], "is empty"), (&zeros[..], "is empty"), (&whole[..whole.len() / 2], "is truncated")]
        {
            fs::write(keys.join(name), damaged).unwrap();
            let ran = sandbox.run(&TEMPLATE);
            ran.fails(1, &[&format!("`{name}` {told}"), "restore that folder from a backup"]);
            assert!(!ran.stderr.contains("delete-data"), "{ran:?}");
            assert_eq!(fs::read(keys.join(name)).unwrap(), damaged, "{name} is left as it is");
        }
        fs::write(keys.join(name), whole).unwrap();
    }
    sandbox.run(&TEMPLATE).succeeds();
    // The kubeconfig may be that of an install, and tells nothing any more.
    let file = sandbox.path().join(".fleet/demo/fleet-kubeconfig");
    let whole = fs::read(&file).unwrap();
    for (damaged, told) in [(&whole[..0], "is empty"), (&whole[..whole.len() / 2], "is truncated")] {
        fs::write(&file, damaged).unwrap();
        for args in [&TEMPLATE[..], &["get", "clusters", "--context", "demo"]] {
            let ran = sandbox.run(args);
            ran.fails(1, &["fleet-kubeconfig", told, "`fleetctl kubeconfig demo`"]);
            assert!(!ran.stderr.contains("delete-data"), "{ran:?}");
        }
    }
    // What is told mends it.
    sandbox.run(&["kubeconfig", "demo"]).succeeds();
    sandbox.run(&TEMPLATE).succeeds();
    assert_eq!(fs::read(&file).unwrap(), whole);
}

#[test]
fn an_install_refuses_a_kubeconfig_that_it_could_not_write_at_its_end() {
    let sandbox = Sandbox::new();
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let server = serve(move |method, path| {
        if method != "GET" && !path.contains("/selfsubject") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        empty(method, path)
    });
    use_cluster(&sandbox, &server);
    fs::create_dir_all(sandbox.path().join(".fleet/demo/fleet-kubeconfig")).unwrap();
    let ran = sandbox.run(&["install", "cp", "demo", "--version", "v1.1", "--set", "exposure.host=192.0.2.10"]);
    ran.fails(1, &["/.fleet/demo/fleet-kubeconfig` is a folder", "`ls -ld ", "nothing was written to the cluster"]);
    assert_eq!(written.load(Ordering::SeqCst), 0);
}

#[test]
fn an_empty_kubeconfig_is_named_as_that() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("empty", "");
    for more in [&[][..], &["--context", "west"]] {
        let ran = sandbox.run(&[&["get", "clusters", "--kubeconfig", &file], more].concat());
        assert!(ran.code != 0 && ran.stderr.contains(&format!("{file} is an empty file")), "{ran:?}");
    }
}

#[test]
fn a_full_a_read_only_and_a_bound_place_are_told_with_their_mount() {
    let sandbox = Sandbox::new();
    let home = sandbox.path().display().to_string();
    let folder = sandbox.path().join(".fleet");
    fs::create_dir(&folder).unwrap();
    for (options, parts) in [
        (
            "size=12k",
            [format!("no space left on the file system at `{home}/.fleet`"), format!("`df -h {home}/.fleet`")],
        ),
        (
            "ro",
            [
                format!("the file system at `{home}/.fleet` is read-only"),
                format!("`sudo mount -o remount,rw {home}/.fleet`"),
            ],
        ),
    ] {
        let mount = format!("mount -t tmpfs -o {options} none {home}/.fleet");
        let Some(ran) = mounted(&sandbox, &mount, &TEMPLATE) else { return };
        ran.fails(1, &parts.each_ref().map(String::as_str));
    }
    sandbox.run(&TEMPLATE).succeeds();
    fs::create_dir(sandbox.path().join(".kube")).unwrap();
    let text = "apiVersion: v1\nkind: Config\n";
    let file = sandbox.file(".kube/config", text);
    let bound = mounted(&sandbox, &format!("mount --bind {file} {file}"), &["kubeconfig", "demo", "--merge"]);
    let parts = [
        format!("cannot change the kubeconfig `{file}`"),
        format!("`{file}` is a mount point, so no other file can take its place"),
        format!("mount its folder {home}/.kube instead of the file"),
    ];
    bound.unwrap().fails(1, &parts.each_ref().map(String::as_str));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert!(!Path::new(&format!("{file}.lock")).exists());
}
