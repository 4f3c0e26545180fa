//! Backups of a control plane that runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fleetctl::backup::{Identity, Opening, verify_archive};
use serde_json::Value;

use crate::support::Site;

/// A folder for backups, and a key that opens them.
pub(crate) struct BackupFolder {
    pub(crate) folder: String,
    /// The file with the key.
    pub(crate) identity: String,
    pub(crate) recipient: String,
    key: Identity,
}

impl BackupFolder {
    /// Makes the folder `backups` and the file `backup.key`, both for their owner alone.
    pub(crate) fn make_in(parent: &Path) -> Self {
        let key = Identity::generate();
        let (folder, identity) = (parent.join("backups"), parent.join("backup.key"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&identity, key.to_text().expose()).unwrap();
        for (path, mode) in [(&folder, 0o700), (&identity, 0o600)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        Self { folder: text(&folder), identity: text(&identity), recipient: key.to_recipient().to_string(), key }
    }
}

#[test]
fn a_backup_of_a_running_control_plane_is_whole() {
    let site = Site::on("current");
    let flags = [&["--preset", "nodeport"][..], site.version()].concat();
    site.install(&flags).succeeds();
    site.hub(&["create", "configmap", "before", "--from-literal=canary=one"]);
    let pods = || site.kubectl(&["-n", "fleet", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]);
    let before = pods();

    let BackupFolder { folder, identity, recipient, key } = BackupFolder::make_in(site.home());
    let (folder, identity) = (folder.as_str(), identity.as_str());
    let backup = ["backup", "demo", "--to", folder];
    let made = site.fleetctl(&[&backup[..], &["--recipient", &recipient]].concat());
    assert!(made.succeeds().contains("read from etcd-0") && made.stdout.contains("SHA-256"), "{made:?}");

    let listed = site.fleetctl(&["backup", "list", folder, "-o", "json"]);
    let listed: Value = serde_json::from_str(listed.succeeds()).unwrap();
    let name = listed[0]["file"].as_str().unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["problem"]), (1, &Value::Null), "{listed}");
    let path = format!("{folder}/{name}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let verified = site.fleetctl(&["backup", "verify", &path, "--identity", identity, "-o", "json"]);
    let verified: Value = serde_json::from_str(verified.succeeds()).unwrap();
    let header = &verified["header"];
    assert_eq!(
        (&header["controlPlane"], &header["quorum"], &header["clusters"]),
        (&"demo".into(), &true.into(), &serde_json::json!([]))
    );
    let revision = |end: &str| header["revision"][end].as_i64().unwrap();
    assert!(revision("from") > 1 && revision("from") <= revision("to"), "{header}");
    let parts: Vec<&str> =
        verified["parts"].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(parts, ["header.json", "keys/fleet-pki.yaml", "values.yaml", "record.json", "snapshot.db"]);
    let uid = site.hub(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]);
    assert_eq!(header["controlPlaneUid"], uid.trim());
    // The library finds the same without the program.
    let opening = Opening { identities: vec![key], passphrase: None };
    verify_archive(std::fs::File::open(&path).unwrap(), &opening).unwrap();

    // Another one, without keys and from a member by its name; a member that is not there is an error, and no file.
    let bare = site.fleetctl(&[&backup[..], &["--no-keys", "--from", "etcd-0"]].concat());
    assert!(bare.succeeds().contains(".no-keys.fleet"), "{bare:?}");
    let elsewhere = format!("{folder}/other.fleet");
    site.fleetctl(&["backup", "demo", "--to", &elsewhere, "--no-keys", "--from", "etcd-7"])
        .fails(2, &["etcd has no member etcd-7"]);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 4, "two backups, each with a file beside it");
    assert_eq!(pods(), before, "nothing was restarted");
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
}
