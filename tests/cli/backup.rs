//! `backup` without a cluster: what is refused before anything is read, and what is seen of backups on this machine.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use fleetctl::backup::{
    Contents, FORMAT, Header, Identity, KeyFile, MemberName, RevisionRange, Seal, Sidecar, Versions, write_archive,
};
use fleetctl::pki::SecretText;
use sha2::{Digest as _, Sha256};

use crate::Sandbox;

/// A public key whose secret key nobody has.
const RECIPIENT: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

/// A backup and the text of the file beside it.
pub(crate) fn make_backup(seal: &Seal) -> (Vec<u8>, String) {
    let mut snapshot: Vec<u8> = (0..4096_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let hash = Sha256::digest(&snapshot);
    snapshot.extend_from_slice(&hash);
    let header = Header {
        format: FORMAT,
        control_plane: "demo".to_owned(),
        namespace: "fleet".to_owned(),
        taken: "2027-03-12T10:15:00Z".parse().unwrap(),
        install_uid: None,
        control_plane_uid: None,
        versions: Versions {
            fleetctl: "1.2.0".to_owned(),
            service: Some("v1.2.0".to_owned()),
            api_server: None,
            etcd: "3.5.35".to_owned(),
        },
        members: vec![MemberName { id: "ff".to_owned(), name: "etcd-0".to_owned() }],
        read_from: "etcd-0".to_owned(),
        quorum: true,
        quota_bytes: None,
        revision: RevisionRange { from: 7, to: 9 },
        snapshot_bytes: snapshot.len() as u64,
        keys: true,
        fingerprints: std::collections::BTreeMap::new(),
        clusters: None,
        patches: None,
    };
    let manifest = SecretText::new("kind: Secret\nstringData: {ca.key: CANARY}\n".to_owned());
    let keys = vec![KeyFile { secret: "fleet-pki".to_owned(), manifest }];
    let contents = Contents { header, keys, values: None, record: None };
    let (archive, written) = write_archive(Vec::new(), seal, &contents, snapshot.as_slice()).unwrap();
    let openers = seal.list_openers();
    let sidecar = Sidecar::from_header(&contents.header, written.bytes, written.sha256, openers);
    (archive, serde_json::to_string(&sidecar).unwrap())
}

/// Writes a backup, and the file beside it, below the home.
fn write_backup(sandbox: &Sandbox, name: &str, seal: &Seal) -> Vec<u8> {
    let (archive, sidecar) = make_backup(seal);
    std::fs::write(sandbox.path().join(name), &archive).unwrap();
    sandbox.file(&format!("{name}.json"), &sidecar);
    archive
}

fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_seal_is_decided_before_anything_is_read() {
    let sandbox = Sandbox::new();
    let open = sandbox.file("open", "secret\n");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::set_permissions(sandbox.file("empty", "\n"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let backup = |flags: &[&str]| sandbox.run(&[&["backup", "demo", "--to", "demo.fleet"], flags].concat());
    let three = ["`--recipient age1…`", "`--passphrase-file FILE`", "`--no-keys`"];
    backup(&[]).fails(2, &three);
    backup(&["--recipient", "age1nothing"]).fails(2, &["`--recipient age1nothing`: it is not an age public key"]);
    backup(&["--recipient", "ssh-ed25519 AAAA"]).fails(2, &["it is not an age public key"]);
    let secret = Identity::generate().to_text();
    let leaked = backup(&["--recipient", secret.expose()]);
    assert!(!leaked.stderr.contains(secret.expose()), "a secret key is not repeated");
    leaked.fails(2, &["it is a secret key"]);
    backup(&["--passphrase-file", "open"])
        .fails(2, &["other users can read the passphrase in `open`", "chmod 600 open"]);
    backup(&["--passphrase-file", "empty"]).fails(2, &["the passphrase in `empty` is empty"]);
    backup(&["--passphrase-file", "none"]).fails(1, &["it does not exist"]);
    backup(&["--recipient", RECIPIENT, "--passphrase-file", "open"]).fails(2, &["cannot be used with"]);
    assert_eq!(names(&sandbox), ["empty", "open"]);
}

#[test]
fn a_target_is_refused_before_anything_is_read_and_nothing_stays() {
    let sandbox = Sandbox::new();
    sandbox.file("exists", "mine");
    std::fs::create_dir(sandbox.path().join("shared")).unwrap();
    std::fs::set_permissions(sandbox.path().join("shared"), std::fs::Permissions::from_mode(0o777)).unwrap();
    symlink("exists", sandbox.path().join("link")).unwrap();
    symlink("nothing", sandbox.path().join("dangling")).unwrap();
    let before = names(&sandbox);
    let to = |target: &str| sandbox.run(&["backup", "demo", "--recipient", RECIPIENT, "--to", target]);
    to("exists").fails(2, &["`exists` exists already"]);
    to("link").fails(6, &["`link` is a symbolic link"]);
    to("dangling").fails(6, &["`dangling` is a symbolic link"]);
    to("/dev/null").fails(6, &["`/dev/null` is a device"]);
    to("shared").fails(6, &["a folder that other users can write to"]);
    to("none/demo.fleet").fails(1, &["does not exist"]);
    // Only what is fine gets as far as the cluster, which is not there.
    to("new.fleet").fails(1, &["kubeconfig"]);
    for name in ["list", "show", "verify"] {
        sandbox.run(&["backup", "--no-keys", "--to", "new.fleet", "--", name]).fails(1, &["kubeconfig"]);
    }
    assert_eq!(names(&sandbox), before);
    assert_eq!(std::fs::read_to_string(sandbox.path().join("exists")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(sandbox.path().join("shared")).unwrap().count(), 0);
}

#[test]
fn a_backup_is_listed_shown_and_verified() {
    let sandbox = Sandbox::new();
    let identity = Identity::generate();
    sandbox.file("backup.key", &format!("# a key\n{}\n", identity.to_text().expose()));
    sandbox.file("other.key", identity_file().as_str());
    let archive = write_backup(&sandbox, "demo.fleet", &Seal::Recipients(vec![identity.to_recipient()]));
    sandbox.file("lost.fleet", "what");
    let list = sandbox.run(&["backup", "list", "."]).succeeds().to_owned();
    assert!(list.contains("demo.fleet") && list.contains("2027-03-12 10:15:00Z") && list.contains("v1.2.0"), "{list}");
    assert!(list.contains("no `.json` file describes it"), "{list}");

    let show = sandbox.run(&["backup", "show", "demo.fleet", "--identity", "backup.key"]).succeeds().to_owned();
    assert!(show.contains("controlPlane: demo") && show.contains("readFrom: etcd-0"), "{show}");
    assert!(sandbox.run(&["backup", "show", "demo.fleet"]).succeeds().contains("sealedFor:"));

    let verify = |flags: &[&str]| sandbox.run(&[&["backup", "verify", "demo.fleet"], flags].concat());
    let whole = verify(&["--identity", "backup.key"]).succeeds().to_owned();
    assert!(whole.contains("demo.fleet is complete: 3 parts") && whole.contains("revision 7 to 9"), "{whole}");
    let json: serde_json::Value =
        serde_json::from_str(verify(&["--identity", "backup.key", "-o", "json"]).succeeds()).unwrap();
    assert_eq!((&json["asWritten"], &json["parts"][1]["name"]), (&true.into(), &"keys/fleet-pki.yaml".into()));
    assert!(verify(&[]).succeeds().contains("It was not opened"));
    verify(&["--identity", "other.key"]).fails(6, &["none of the given keys opens it"]);
    verify(&["--identity", "demo.fleet.json"]).fails(6, &["is not an identity file of age"]);

    // A flipped byte is the fault of the file, whatever the key: also in the seal.
    for at in [30, 150, archive.len() - 1] {
        let mut flipped = archive.clone();
        flipped[at] ^= 1;
        std::fs::write(sandbox.path().join("demo.fleet"), flipped).unwrap();
        verify(&["--identity", "backup.key"]).fails(1, &["`demo.fleet` is damaged", "its SHA-256 does not match"]);
        verify(&["--identity", "other.key"]).fails(1, &["`demo.fleet` is damaged"]);
        verify(&[]).fails(1, &["`demo.fleet` is damaged"]);
    }
    std::fs::write(sandbox.path().join("demo.fleet"), &archive[..archive.len() / 2]).unwrap();
    verify(&["--identity", "backup.key"]).fails(1, &["is damaged", "were written"]);
    verify(&[]).fails(1, &["is damaged", "were written"]);
    // A whole one, and not the one that the file beside it describes.
    let anothers = make_backup(&Seal::Recipients(vec![identity.to_recipient()])).0;
    // The seal has filling of any length.
    let why = if anothers.len() == archive.len() { "its SHA-256 does not match" } else { "were written" };
    std::fs::write(sandbox.path().join("demo.fleet"), anothers).unwrap();
    verify(&["--identity", "backup.key"]).fails(1, &["is damaged", why]);
    std::fs::write(sandbox.path().join("demo.fleet"), &archive[..archive.len() / 2]).unwrap();
    assert!(sandbox.run(&["backup", "list", "."]).succeeds().contains("its size has changed"));
    std::fs::remove_file(sandbox.path().join("demo.fleet.json")).unwrap();
    // A piece of age that is cut looks like one that was changed.
    verify(&["--identity", "backup.key"]).fails(1, &["is damaged", "in the first", "it cannot be unpacked"]);
    let open = make_backup(&Seal::Open).0;
    std::fs::write(sandbox.path().join("demo.fleet"), &open[..open.len() / 2]).unwrap();
    verify(&[]).fails(1, &["is damaged", "the file is truncated"]);
    std::fs::write(sandbox.path().join("demo.fleet"), &archive).unwrap();
    verify(&[]).fails(6, &["it is sealed for recipients"]);
}

fn identity_file() -> String {
    Identity::generate().to_text().expose().to_owned()
}

#[test]
fn a_passphrase_opens_what_it_sealed_and_nothing_else_does() {
    let sandbox = Sandbox::new();
    sandbox.file("right", "correct horse\n");
    sandbox.file("wrong", "correct donkey\n");
    write_backup(&sandbox, "demo.fleet", &Seal::Passphrase(SecretText::new("correct horse".to_owned())));
    let verify = |file: &str| sandbox.run(&["backup", "verify", "demo.fleet", "--passphrase-file", file]);
    assert!(verify("right").succeeds().contains("is complete"));
    verify("wrong").fails(6, &["none of the given keys opens it"]);
}

#[test]
fn what_is_no_backup_is_not_waited_for() {
    let sandbox = Sandbox::new();
    assert!(std::process::Command::new("mkfifo").arg(sandbox.path().join("pipe")).status().unwrap().success());
    sandbox.file("text", "what is this");
    for file in ["pipe", "/dev/zero", "."] {
        sandbox.run(&["backup", "verify", file]).fails(1, &["expected a regular file"]);
        sandbox.run(&["backup", "show", file]).fails(1, &["expected a regular file"]);
    }
    sandbox.run(&["backup", "verify", "text"]).fails(1, &["it is not a backup of a control plane"]);
    sandbox.run(&["backup", "list", "text"]).fails(1, &["expected a folder"]);
    sandbox.run(&["backup", "list", "none"]).fails(1, &["does not exist"]);
    assert!(sandbox.run(&["backup", "list", "."]).succeeds().contains("No backup is in"));
}

/// Holds the seal against the program `age`: `cargo test --test cli the_program_age -- --ignored`.
#[test]
#[ignore = "needs Debian's package `age`"]
fn the_program_age_opens_a_backup_and_its_own_files_are_opened() {
    let sandbox = Sandbox::new();
    let run = |command: &str| {
        let ran = std::process::Command::new("bash")
            .args(["-o", "pipefail", "-c", command])
            .current_dir(sandbox.path())
            .output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    run("age-keygen -o backup.key");
    let recipient = run("age-keygen -y backup.key").trim().parse().unwrap();
    write_backup(&sandbox, "demo.fleet", &Seal::Recipients(vec![recipient]));
    let parts = run("age --decrypt --identity backup.key demo.fleet | tar -tz");
    assert_eq!(parts, "header.json\nkeys/fleet-pki.yaml\nsnapshot.db\nfooter.json\n");
    // The other way round: what `age` seals again is the same backup.
    run("age -d -i backup.key demo.fleet | age -r \"$(age-keygen -y backup.key)\" > again.fleet");
    let again = ["backup", "verify", "again.fleet", "--identity", "backup.key"];
    assert!(sandbox.run(&again).succeeds().contains("is complete"));
}
