//! Calls to real members of etcd, with mutual TLS. No cluster and no root is needed.

mod exhaustive;
mod support;

use fleetctl::etcd::agreement::{find_store_difference, observe_members};
use fleetctl::etcd::{AlarmKind, ClientIdentity, EtcdClient, EtcdError, MemberAddress, Snapshot};
use fleetctl::pki::AuthorityKind;
use fleetctl::scheduler::store_folder::StoreFolders;
use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use support::{Etcd, NAMESPACE, authorities, shared};

/// Reads a stream to its end: all bytes, or the error at its end with the bytes that came.
async fn read_all(snapshot: Snapshot) -> Result<Vec<u8>, EtcdError> {
    snapshot
        .try_fold(Vec::new(), |mut bytes, piece| async move {
            bytes.extend_from_slice(&piece);
            Ok(bytes)
        })
        .await
}

#[tokio::test]
async fn every_member_answers_every_call() {
    let etcd = shared();
    etcd.etcdctl(&["put", "/a", "b"], None);
    for number in 0..3 {
        let client = etcd.client(number);
        assert_eq!(client.read_value("/a").await.unwrap().as_deref(), Some(&b"b"[..]));
        assert_eq!(client.read_value("/none").await.unwrap(), None);
        let status = client.read_status().await.unwrap();
        assert_eq!(status.version, "3.5.35");
        assert!(status.size_bytes >= status.size_in_use_bytes && status.size_in_use_bytes > 8 << 20, "{status:?}");
        let members = client.list_members().await.unwrap();
        let mut names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["etcd-0", "etcd-1", "etcd-2"]);
        assert!(members.iter().any(|member| member.id == status.id && !member.learner));
        assert!(members.iter().any(|member| Some(member.id) == status.leader));
        assert_eq!(client.list_alarms().await.unwrap(), []);
        let hash = client.hash_at(status.revision).await.unwrap();
        assert_eq!(hash.revision, status.revision);
        let future = client.hash_at(status.revision + 1_000_000).await.unwrap_err();
        assert!(
            matches!(&future, EtcdError::Refused { message, .. } if message.contains("future revision")),
            "{future}"
        );
    }
}

#[tokio::test]
async fn keys_come_in_pages_of_one_revision() {
    let etcd = shared();
    etcd.put_keys("/pages/", 5_050);
    etcd.etcdctl(&["put", "/pages0", "the first key behind them"], None);
    let client = etcd.client(0);
    let mut pages = client.list_keys("/pages/");
    let first = pages.next_page().await.unwrap().unwrap();
    let revision = pages.revision();
    assert_eq!((first.len(), first[0].as_str()), (5_000, "/pages/0000"));
    // What is written meanwhile belongs to a later revision.
    etcd.etcdctl(&["put", "/pages/9999", "late"], None);
    let second = pages.next_page().await.unwrap().unwrap();
    assert_eq!((second.len(), second[49].as_str()), (50, "/pages/5049"));
    assert_eq!((pages.next_page().await.unwrap(), pages.revision()), (None, revision));
    assert_eq!(client.count_keys("/pages/", revision).await.unwrap(), 5_050);
    assert_eq!(client.count_keys("/pages/", 0).await.unwrap(), 5_051);
    assert_eq!(client.list_keys("/none/").next_page().await.unwrap(), Some(Vec::new()));
}

#[tokio::test]
async fn equal_members_are_reported_as_healthy() {
    let etcd = shared();
    let report = observe_members(&etcd.clients(), Some(8 << 30)).await;
    assert_eq!((&report.problems, &report.warnings), (&vec![], &vec![]));
    let hashes: Vec<_> = report.members.iter().map(|member| member.hash.unwrap()).collect();
    assert!(hashes.len() == 3 && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    assert!(report.members.iter().all(|member| member.quorum));
}

#[tokio::test]
async fn other_names_authorities_and_ended_certificates_are_refused() {
    let etcd = shared();
    let own = etcd.identity();
    let connect = |server_name: &str, identity: &ClientIdentity| {
        let member = MemberAddress { pod: "etcd-0".to_owned(), server_name: server_name.to_owned() };
        EtcdClient::of_member(etcd.reach(), &member, identity).unwrap()
    };
    let right = MemberAddress::new(0, NAMESPACE).server_name;
    assert!(connect(&right, &own).read_status().await.is_ok());

    let now = Timestamp::now();
    let other = authorities();
    // The other CA is trusted as well, or etcd's alone.
    let stranger = ClientIdentity::issue_for_run(&other, "test", now).unwrap();
    let trusted = etcd.authorities.authority_certificate(AuthorityKind::Etcd);
    let ended = now - SignedDuration::from_hours(2);
    let ended = ClientIdentity::issue_for_run(&etcd.authorities, "test", ended).unwrap();
    for (name, identity, wanted) in [
        ("etcd-0.etcd.other.svc", &own, "not valid for name"),
        // Both CAs have the same name.
        (&right, &stranger, "invalid peer certificate: BadSignature"),
        // An alert of etcd; if it comes late, a connection that etcd has closed.
        (&right, &stranger.trusting(trusted), ""),
        (&right, &ended, ""),
    ] {
        let client = connect(name, identity);
        let error = client.read_status().await.unwrap_err();
        assert!(matches!(error, EtcdError::Unreachable { .. }) && error.reason() == "EtcdUnreachable", "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("etcd-0 cannot be reached: ") && text.contains(wanted), "{wanted}: {text}");
        assert!(client.open_snapshot().await.is_err());
    }
}

#[tokio::test]
async fn a_snapshot_is_the_file_that_etcdctl_restores() {
    let etcd = shared();
    let snapshot = etcd.client(1).open_snapshot().await.unwrap();
    let announced = snapshot.total_bytes();
    let bytes = read_all(snapshot).await.unwrap();
    assert_eq!(bytes.len() as u64, announced);
    assert!(bytes.len() > 8 << 20 && bytes.len() % 512 == 32, "{}", bytes.len());
    let (file, data) = (etcd.path("taken.db"), etcd.path("restored"));
    fs_err::write(&file, &bytes).unwrap();
    let (file, data) = (file.display().to_string(), format!("--data-dir={}", data.display()));
    let restored = etcd.etcdctl(&["snapshot", "restore", &file, &data], None);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
}

#[tokio::test]
async fn a_snapshot_that_is_cut_never_ends_well() {
    let etcd = shared();
    let whole = usize::try_from(etcd.client(0).open_snapshot().await.unwrap().total_bytes()).unwrap();
    for tenth in 0..10 {
        // The handshake comes first; the last cut is within the hash and the end of the call.
        let after = if tenth == 9 { whole } else { 20_000 + whole / 10 * tenth };
        let client = Etcd::client_by(etcd.reach().cut_after(after), 0, &etcd.identity());
        let read = match client.open_snapshot().await {
            Ok(snapshot) => read_all(snapshot).await,
            Err(error) => Err(error),
        };
        let error = read.err().unwrap_or_else(|| panic!("cut after {after} of {whole} bytes and taken for whole"));
        assert!(error.is_transient(), "{error:?}");
    }
}

#[tokio::test]
async fn members_that_are_away_are_named_and_the_others_answer() {
    let etcd = Etcd::start(3, 8 << 30);
    etcd.fill("lost", 1);
    etcd.stop_member(1);
    let report = observe_members(&etcd.clients(), None).await;
    assert!(report.problems.iter().any(|problem| problem.starts_with("etcd-1 cannot be reached: ")), "{report:?}");
    assert!(report.members[0].hash == report.members[2].hash && report.members[0].hash.is_some());
    etcd.stop_member(2);
    let report = observe_members(&etcd.clients(), None).await;
    assert!(!report.members[0].quorum && report.members[0].lists.as_ref().unwrap().len() == 3, "{report:?}");
    assert!(report.problems.iter().any(|problem| problem.starts_with("etcd-0 ")), "{report:?}");
    // The last member still gives away what it has.
    let snapshot = etcd.client(0).open_snapshot().await.unwrap();
    assert!(read_all(snapshot).await.unwrap().len() > 1 << 20);
}

#[tokio::test]
async fn a_full_store_raises_an_alarm() {
    let etcd = Etcd::start(1, 4 << 20);
    let client = etcd.client(0);
    let file = etcd.path("value");
    fs_err::write(&file, vec![b'x'; 1 << 20]).unwrap();
    while etcd.etcdctl(&["put", "/full"], Some(&file)).status.success() {}
    let alarms = client.list_alarms().await.unwrap();
    assert!(alarms.len() == 1 && alarms[0].kind == AlarmKind::NoSpace, "{alarms:?}");
    let report = observe_members(&[client], Some(4 << 20)).await;
    assert_eq!(report.problems, ["alarm NOSPACE is raised for etcd-0"]);
}

#[tokio::test]
async fn a_restored_store_is_the_same_on_all_members_and_far_ahead() {
    let etcd = Etcd::start(3, 1 << 30);
    etcd.etcdctl(&["put", "/early", "first"], None);
    let snapshot = etcd.path("snapshot.db");
    fs_err::write(&snapshot, read_all(etcd.client(1).open_snapshot().await.unwrap()).await.unwrap()).unwrap();
    let before = etcd.client(0).read_status().await.unwrap().revision;
    etcd.etcdctl(&["put", "/early", "second"], None);
    etcd.etcdctl(&["put", "/late", "second"], None);
    assert_eq!(find_store_difference(&etcd.clients()).await, None);
    (0..3).for_each(|number| etcd.stop_member(number));
    let folders = |number: usize| StoreFolders::new(&etcd.path(&format!("data-{number}")), "r1").unwrap();
    for number in 0..3 {
        folders(number).make_room(1).unwrap();
        let restored = etcd.etcdctl(
            &[
                "snapshot",
                "restore",
                snapshot.to_str().unwrap(),
                &format!("--name=etcd-{number}"),
                &format!("--data-dir={}", etcd.path(&format!("data-{number}.new-r1")).display()),
                &format!("--initial-cluster={}", etcd.initial_cluster()),
                &format!("--initial-advertise-peer-urls={}", etcd.peer_url(number)),
                "--initial-cluster-token=fleet-demo-r1",
                "--bump-revision=1000000000",
                "--mark-compacted",
            ],
            None,
        );
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        folders(number).confirm_prepared().unwrap();
    }
    (0..3).for_each(|number| folders(number).swap_stores().unwrap());
    etcd.start_again();
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while let Some(why) = find_store_difference(&etcd.clients()).await {
        assert!(std::time::Instant::now() < limit, "{why}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    for client in etcd.clients() {
        assert_eq!(client.read_value("/early").await.unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(client.read_value("/late").await.unwrap(), None);
        assert!(client.read_status().await.unwrap().revision > before + 900_000_000);
    }
    // The way back: the former stores are as they were.
    (0..3).for_each(|number| etcd.stop_member(number));
    (0..3).for_each(|number| folders(number).swap_back().unwrap());
    etcd.start_again();
    assert_eq!(etcd.client(2).read_value("/late").await.unwrap().as_deref(), Some(&b"second"[..]));
}
