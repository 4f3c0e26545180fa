//! `diff` and `install --dry-run=server` as far as they need no cluster: what is wrong is said, and never as exit 1.

use crate::Sandbox;

#[test]
fn a_wrong_command_line_is_told_before_any_cluster_is_asked() {
    let sandbox = Sandbox::new();
    sandbox.run(&["diff", "control-plane", "My_Plane"]).fails(2, &["My_Plane", "`my-plane`"]);
    sandbox.run(&["diff", "cp"]).fails(2, &["has no name"]);
    sandbox.run(&["diff", "cp", "demo", "--set", "etcd.replicass=1"]).fails(2, &["replicass"]);
    sandbox.run(&["diff", "cp", "demo", "--skip-preflight", "nothing"]).fails(2, &["nothing", "storage"]);
    sandbox.run(&["diff", "cp", "demo", "-o", "xml"]).fails(2, &["xml", "json"]);
    sandbox.run(&["install", "cp", "demo", "--dry-run=elsewhere"]).fails(2, &["elsewhere", "client", "server"]);
}

#[test]
fn without_a_cluster_the_exit_code_is_an_error_and_not_a_difference() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["diff", "cp", "demo"]);
    assert!(ran.code > 1, "{ran:?}");
    assert!(ran.stderr.contains("KUBECONFIG"), "{ran:?}");
    for what in [["cp", "demo"], ["agent", "west"]] {
        sandbox.run(&[&["install"], &what[..], &["--dry-run=server"]].concat()).fails(1, &["KUBECONFIG"]);
    }
}

#[test]
fn a_dry_run_is_one_of_the_client_unless_it_says_otherwise() {
    let sandbox = Sandbox::new();
    for (what, name) in [("cp", "demo"), ("agent", "west")] {
        let plain = sandbox.run(&["install", what, name, "--dry-run"]);
        let named = sandbox.run(&["install", what, name, "--dry-run=client"]);
        assert_eq!(plain.succeeds(), named.succeeds());
        // The value needs its sign, so that a name that follows is not taken for it.
        assert_eq!(sandbox.run(&["install", what, "--dry-run", name]).succeeds(), plain.stdout);
    }
}
