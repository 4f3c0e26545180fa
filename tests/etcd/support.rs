//! Members of etcd as plain processes on loopback, with certificates as a control plane has them.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bed::Bed;
use fleetctl::etcd::{ClientIdentity, EtcdClient, MemberAddress, PodPorts};
use fleetctl::pki::{Authorities, AuthorityKind, Leaf, Lifetimes, San, SecretText, issue_leaf};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::io::{AsyncRead, Join, ReadBuf, join};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

pub(crate) const NAMESPACE: &str = "fleet";
const MIB: usize = 1024 * 1024;

/// Members of one etcd. They end with the value.
pub(crate) struct Etcd {
    pub(crate) authorities: Authorities,
    members: Vec<Mutex<Child>>,
    ports: Vec<u16>,
    peers: Vec<u16>,
    programs: PathBuf,
    folder: TempDir,
    quota_bytes: u64,
}

/// The certificates of a fresh control plane.
pub(crate) fn authorities() -> Authorities {
    Authorities::generate_authorities(Timestamp::now(), &Lifetimes::default()).unwrap()
}

/// A cluster of three that tests share which only read it and write keys of their own.
pub(crate) fn shared() -> Arc<Etcd> {
    static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
    let mut known = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    known.upgrade().unwrap_or_else(|| {
        let etcd = Arc::new(Etcd::start(3, 8 << 30));
        etcd.fill("shared", 8);
        *known = Arc::downgrade(&etcd);
        etcd
    })
}

impl Etcd {
    /// Starts that many members, and waits until one of them has elected a leader.
    pub(crate) fn start(count: usize, quota_bytes: u64) -> Self {
        let programs = Bed::here().unwrap().etcd().unwrap();
        let folder = TempDir::new().unwrap();
        let authorities = authorities();
        write_certificates(folder.path(), &authorities);
        // All are bound at once, so that no two are the same.
        let bound: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let all: Vec<u16> = bound.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(bound);
        let (ports, peers) = all.split_at(count);
        let (ports, peers) = (ports.to_vec(), peers.to_vec());
        let mut etcd = Self { authorities, members: Vec::new(), ports, peers, programs, folder, quota_bytes };
        etcd.members = (0..count).map(|number| Mutex::new(etcd.spawn_member(number))).collect();
        etcd.wait_until_served();
        etcd
    }

    /// All members, as etcd begins with them.
    pub(crate) fn initial_cluster(&self) -> String {
        let member = |number: usize| format!("etcd-{number}={}", self.peer_url(number));
        (0..self.peers.len()).map(member).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn peer_url(&self, number: usize) -> String {
        format!("https://127.0.0.1:{}", self.peers[number])
    }

    fn spawn_member(&self, number: usize) -> Child {
        let (client, peer) = (format!("https://127.0.0.1:{}", self.ports[number]), self.peer_url(number));
        let file = |name: &str| self.path(name).display().to_string();
        let log = fs_err::File::create(self.path(&format!("etcd-{number}.log"))).unwrap();
        Command::new(self.programs.join("etcd"))
            .arg(format!("--name=etcd-{number}"))
            .arg(format!("--data-dir={}", file(&format!("data-{number}"))))
            .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
            .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
            .args([format!("--initial-cluster={}", self.initial_cluster()), "--client-cert-auth=true".to_owned()])
            .args([format!("--trusted-ca-file={}", file("ca.crt")), format!("--cert-file={}", file("server.crt"))])
            .args([format!("--key-file={}", file("server.key")), "--peer-client-cert-auth=true".to_owned()])
            .args([format!("--peer-trusted-ca-file={}", file("ca.crt"))])
            .args([format!("--peer-cert-file={}", file("peer.crt")), format!("--peer-key-file={}", file("peer.key"))])
            .args([format!("--quota-backend-bytes={}", self.quota_bytes), "--enable-grpc-gateway=false".to_owned()])
            // The disk of the machine is not what is tried here.
            .arg("--unsafe-no-fsync")
            .stdout(Stdio::null())
            .stderr(log.into_parts().0)
            .spawn()
            .unwrap()
    }

    /// Starts members that were stopped, and waits until a majority answers.
    pub(crate) fn start_again(&self) {
        for (number, member) in self.members.iter().enumerate() {
            *member.lock().unwrap() = self.spawn_member(number);
        }
        self.wait_until_served();
    }

    fn wait_until_served(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.etcdctl(&["get", "health"], None).status.success() {
            assert!(Instant::now() < end, "etcd does not start: {}", self.log(0));
        }
    }

    /// The last of a member's log.
    pub(crate) fn log(&self, number: usize) -> String {
        let text = fs_err::read_to_string(self.folder.path().join(format!("etcd-{number}.log"))).unwrap_or_default();
        text.lines().rev().take(20).collect::<Vec<_>>().join("\n")
    }

    /// A folder that ends with the cluster.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs etcdctl as an operator would, with all members as end points.
    pub(crate) fn etcdctl(&self, args: &[&str], input: Option<&Path>) -> Output {
        let endpoints: Vec<String> = self.ports.iter().map(|port| format!("https://127.0.0.1:{port}")).collect();
        let mut command = Command::new(self.programs.join("etcdctl"));
        command.env_clear().arg(format!("--endpoints={}", endpoints.join(","))).arg("--command-timeout=20s");
        for (flag, file) in [("cacert", "ca.crt"), ("cert", "health.crt"), ("key", "health.key")] {
            command.arg(format!("--{flag}={}", self.path(file).display()));
        }
        let input = input.map_or(Stdio::null(), |file| fs_err::File::open(file).unwrap().into_parts().0.into());
        command.args(args).stdin(input).output().unwrap()
    }

    /// Writes values of a mebibyte that do not compress.
    pub(crate) fn fill(&self, prefix: &str, mebibytes: usize) {
        let file = self.path(&format!("{prefix}.value"));
        let mut state = 1_u64;
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        });
        fs_err::write(&file, bytes.take(MIB).collect::<Vec<u8>>()).unwrap();
        for number in 0..mebibytes {
            let put = self.etcdctl(&["put", &format!("/{prefix}/{number}")], Some(&file));
            assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
        }
    }

    /// Writes keys that end in a number of four digits, as many at a time as etcd takes in a transaction.
    pub(crate) fn put_keys(&self, prefix: &str, count: usize) {
        let file = self.path("transaction");
        let numbers: Vec<usize> = (0..count).collect();
        for part in numbers.chunks(128) {
            let puts: String = part.iter().map(|number| format!("put {prefix}{number:04} x\n")).collect();
            // Nothing is compared, and nothing is done instead.
            fs_err::write(&file, format!("\n{puts}\n\n")).unwrap();
            let put = self.etcdctl(&["txn"], Some(&file));
            assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
        }
    }

    pub(crate) fn stop_member(&self, number: usize) {
        let mut child = self.members[number].lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The identity of a run, made now.
    pub(crate) fn identity(&self) -> ClientIdentity {
        ClientIdentity::issue_for_run(&self.authorities, "test", Timestamp::now()).unwrap()
    }

    pub(crate) fn reach(&self) -> Loopback {
        Loopback { ports: self.ports.clone(), cut_after: None }
    }

    pub(crate) fn client(&self, number: usize) -> EtcdClient {
        Self::client_by(self.reach(), number, &self.identity())
    }

    pub(crate) fn client_by(reach: Loopback, number: usize, identity: &ClientIdentity) -> EtcdClient {
        EtcdClient::of_member(reach, &MemberAddress::new(number, NAMESPACE), identity).unwrap()
    }

    pub(crate) fn clients(&self) -> Vec<EtcdClient> {
        (0..self.ports.len()).map(|number| self.client(number)).collect()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &self.members {
            let mut child = member.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The files that etcd and etcdctl read.
fn write_certificates(folder: &Path, authorities: &Authorities) {
    let write = |name: &str, text: &str| fs_err::write(folder.join(name), text).unwrap();
    write("ca.crt", authorities.authority_certificate(AuthorityKind::Etcd));
    let loopback = San::Ip(Ipv4Addr::LOCALHOST.into());
    let member = |number: usize| San::Dns(MemberAddress::new(number, NAMESPACE).server_name);
    let server = [vec![loopback.clone()], (0..3).map(member).collect()].concat();
    for (name, leaf, sans) in [
        ("server", Leaf::EtcdServer, server),
        // Here members find one another by their address.
        ("peer", Leaf::EtcdPeer, vec![loopback]),
        ("health", Leaf::EtcdHealthClient, Vec::new()),
    ] {
        let issued = issue_leaf(authorities, &leaf.to_spec(sans), Timestamp::now(), &Lifetimes::default());
        let (certificate, key): (String, SecretText) = issued.unwrap();
        write(&format!("{name}.crt"), &certificate);
        write(&format!("{name}.key"), key.expose());
    }
}

/// The ports of the members, as those of pods.
#[derive(Clone)]
pub(crate) struct Loopback {
    ports: Vec<u16>,
    cut_after: Option<usize>,
}

impl Loopback {
    /// The same over connections that end after so many bytes from the member.
    pub(crate) fn cut_after(self, bytes: usize) -> Self {
        Self { cut_after: Some(bytes), ..self }
    }
}

impl PodPorts for Loopback {
    type Stream = Tunnel;

    async fn connect(&self, pod: &str, port: u16) -> io::Result<Tunnel> {
        assert_eq!(port, 2379);
        let number: usize = pod.strip_prefix("etcd-").unwrap().parse().unwrap();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[number])).await?;
        let (stream, writer) = stream.into_split();
        Ok(join(CutReader { stream, left: self.cut_after }, writer))
    }
}

/// A connection that may be cut.
pub(crate) type Tunnel = Join<CutReader, OwnedWriteHalf>;

/// Its side that is read.
pub(crate) struct CutReader {
    stream: OwnedReadHalf,
    left: Option<usize>,
}

impl AsyncRead for CutReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(left) = self.left else { return Pin::new(&mut self.stream).poll_read(context, buffer) };
        if left == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = vec![0; left.min(buffer.remaining())];
        let mut part = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut self.stream).poll_read(context, &mut part);
        let read = part.filled().len();
        buffer.put_slice(part.filled());
        self.left = Some(left - read);
        polled
    }
}
