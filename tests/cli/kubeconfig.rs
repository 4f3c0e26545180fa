//! `kubeconfig`: the file beside that of another control plane, `--merge` and `--remove`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::server::{admin_kubeconfig, list, serve, use_cluster};
use crate::status::{hosting, inside};
use crate::{Ran, Sandbox};

const THEIRS: &str = "# mine\napiVersion: v1\nkind: Config\nclusters:\n- cluster: {server: \"https://127.0.0.1:1\"} # one\n  name: one\ncontexts:\n- context: {cluster: one, user: u}\n  name: one\ncurrent-context: one\nusers:\n- name: u\n  user: {}\n";

/// A home in which `template` has made the keys of a control plane `demo`.
fn home() -> Sandbox {
    let sandbox = Sandbox::new();
    let exposure =
        ["--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.10", "--set", "exposure.port=32222"];
    sandbox.run(&[&["template", "cp", "demo"][..], &exposure].concat()).succeeds();
    fs::create_dir_all(sandbox.path().join(".kube")).unwrap();
    sandbox
}

#[test]
fn entries_are_merged_and_removed_and_the_rest_stays_to_the_byte() {
    let sandbox = home();
    let file = sandbox.path().join(".kube/config");
    fs::write(&file, THEIRS).unwrap();
    // The hosting cluster of the current context does not answer; the keys are on this machine.
    let merged = sandbox.run(&["kubeconfig", "demo", "--merge"]);
    assert!(merged.succeeds().contains("kubectl get clusters --context demo"), "{merged:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(THEIRS.lines().all(|line| text.contains(line)) && text.contains("https://192.0.2.10:32222"), "{text}");
    assert_eq!(fs::read_to_string(sandbox.path().join(".kube/config.before-fleetctl")).unwrap(), THEIRS);
    let removed = sandbox.run(&["kubeconfig", "demo", "--remove"]);
    assert!(removed.succeeds().contains("no longer in"), "{removed:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), THEIRS);
    assert!(sandbox.run(&["kubeconfig", "demo", "--remove"]).succeeds().contains("nothing to remove"));
}

#[test]
fn a_file_is_made_where_there_is_none_and_the_context_is_current_only_when_asked_for() {
    let sandbox = home();
    let file = sandbox.path().join(".kube/config");
    sandbox.run(&["kubeconfig", "demo", "--merge"]).succeeds();
    assert!(fs::read_to_string(&file).unwrap().contains("current-context: \"\""));
    sandbox.run(&["kubeconfig", "demo", "--merge", "--use"]).succeeds();
    assert!(fs::read_to_string(&file).unwrap().contains("current-context: \"demo\""));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "it holds a key");
    let removed = sandbox.run(&["kubeconfig", "demo", "--remove"]);
    assert!(removed.stderr.contains("use-context"), "{removed:?}");
}

#[test]
fn the_file_of_a_namesake_is_put_aside_and_one_of_the_same_control_plane_is_written_over() {
    let sandbox = home();
    let file = sandbox.path().join(".fleet/demo/fleet-kubeconfig");
    let read = |name: &str| fs::read_to_string(sandbox.path().join(".fleet/demo").join(name)).unwrap();
    let own = read("fleet-kubeconfig");
    fs::write(&file, own.replace("192.0.2.10", "192.0.2.11")).unwrap();
    let written = sandbox.run(&["kubeconfig", "demo"]);
    written.succeeds();
    assert!(!written.stderr.contains("another control plane") && read("fleet-kubeconfig") == own, "{written:?}");
    // Each is kept, and is its owner's alone.
    for aside in ["fleet-kubeconfig.before-fleetctl", "fleet-kubeconfig.before-fleetctl-2"] {
        let namesake = fs::read_to_string(home().path().join(".fleet/demo/fleet-kubeconfig")).unwrap();
        fs::write(&file, &namesake).unwrap();
        let written = sandbox.run(&["kubeconfig", "demo"]);
        assert!(written.succeeds().contains(&file.display().to_string()), "{written:?}");
        let kept = sandbox.path().join(".fleet/demo").join(aside);
        let told = format!(
            "warning: {} belonged to another control plane; it was renamed to {}\n",
            file.display(),
            kept.display()
        );
        assert!(written.stderr.contains(&told), "{written:?}");
        assert_eq!((read("fleet-kubeconfig"), read(aside)), (own.clone(), namesake));
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_name_that_is_taken_and_a_lock_are_refused() {
    let sandbox = home();
    let file = sandbox.path().join(".kube/config");
    let taken = THEIRS.replace("one", "demo");
    fs::write(&file, &taken).unwrap();
    sandbox.run(&["kubeconfig", "demo", "--merge"]).fails(6, &["cluster `demo`", "rename"]);
    sandbox.run(&["kubeconfig", "demo", "--remove"]).fails(6, &["context `demo`"]);
    fs::write(sandbox.path().join(".kube/config.lock"), "").unwrap();
    sandbox.run(&["kubeconfig", "demo", "--merge"]).fails(6, &["another program", "config.lock"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), taken);
}

#[test]
fn a_file_that_others_can_read_is_closed_when_the_key_is_put_into_it() {
    let sandbox = home();
    let file = sandbox.path().join(".kube/config");
    fs::write(&file, THEIRS).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let merged = sandbox.run(&["kubeconfig", "demo", "--merge"]);
    assert_eq!(merged.succeeds().matches("its mode was set to 0600").count(), 1, "{merged:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!sandbox.run(&["kubeconfig", "demo", "--merge"]).succeeds().contains("its mode was set to 0600"));
}

#[test]
fn every_file_of_the_list_is_looked_through_for_the_name() {
    let sandbox = home();
    let first = sandbox.file("first", &THEIRS.replace("name: u", "name: other").replace("user: u", "user: other"));
    let theirs = sandbox.file("theirs", &THEIRS.replace("one", "demo"));
    let before = fs::read_to_string(&first).unwrap();
    let run = |list: &[&str], args: &[&str]| {
        let variable = list.join(":");
        let args = [&["kubeconfig", "demo"], args].concat();
        Ran::of(sandbox.command().args(args).env("KUBECONFIG", variable).output().unwrap())
    };
    // kubectl takes a name from the first file that has it, so ours would hide theirs.
    run(&[&first, &theirs], &["--merge"]).fails(6, &["theirs", "`demo`", "rename"]);
    assert_eq!(fs::read_to_string(&first).unwrap(), before);
    // Ours are changed and removed where they are, be that not the first file.
    let second = sandbox.file("second", THEIRS);
    run(&[&second], &["--merge"]).succeeds();
    let merged = run(&[&first, &second], &["--merge"]);
    assert!(merged.succeeds().contains("is in ") && merged.stdout.contains("/second"), "{merged:?}");
    assert_eq!(fs::read_to_string(&first).unwrap(), before);
    let removed = run(&[&first, &second], &["--remove"]);
    assert!(removed.succeeds().contains("/second") && !removed.stdout.contains("/first"), "{removed:?}");
    assert_eq!(fs::read_to_string(&second).unwrap(), THEIRS);
    let nothing = run(&[&first, &second], &["--remove"]);
    assert!(nothing.succeeds().contains("/first, ") && nothing.stdout.contains("nothing to remove"), "{nothing:?}");
    run(&[&first, &theirs], &["--remove"]).fails(6, &["theirs", "context `demo`"]);
}

/// A kubeconfig of control plane `demo` whose user also runs a program, or reads a file, of somebody else's choice.
fn changed(mark: &std::path::Path, with: &str) -> String {
    let with = with.replace("MARK", &mark.display().to_string());
    admin_kubeconfig("demo", "http://127.0.0.1:1").replace("token: hub", &with)
}

const EXEC: &str =
    "exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [MARK], interactiveMode: Never}";

/// Commands that connect by the kubeconfig that the hosting cluster keeps, or hand it on.
const BY_KUBECONFIG: [&[&str]; 8] = [
    &["status", "demo"],
    &["check", "demo"],
    &["version"],
    &["uninstall", "control-plane", "demo", "--delete-data", "--yes"],
    &["kubeconfig", "demo"],
    &["kubeconfig", "demo", "--show"],
    &["kubeconfig", "demo", "--merge"],
    &["get", "clusters", "--context", "demo"],
];

#[test]
fn a_kubeconfig_that_somebody_changed_in_its_secret_runs_nothing_and_is_not_handed_on() {
    for with in [
        EXEC,
        "tokenFile: MARK",
        "client-key: MARK",
        "auth-provider: {name: gcp, config: {cmd-path: touch, cmd-args: MARK}}",
    ] {
        let sandbox = Sandbox::new();
        let mark = sandbox.path().join("ran");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-kubeconfig", "namespace": "fleet",
            "labels": {"fleet-scheduler.io/install": "demo", "app.kubernetes.io/part-of": "fleet"}},
            "data": {"kubeconfig": STANDARD.encode(changed(&mark, with))}});
        let hub = serve(|_, path| inside(path));
        use_cluster(
            &sandbox,
            &serve(move |_, path| match path.split('?').next().unwrap() {
                "/api/v1/namespaces/fleet/secrets/fleet-kubeconfig" => (200, secret.clone()),
                "/api/v1/namespaces/fleet/secrets" => list(std::slice::from_ref(&secret)),
                path => hosting(path, &hub, 1),
            }),
        );
        let field = format!("users[0].user.{}", with.split(':').next().unwrap());
        let before = fs::read_to_string(sandbox.path().join(".kube/config")).unwrap();
        for command in BY_KUBECONFIG {
            let ran = sandbox.run(command);
            assert!(!mark.exists(), "`{with}` had its way with {command:?}: {ran:?}");
            if command[0] == "kubeconfig" {
                ran.fails(1, &["not used", "Secret fleet/fleet-kubeconfig", &field]);
            }
            if command[0] == "status" {
                assert!(ran.stdout.contains(&field) || ran.stderr.contains(&field), "{ran:?}");
            }
        }
        assert_eq!(fs::read_to_string(sandbox.path().join(".kube/config")).unwrap(), before);
        assert!(!sandbox.path().join(".fleet/demo/fleet-kubeconfig").exists());
    }
}

#[test]
fn a_file_that_an_earlier_release_copied_from_a_secret_runs_nothing_either() {
    let sandbox = Sandbox::new();
    let mark = sandbox.path().join("ran");
    fs::create_dir_all(sandbox.path().join(".fleet/demo")).unwrap();
    let file = sandbox.file(".fleet/demo/fleet-kubeconfig", &changed(&mark, EXEC));
    for command in BY_KUBECONFIG {
        let ran = sandbox.run(command);
        assert!(!mark.exists(), "{command:?}: {ran:?}");
        if command[0] == "get" {
            ran.fails(1, &[&file, "users[0].user.exec", "fleetctl kubeconfig demo"]);
        }
    }
    // What the user's own kubeconfig names is run, as by kubectl.
    fs::create_dir_all(sandbox.path().join(".kube")).unwrap();
    sandbox.file(".kube/config", &changed(&mark, EXEC));
    sandbox.run(&["get", "clusters", "--context", "demo"]);
    assert!(mark.exists());
}

#[test]
fn a_device_is_no_kubeconfig_to_merge_into_and_a_link_is_written_through() {
    let sandbox = home();
    let merge = |kubeconfig: &str| {
        Ran::of(
            sandbox.command().args(["kubeconfig", "demo", "--merge"]).env("KUBECONFIG", kubeconfig).output().unwrap(),
        )
    };
    let link = sandbox.path().join("null");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let before = fs::read_dir("/dev").unwrap().count();
    for device in ["/dev/null", link.to_str().unwrap()] {
        merge(device).fails(6, &["/dev/null", "a device", "--kubeconfig"]);
    }
    assert_eq!(fs::read_dir("/dev").unwrap().count(), before, "nothing is made beside it");
    assert!(!fs::metadata("/dev/null").unwrap().is_file() && link.is_symlink());
    let link = sandbox.path().join(".kube/config");
    std::os::unix::fs::symlink("real", &link).unwrap();
    sandbox.run(&["kubeconfig", "demo", "--merge"]).succeeds();
    assert!(link.is_symlink());
    assert!(fs::read_to_string(sandbox.path().join(".kube/real")).unwrap().contains("192.0.2.10"));
}
