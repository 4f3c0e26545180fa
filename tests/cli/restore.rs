//! `restore` without a cluster: what is refused before anything is asked of one.

use fleetctl::backup::{Identity, Seal};

use crate::Sandbox;
use crate::backup::make_backup;

#[test]
fn a_restore_takes_one_of_four_forms() {
    let sandbox = Sandbox::new();
    for (args, part) in [
        (&["restore", "demo"][..], "--from FILE"),
        (&["restore", "demo", "--rollback", "--from", "demo.fleet"], "`--rollback` undoes a restore"),
        (&["restore", "demo", "--rollback", "--commit"], "`--rollback` undoes a restore"),
        (&["restore", "demo", "--commit", "--release"], "cannot be used with"),
        (&["restore", "demo", "--release", "--from", "demo.fleet"], "cannot be used with"),
        (&["restore", "demo", "--forget", "west"], "--from <FILE>"),
        (&["restore", "demo", "--new"], "--from <FILE>"),
        (&["restore", "demo", "--new", "--from", "demo.fleet", "--paused"], "cannot be used with"),
        (&["restore", "demo", "--from", "demo.fleet", "--set", "a=b"], "values and patches need `--new`"),
        (&["restore", "Demo_", "--from", "demo.fleet"], "Demo_"),
    ] {
        sandbox.run(args).fails(2, &[part]);
    }
}

#[test]
fn a_backup_is_read_whole_before_a_cluster_is_asked() {
    let sandbox = Sandbox::new();
    let key = Identity::generate();
    let (archive, _) = make_backup(&Seal::Recipients(vec![key.to_recipient()]));
    let path = sandbox.path().join("demo.fleet");
    std::fs::write(&path, &archive).unwrap();
    let command = ["restore", "demo", "--from", "demo.fleet", "--yes"];
    sandbox.run(&command).fails(6, &["`demo.fleet` cannot be opened", "`--identity FILE`"]);
    sandbox.file("backup.key", key.to_text().expose());
    let opened = [&command[..], &["--identity", "backup.key"]].concat();
    // It is whole, and there is no cluster.
    sandbox.run(&opened).fails(1, &["kubeconfig"]);
    sandbox.run(&[&opened[..], &["--forget", "West_"]].concat()).fails(2, &["West_"]);
    for (length, flip) in [(archive.len() / 2, None), (archive.len(), Some(archive.len() - 40))] {
        let mut damaged = archive[..length].to_vec();
        if let Some(at) = flip {
            damaged[at] ^= 1;
        }
        std::fs::write(&path, &damaged).unwrap();
        sandbox.run(&opened).fails(1, &["`demo.fleet` is damaged", "do not use any part of this file"]);
    }
    std::fs::remove_file(&path).unwrap();
    sandbox.run(&opened).fails(1, &["demo.fleet"]);
}

#[test]
fn a_backup_that_cannot_be_installed_is_refused_without_a_cluster() {
    let sandbox = Sandbox::new();
    let (archive, _) = make_backup(&Seal::Open);
    std::fs::write(sandbox.path().join("demo.fleet"), &archive).unwrap();
    let command = ["restore", "demo", "--new", "--from", "demo.fleet", "--yes"];
    sandbox.run(&command).fails(6, &["the backup has no record of an install by fleetctl", "nothing was written"]);
    let west = ["restore", "west", "--new", "--from", "demo.fleet", "--yes"];
    sandbox.run(&west).fails(6, &["the backup is of control plane demo in namespace fleet"]);
}
