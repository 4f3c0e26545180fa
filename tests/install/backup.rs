//! Backups of a control plane that runs.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fleetctl::backup::{Contents, Identity, KeyFile, Opening, Seal, read_archive, verify_archive, write_archive};
use fleetctl::pki::{Authorities, Lifetimes, SecretText};
use jiff::Timestamp;
use serde_json::Value;

use crate::support::{Site, eventually};

/// A folder for backups, and a key that opens them.
pub(crate) struct BackupFolder {
    pub(crate) folder: String,
    /// The file with the key.
    pub(crate) identity: String,
    pub(crate) recipient: String,
    key: Identity,
}

/// A Secret with a key for encryption that no control plane has, in place of the one in a manifest.
fn with_other_encryption(manifest: &str) -> SecretText {
    let mut secret: Value = serde_saphyr::from_str(manifest).unwrap();
    let files = Authorities::generate_authorities(Timestamp::now(), &Lifetimes::default()).unwrap().to_map();
    let other = BASE64_STANDARD.encode(files.get("encryption.yaml").unwrap());
    secret["data"]["encryption.yaml"] = other.into();
    SecretText::new(secret.to_string())
}

/// Starts a backup that is whole, and one with three faults: each is named.
fn rehearse(site: &Site, backups: &BackupFolder, path: &str) {
    let verify = |path: &str, more: &[&str]| {
        site.fleetctl(&[&["backup", "verify", path, "--identity", &backups.identity, "--rehearse"], more].concat())
    };
    let rehearsed = verify(path, &["-o", "json"]);
    let rehearsed: Value = serde_json::from_str(rehearsed.succeeds()).unwrap();
    let report = &rehearsed["rehearsal"];
    assert!(report["objects"].as_u64().unwrap() > 100 && report["kinds"].as_u64().unwrap() > 60, "{report}");
    assert_eq!(report["findings"], serde_json::json!([]), "{report}");
    let sidecar: Value = serde_json::from_slice(&std::fs::read(format!("{path}.json")).unwrap()).unwrap();
    assert_eq!(sidecar["rehearsed"]["revision"], report["revision"]);
    let pods = ["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name=rehearsal", "-o", "name"];
    assert_eq!(site.kubectl(&pods), "", "the pod is gone");

    // A quota that has no room for it: nothing is made.
    site.kubectl(&["-n", "fleet", "create", "quota", "full", "--hard=pods=1"]);
    verify(path, &[]).fails(3, &["exceeded quota: full", "raise the quota"]);
    site.kubectl(&["-n", "fleet", "delete", "quota", "full"]);

    // Bytes that are no object, and objects without their definition; a key that did not seal the data.
    let definition = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "carts.shop.example"},
        "spec": {"group": "shop.example", "scope": "Namespaced", "names": {"plural": "carts", "kind": "Cart"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let cart = serde_json::json!({"apiVersion": "shop.example/v1", "kind": "Cart", "metadata": {"name": "one"}});
    for (name, object) in [("definition", definition), ("cart", cart)] {
        let file = site.home().join(name);
        std::fs::write(&file, object.to_string()).unwrap();
        eventually("an object to be taken", || site.asks_hub(&["apply", "-f", file.to_str().unwrap()]).is_ok());
    }
    site.hub(&["create", "secret", "generic", "sealed", "--from-literal=a=b"]);
    let etcdctl = |args: &[&str]| {
        site.kubectl(&[&["-n", "fleet", "exec", "etcd-0", "-c", "etcd", "--", "etcdctl"], args].concat());
    };
    etcdctl(&["put", "/registry/configmaps/default/broken", "no object"]);
    etcdctl(&["del", "/registry/apiextensions.k8s.io/customresourcedefinitions/carts.shop.example"]);
    let faulty = format!("{}/faulty.fleet", backups.folder);
    site.fleetctl(&["backup", "demo", "--to", &faulty, "--recipient", &backups.recipient]).succeeds();
    let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut take = |name: &str, bytes: &[u8]| {
        parts.entry(name.to_owned()).or_default().extend_from_slice(bytes);
        Ok(())
    };
    let header = read_archive(std::fs::File::open(&faulty).unwrap(), &backups.opening(), &mut take).unwrap().header;
    let manifest = with_other_encryption(std::str::from_utf8(&parts["keys/fleet-pki.yaml"]).unwrap());
    let keys = vec![KeyFile { secret: "fleet-pki".to_owned(), manifest }];
    let contents = Contents { header, keys, values: None, record: None };
    let other = format!("{}/other-key.fleet", backups.folder);
    let output = std::fs::File::create(&other).unwrap();
    write_archive(output, &Seal::Open, &contents, parts["snapshot.db"].as_slice()).unwrap();
    let named = [
        "was started, and has",
        "/registry/configmaps/default/broken: ",
        "/registry/secrets/default/sealed: ",
        "/registry/shop.example/carts/: 1 key of a kind that is not served",
    ];
    verify(&other, &[]).fails(1, &named);
    assert_eq!(site.kubectl(&pods), "", "the pod is gone");
    etcdctl(&["del", "/registry/configmaps/default/broken"]);
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

    /// The key itself.
    fn opening(&self) -> Opening {
        Opening { identities: vec![self.key.clone()], passphrase: None }
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

    let backups = BackupFolder::make_in(site.home());
    let (folder, identity, recipient) = (backups.folder.as_str(), backups.identity.as_str(), &backups.recipient);
    let backup = ["backup", "demo", "--to", folder];
    let made = site.fleetctl(&[&backup[..], &["--recipient", recipient]].concat());
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
    verify_archive(std::fs::File::open(&path).unwrap(), &backups.opening()).unwrap();

    // Another one, without keys and from a member by its name; a member that is not there is an error, and no file.
    let bare = site.fleetctl(&[&backup[..], &["--no-keys", "--from", "etcd-0"]].concat());
    assert!(bare.succeeds().contains(".no-keys.fleet"), "{bare:?}");
    let elsewhere = format!("{folder}/other.fleet");
    site.fleetctl(&["backup", "demo", "--to", &elsewhere, "--no-keys", "--from", "etcd-7"])
        .fails(2, &["etcd has no member etcd-7"]);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 4, "two backups, each with a file beside it");
    rehearse(&site, &backups, &path);
    assert_eq!(pods(), before, "nothing was restarted");
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
}
