//! Promises of a whole set: chains, uses, addresses, and that a working set is never recreated.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn subject() -> Subject {
    Subject {
        control_plane: "demo".to_owned(),
        namespace: "fleet".to_owned(),
        public: Endpoint { host: San::Ip([10, 200, 0, 2].into()), port: 32222 },
        internal: Subject::internal_endpoint("fleet"),
        extra_sans: vec!["fleet.example".parse().unwrap()],
    }
}

fn fresh() -> Completed {
    ensure_key_set(&Files::new(), &subject(), now(), &Lifetimes::default()).unwrap()
}

fn pair(files: &Files, leaf: Leaf) -> (String, String) {
    match leaf.leaf_store() {
        LeafStore::Pair { certificate, key } => {
            (files.get(certificate).unwrap().to_owned(), files.get(key).unwrap().to_owned())
        }
        LeafStore::Kubeconfig(name) => {
            let kubeconfig = Kubeconfig::parse(name, files.get(name).unwrap()).unwrap();
            let (certificate, key) = kubeconfig.client_certificate().unwrap();
            (certificate.to_owned(), key.expose().to_owned())
        }
    }
}

fn facts(files: &Files, leaf: Leaf) -> CertificateFacts {
    CertificateFacts::from_pem("leaf", &pair(files, leaf).0).unwrap()
}

#[test]
fn a_second_run_keeps_every_byte_of_a_working_set() {
    let first = fresh();
    assert!(first.new_authorities);
    assert_eq!(first.issued.len(), Leaf::ALL.len());
    let later = now().checked_add(MINUTE).unwrap();
    let second = ensure_key_set(&first.files, &subject(), later, &Lifetimes::default()).unwrap();
    assert!(second.is_unchanged(), "{:?} {:?}", second.issued, second.rewritten);
    assert_eq!(second.files, first.files);
}

#[test]
fn every_leaf_has_one_use_and_its_own_authority() {
    let files = fresh().files;
    for leaf in Leaf::ALL {
        let facts = facts(&files, leaf);
        assert_eq!(facts.issuer, leaf.issuing_authority().common_name(), "{leaf:?}");
        assert_eq!(facts.server, leaf.leaf_usage() != Usage::Client, "{leaf:?}");
        assert_eq!(facts.client, leaf.leaf_usage() != Usage::Server, "{leaf:?}");
        assert!(!facts.authority, "{leaf:?}");
    }
}

#[test]
fn only_the_scheduler_is_a_master() {
    let files = fresh().files;
    for leaf in Leaf::ALL {
        let master = facts(&files, leaf).organizations.contains(&"system:masters".to_owned());
        assert_eq!(master, leaf == Leaf::Scheduler, "{leaf:?}");
    }
    assert_eq!(facts(&files, Leaf::Admin).organizations, ["fleet:admins"]);
    assert_eq!(facts(&files, Leaf::Scheduler).common_name, "fleet:scheduler");
    assert_eq!(facts(&files, Leaf::ControllerManager).common_name, "system:kube-controller-manager");
}

#[test]
fn every_certificate_of_the_operator_is_a_user_of_its_own() {
    let names = [fresh(), fresh()].map(|set| facts(&set.files, Leaf::Admin).common_name);
    for name in &names {
        let digits = name.strip_prefix("fleet-admin:").unwrap();
        assert!(digits.len() == 16 && digits.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
    }
    assert_ne!(names[0], names[1]);
    // It is kept while it is good, and its name with it.
    let first = fresh();
    assert!(ensure_key_set(&first.files, &subject(), now(), &Lifetimes::default()).unwrap().is_unchanged());
}

#[test]
fn every_address_in_a_kubeconfig_is_in_the_serving_certificate() {
    let files = fresh().files;
    let served = facts(&files, Leaf::ApiServer).sans;
    for leaf in Leaf::ALL {
        let LeafStore::Kubeconfig(name) = leaf.leaf_store() else { continue };
        let kubeconfig = Kubeconfig::parse(name, files.get(name).unwrap()).unwrap();
        let host = kubeconfig.server.strip_prefix("https://").unwrap().rsplit_once(':').unwrap().0;
        assert!(served.contains(&host.parse().unwrap()), "{name}: {host}");
    }
    for wanted in ["fleet.example", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1", "apiserver"] {
        assert!(served.contains(&wanted.parse().unwrap()), "{wanted}");
    }
}

#[test]
fn the_members_of_etcd_are_named_and_never_by_wildcard() {
    let peers = facts(&fresh().files, Leaf::EtcdPeer).sans;
    assert!(peers.contains(&"etcd-2.etcd.fleet.svc".parse().unwrap()));
    assert!(!peers.iter().any(|san| san.to_string().contains('*')));
}

#[test]
fn no_private_key_exists_twice() {
    let files = fresh().files;
    let mut keys: Vec<String> = Leaf::ALL.iter().map(|leaf| pair(&files, *leaf).1).collect();
    keys.extend(
        ["ca.key", "front-proxy-ca.key", "etcd-ca.key", "sa.key"].map(|name| files.get(name).unwrap().to_owned()),
    );
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    for (name, text) in files.expose_all() {
        let holds_key = text.contains("PRIVATE KEY");
        assert_eq!(holds_key, name.rsplit_once('.').unwrap().1 == "key", "{name}");
    }
}

#[test]
fn authorities_outlive_leaves_even_when_they_are_about_to_end() {
    let lifetimes = Lifetimes {
        authority: 10 * MINUTE,
        leaf: 60 * MINUTE,
        renew_before: 2 * MINUTE,
        renew_authority_before: Duration::ZERO,
    };
    let first = ensure_key_set(&Files::new(), &subject(), now(), &lifetimes).unwrap();
    let end = CertificateFacts::from_pem("ca.crt", first.files.get("ca.crt").unwrap()).unwrap().not_after;
    assert_eq!(facts(&first.files, Leaf::ApiServer).not_after, end);
    // A leaf that cannot be had for longer is not replaced again and again.
    let late = now().checked_add(9 * MINUTE).unwrap();
    assert!(ensure_key_set(&first.files, &subject(), late, &lifetimes).unwrap().is_unchanged());
}

#[test]
fn default_lifetimes_are_ten_years_and_one_year() {
    let files = fresh().files;
    for kind in AuthorityKind::ALL {
        let facts = CertificateFacts::from_pem("ca", files.get(kind.certificate_file()).unwrap()).unwrap();
        assert!(facts.authority);
        assert_eq!(facts.not_after.duration_since(now()).as_hours() / 24, 3650);
    }
    let leaf = facts(&files, Leaf::EtcdServer);
    assert_eq!(leaf.not_after.duration_since(now()).as_hours() / 24, 365);
}

#[test]
fn a_leaf_close_to_its_end_is_issued_again_and_the_rest_is_kept() {
    let lifetimes =
        Lifetimes { authority: 600 * MINUTE, leaf: 5 * MINUTE, renew_before: MINUTE, renew_authority_before: MINUTE };
    let first = ensure_key_set(&Files::new(), &subject(), now(), &lifetimes).unwrap();
    let late = now().checked_add(4 * MINUTE).unwrap();
    let second = ensure_key_set(&first.files, &subject(), late, &lifetimes).unwrap();
    assert!(!second.new_authorities);
    assert_eq!(second.issued.len(), Leaf::ALL.len());
    assert!(second.issued.iter().all(|(_, reason)| matches!(reason, Renewal::Ends(_))));
    for name in AUTHORITY_FILES {
        assert_eq!(second.files.get(name), first.files.get(name), "{name}");
    }
}

#[test]
fn a_set_whose_leaves_have_all_expired_is_repaired() {
    let lifetimes = Lifetimes::default();
    let long_after = now().checked_add(Duration::from_secs(700 * 24 * 3600)).unwrap();
    let repaired = ensure_key_set(&fresh().files, &subject(), long_after, &lifetimes).unwrap();
    assert_eq!(repaired.issued.len(), Leaf::ALL.len());
    assert!(ensure_key_set(&repaired.files, &subject(), long_after, &lifetimes).unwrap().is_unchanged());
}

#[test]
fn a_new_address_re_issues_the_serving_certificate_alone() {
    let first = fresh();
    let mut moved = subject();
    moved.public = Endpoint { host: "new.example".parse().unwrap(), port: 443 };
    let second = ensure_key_set(&first.files, &moved, now(), &Lifetimes::default()).unwrap();
    assert_eq!(second.issued, [(Leaf::ApiServer, Renewal::MissingAddresses(vec!["new.example".parse().unwrap()]))],);
    assert_eq!(second.rewritten, [Leaf::Admin]);
    assert_eq!(pair(&second.files, Leaf::Admin), pair(&first.files, Leaf::Admin));
}

#[test]
fn an_address_fewer_is_no_reason_for_a_new_certificate() {
    let first = fresh();
    let mut fewer = subject();
    fewer.extra_sans.clear();
    assert!(ensure_key_set(&first.files, &fewer, now(), &Lifetimes::default()).unwrap().is_unchanged());
}

/// The leaves that are issued again when a file of a set has another text.
fn reissue_with(set: &Files, name: &str, text: &str) -> Vec<(Leaf, Renewal)> {
    let mut files = set.clone();
    files.insert(name, text.to_owned());
    ensure_key_set(&files, &subject(), now(), &Lifetimes::default()).unwrap().issued
}

#[test]
fn what_is_wrong_with_a_leaf_is_said() {
    let first = fresh().files;
    let stranger = fresh().files;
    assert_eq!(
        reissue_with(&first, "etcd-server.crt", stranger.get("etcd-server.crt").unwrap()),
        [(Leaf::EtcdServer, Renewal::OtherAuthority)]
    );
    assert_eq!(
        reissue_with(&first, "etcd-server.key", stranger.get("etcd-server.key").unwrap()),
        [(Leaf::EtcdServer, Renewal::KeyMismatch)]
    );
    assert_eq!(reissue_with(&first, "etcd-server.crt", "nonsense"), [(Leaf::EtcdServer, Renewal::Unreadable)]);
    assert_eq!(
        reissue_with(&first, "etcd-health-client.crt", first.get("apiserver-etcd-client.crt").unwrap()),
        [(Leaf::EtcdHealthClient, Renewal::OtherSubject)],
    );
    assert_eq!(reissue_with(&first, "scheduler.kubeconfig", "kind: Config"), [(Leaf::Scheduler, Renewal::Unreadable)]);
    let mut without = first.clone();
    without.remove("apiserver.key");
    let issued = ensure_key_set(&without, &subject(), now(), &Lifetimes::default()).unwrap().issued;
    assert_eq!(issued, [(Leaf::ApiServer, Renewal::Missing)]);
}

/// The error that a changed set is refused with.
fn refuse_changed(set: &Files, change: impl FnOnce(&mut Files)) -> String {
    let mut files = set.clone();
    change(&mut files);
    ensure_key_set(&files, &subject(), now(), &Lifetimes::default()).unwrap_err().to_string()
}

#[test]
fn a_damaged_set_of_authorities_is_refused_by_the_name_of_the_entry() {
    let first = fresh().files;
    let other = fresh().files;
    for name in AUTHORITY_FILES {
        let missing = refuse_changed(&first, |files| drop(files.remove(name)));
        assert_eq!(missing, format!("`{name}` is missing from the keys of the control plane"));
        let broken = refuse_changed(&first, |files| files.insert(name, "CANARY".to_owned()));
        assert!(broken.contains(name) && !broken.contains("CANARY"), "{broken}");
    }
    assert_eq!(
        refuse_changed(&first, |files| files.insert("ca.key", other.get("ca.key").unwrap().to_owned())),
        "`ca.key` is not the private key of `ca.crt`"
    );
    assert_eq!(
        refuse_changed(&first, |files| files.insert("sa.pub", other.get("sa.pub").unwrap().to_owned())),
        "`sa.key` is not the private key of `sa.pub`"
    );
    let leaf = first.get("apiserver.crt").unwrap().to_owned();
    assert!(refuse_changed(&first, |files| files.insert("ca.crt", leaf.clone())).contains("not a CA certificate"));
}

#[test]
fn an_expired_authority_is_refused_by_name() {
    let ages = now().checked_add(Duration::from_secs(3651 * 24 * 3600)).unwrap();
    let lifetimes = Lifetimes { renew_authority_before: Duration::ZERO, ..Lifetimes::default() };
    let error = ensure_key_set(&fresh().files, &subject(), ages, &lifetimes).unwrap_err();
    assert!(matches!(error, PkiError::Expired { ref entry, .. } if entry == "ca.crt"), "{error}");
}

#[test]
fn a_ca_that_ends_is_signed_again_and_its_leaves_stay_valid() {
    let first = fresh().files;
    // Nine years on, with leaves of that time; and after its end.
    let nearly = now() + (3650 - 366) * DAY;
    let before = ensure_key_set(&first, &subject(), nearly, &Lifetimes::default()).unwrap();
    assert!(before.renewed_authorities.is_empty() && before.issued.len() == Leaf::ALL.len());
    for late in [now() + (3650 - 364) * DAY, now() + (3650 + 1) * DAY] {
        let after = ensure_key_set(&before.files, &subject(), late, &Lifetimes::default()).unwrap();
        assert_eq!(after.renewed_authorities, AuthorityKind::ALL);
        for kind in AuthorityKind::ALL {
            let [old, new] = [&before.files, &after.files].map(|files| facts_of_file(files, kind.certificate_file()));
            assert_eq!(before.files.get(kind.key_file()), after.files.get(kind.key_file()));
            assert_eq!((&old.common_name, old.authority), (&new.common_name, new.authority));
            assert_ne!(old.serial, new.serial);
            assert!(new.not_after > late + 3640 * DAY);
        }
        if late < now() + 3650 * DAY {
            assert_eq!(after.issued, [], "leaves of the old certificate are those of the new one");
            assert_eq!(after.rewritten.len(), 3, "kubeconfigs contain the CA");
        }
        assert!(ensure_key_set(&after.files, &subject(), late, &Lifetimes::default()).unwrap().is_unchanged());
    }
}

#[test]
fn a_renewed_operator_is_the_same_user_with_another_serial_number() {
    let first = fresh().files;
    let late = now().checked_add(Duration::from_secs(310 * 24 * 3600)).unwrap();
    let renewed = ensure_key_set(&first, &subject(), late, &Lifetimes::default()).unwrap().files;
    for leaf in Leaf::ALL {
        let (old, new) = (facts(&first, leaf), facts(&renewed, leaf));
        assert_ne!(old.serial, new.serial, "{leaf:?}");
        assert_eq!(pair(&first, leaf).1 == pair(&renewed, leaf).1, leaf == Leaf::Admin, "{leaf:?}");
        assert_eq!(old.common_name, new.common_name, "{leaf:?}");
    }
    // A key that was deleted is not had again.
    let mut without = first.clone();
    without.remove("admin.kubeconfig");
    let other = ensure_key_set(&without, &subject(), late, &Lifetimes::default()).unwrap().files;
    assert_ne!(facts(&other, Leaf::Admin).common_name, facts(&first, Leaf::Admin).common_name);
}

fn facts_of_file(files: &Files, name: &str) -> CertificateFacts {
    CertificateFacts::from_pem(name, files.get(name).unwrap()).unwrap()
}

#[test]
fn nothing_in_a_set_is_shown_by_debug() {
    let completed = fresh();
    let text = format!("{completed:?}");
    assert!(!text.contains("PRIVATE") && !text.contains("BEGIN") && !text.contains("secretbox"));
}

#[test]
fn placeholders_have_the_names_of_a_real_set_and_no_key() {
    let files = fresh().files;
    let real: Vec<&str> = files.file_names().collect();
    let placeholders = placeholder_files();
    assert_eq!(placeholders.file_names().collect::<Vec<_>>(), real);
    assert!(placeholders.expose_all().all(|(_, text)| text == PLACEHOLDER));
}

#[test]
fn facts_list_every_certificate_of_a_set() {
    let facts = facts_of(&fresh().files);
    assert_eq!(facts.len(), AuthorityKind::ALL.len() + Leaf::ALL.len());
    assert!(facts.iter().all(|(_, facts)| facts.is_ok()));
}

#[test]
fn a_kubeconfig_with_a_token_reads_back() {
    let kubeconfig = Kubeconfig {
        context: "demo".to_owned(),
        server: "https://10.0.0.1:443".to_owned(),
        authority: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        user: "fleet-agent".to_owned(),
        credential: KubeconfigUser::Token(SecretText::new("abcdef.0123456789abcdef".to_owned())),
    };
    let text = kubeconfig.to_yaml("kubeconfig").unwrap();
    assert_eq!(Kubeconfig::parse("kubeconfig", text.expose()).unwrap(), kubeconfig);
    assert!(!format!("{kubeconfig:?}").contains("abcdef"));
}

/// A kubeconfig as an install writes it, in YAML.
fn admin_text() -> String {
    fresh().files.get("admin.kubeconfig").unwrap().to_owned()
}

#[test]
fn a_kubeconfig_with_a_field_that_none_of_ours_has_is_refused_and_the_field_named() {
    let good = admin_text();
    assert!(Kubeconfig::parse("x", &good).is_ok());
    let user = "client-certificate-data:";
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, id]}\n    ";
    let cases = [
        (user, format!("{exec}{user}"), "users[0].user.exec"),
        (user, format!("exec: null\n    {user}"), "users[0].user.exec"),
        (
            user,
            format!("auth-provider: {{name: gcp, config: {{cmd-path: sh}}}}\n    {user}"),
            "users[0].user.auth-provider",
        ),
        (user, format!("tokenFile: /etc/shadow\n    {user}"), "users[0].user.tokenFile"),
        (user, format!("client-key: /etc/shadow\n    {user}"), "users[0].user.client-key"),
        (user, format!("username: a\n    {user}"), "users[0].user.username"),
        (user, format!("as: system:admin\n    {user}"), "users[0].user.as"),
        ("server:", "proxy-url: http://192.0.2.66\n    server:".to_owned(), "clusters[0].cluster.proxy-url"),
        ("server:", "certificate-authority: /x\n    server:".to_owned(), "clusters[0].cluster.certificate-authority"),
        (
            "server:",
            "insecure-skip-tls-verify: true\n    server:".to_owned(),
            "clusters[0].cluster.insecure-skip-tls-verify",
        ),
        ("server:", "tls-server-name: x\n    server:".to_owned(), "clusters[0].cluster.tls-server-name"),
        ("kind: Config", "kind: Config\n\"x\\e[2J\": 1".to_owned(), "x\\u{1b}[2J"),
        // Also in an entry that no context names.
        ("users:\n", format!("users:\n- name: other\n  user:\n    {exec}token: t\n"), "users[0].user.exec"),
    ];
    for (place, new, field) in cases {
        let text = good.replacen(place, &new, 1);
        let error = Kubeconfig::parse("x", &text).unwrap_err();
        assert!(matches!(&error, PkiError::ForeignField { field: named, .. } if named == field), "{field}: {error}");
    }
    // What kubectl adds when it changes a file has no meaning for a client.
    let kubectl = good
        .replace("kind: Config", "kind: Config\npreferences: {}")
        .replace("    user: ", "    namespace: x\n    user: ");
    assert_eq!(Kubeconfig::parse("x", &kubectl).unwrap(), Kubeconfig::parse("x", &good).unwrap());
}

#[test]
fn a_kubeconfig_leads_to_one_server_over_https_with_everything_embedded() {
    let good = admin_text();
    let server = "https://10.200.0.2:32222";
    for other in
        ["http://10.200.0.2:32222", "10.200.0.2:32222", "https://", "https://a@10.200.0.2", "unix:///run/x", "''"]
    {
        let error = Kubeconfig::parse("x", &good.replace(server, other)).unwrap_err();
        assert!(matches!(error, PkiError::NotHttps { .. }), "{other}: {error}");
    }
    for key in ["certificate-authority-data:", "client-key-data:", "server:", "current-context:"] {
        let line = good.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
        let without = good.replace(line, "");
        assert!(Kubeconfig::parse("x", &without).is_err(), "without {key}");
        let empty = good.replace(line, &format!("{}: \"\"", line.split_once(':').unwrap().0));
        assert!(Kubeconfig::parse("x", &empty).is_err(), "with an empty {key}");
    }
    for text in ["", "[]", "a: &a [*a]", "clusters: 1", "apiVersion: v1\nclusters: {}\nusers: []\ncontexts: []"] {
        assert!(Kubeconfig::parse("x", text).is_err(), "{text}");
    }
}

#[test]
fn names_in_a_kubeconfig_are_those_of_its_control_plane_whoever_chose_them_before() {
    let own = Kubeconfig::parse("x", &admin_text()).unwrap();
    assert_eq!((own.context.as_str(), own.user.as_str()), ("demo", "fleet-admin@demo"));
    let foreign = Kubeconfig { context: "prod".to_owned(), user: "cluster-admin".to_owned(), ..own.clone() };
    let read = Kubeconfig::parse("x", foreign.to_yaml("x").unwrap().expose()).unwrap();
    assert_eq!(read.of_control_plane("demo"), own);
}

#[test]
fn openssl_accepts_every_chain_for_its_use() {
    if Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    let files = fresh().files;
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &files).unwrap();
    for leaf in Leaf::ALL {
        let path = write_file(folder.path(), "leaf.pem", &pair(&files, leaf).0).unwrap();
        let purposes: &[&str] = match leaf.leaf_usage() {
            Usage::Server => &["sslserver"],
            Usage::Client => &["sslclient"],
            Usage::Peer => &["sslserver", "sslclient"],
        };
        for purpose in purposes {
            let output = Command::new("openssl")
                .args(["verify", "-x509_strict", "-purpose", purpose, "-attime", "1800000060", "-CAfile"])
                .arg(folder.path().join(leaf.issuing_authority().certificate_file()))
                .arg(&path)
                .output()
                .unwrap();
            assert!(output.status.success(), "{leaf:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
