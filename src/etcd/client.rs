//! Calls to one member of etcd.

use http::Uri;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::connect::{CALL_WITHIN, MemberAddress, PodPorts, open_channel, open_channel_to_url};
use super::error::EtcdError;
use super::identity::ClientIdentity;
use super::member::{Alarm, KvHash, Member, MemberStatus};
use super::messages::{
    AlarmResponse, Empty, HashKvRequest, HashKvResponse, MemberListRequest, MemberListResponse, RangeRequest,
    RangeResponse, SnapshotResponse, StatusResponse,
};
use super::snapshot::Snapshot;
use crate::api::util::text::with_causes;

const RANGE: &str = "/etcdserverpb.KV/Range";
const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
const HASH_KV: &str = "/etcdserverpb.Maintenance/HashKV";
const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";

/// Largest number of keys in a page.
const KEYS_AT_ONCE: i64 = 5_000;

/// Keys below a prefix, all of one revision, page by page.
#[derive(Debug)]
pub struct KeyPages<'c> {
    client: &'c EtcdClient,
    prefix: &'c str,
    /// First key of the next page; none behind the last one.
    next: Option<Vec<u8>>,
    revision: i64,
}

impl KeyPages<'_> {
    /// The revision; 0 before the first page.
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// Reads the next page; none behind the last one. What is no text in a key is replaced.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn next_page(&mut self) -> Result<Option<Vec<String>>, EtcdError> {
        let Some(key) = self.next.take() else { return Ok(None) };
        let (range_end, revision) = (end_of_prefix(self.prefix), self.revision);
        let request =
            RangeRequest { key, range_end, limit: KEYS_AT_ONCE, revision, keys_only: true, ..RangeRequest::default() };
        let answer: RangeResponse = self.client.call(RANGE, request).await?;
        if self.revision == 0 {
            self.revision = answer.header.map(|header| header.revision).unwrap_or_default();
        }
        if i64::try_from(answer.kvs.len()).is_ok_and(|read| read < answer.count) {
            // The next key is the same with a zero behind it.
            self.next = answer.kvs.last().map(|last| [&last.key[..], &[0]].concat());
        }
        let keys = answer.kvs.into_iter().map(|found| String::from_utf8_lossy(&found.key).into_owned());
        Ok(Some(keys.collect()))
    }
}

/// The first key behind all that begin with a prefix, which ends in a character of ASCII.
fn end_of_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A client of one member. Clones share the connection, which is made when it is first used.
#[derive(Debug, Clone)]
pub struct EtcdClient {
    channel: Channel,
    member: String,
}

impl EtcdClient {
    /// A client of the member in a pod.
    ///
    /// # Errors
    /// A certificate or a name that TLS cannot use.
    pub fn of_member<P: PodPorts>(
        ports: P,
        member: &MemberAddress,
        identity: &ClientIdentity,
    ) -> Result<Self, EtcdError> {
        let channel = open_channel(ports, member, identity).map_err(|error| unusable(&member.pod, &error))?;
        Ok(Self { channel, member: member.pod.clone() })
    }

    /// A client of whoever answers at a URL, over the network of this machine.
    ///
    /// # Errors
    /// A certificate or a URL that TLS cannot use.
    pub fn of_url(url: Uri, identity: &ClientIdentity) -> Result<Self, EtcdError> {
        let member = url.to_string();
        let channel = open_channel_to_url(url, identity).map_err(|error| unusable(&member, &error))?;
        Ok(Self { channel, member })
    }

    /// The member in words: its pod, or its URL.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// Reads the value of a key, as a majority of the members has it. None if there is no such key.
    ///
    /// # Errors
    /// [`EtcdError`]: a member without a quorum does not answer.
    pub async fn read_value(&self, key: &str) -> Result<Option<Vec<u8>>, EtcdError> {
        let request = RangeRequest { key: key.into(), ..RangeRequest::default() };
        let answer: RangeResponse = self.call(RANGE, request).await?;
        Ok(answer.kvs.into_iter().next().map(|found| found.value))
    }

    /// Counts the keys below a prefix at a revision.
    ///
    /// # Errors
    /// [`EtcdError`]: a revision that the member does not have yet, or has no longer, is refused.
    pub async fn count_keys(&self, prefix: &str, revision: i64) -> Result<u64, EtcdError> {
        let range_end = end_of_prefix(prefix);
        let request =
            RangeRequest { key: prefix.into(), range_end, revision, count_only: true, ..RangeRequest::default() };
        let answer: RangeResponse = self.call(RANGE, request).await?;
        Ok(u64::try_from(answer.count).unwrap_or_default())
    }

    /// Pages of the keys below a prefix, in their order.
    pub fn list_keys<'c>(&'c self, prefix: &'c str) -> KeyPages<'c> {
        KeyPages { client: self, prefix, next: Some(prefix.into()), revision: 0 }
    }

    /// Reads the state of the member. It answers without a quorum, too.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn read_status(&self) -> Result<MemberStatus, EtcdError> {
        let answer: StatusResponse = self.call(STATUS, Empty {}).await?;
        Ok(MemberStatus::from_message(&answer))
    }

    /// Lists the members as this one has them, sorted. It answers without a quorum, too.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn list_members(&self) -> Result<Vec<Member>, EtcdError> {
        let answer: MemberListResponse = self.call(MEMBER_LIST, MemberListRequest { linearizable: false }).await?;
        let mut members: Vec<Member> = answer.members.iter().map(Member::from_message).collect();
        members.sort();
        Ok(members)
    }

    /// Lists the alarms of all members, as this one knows them.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn list_alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        let answer: AlarmResponse = self.call(ALARM, Empty {}).await?;
        let mut alarms: Vec<Alarm> = answer.alarms.iter().map(Alarm::from_message).collect();
        alarms.sort();
        Ok(alarms)
    }

    /// Computes the hash of all keys up to a revision. The member reads its whole store for it.
    ///
    /// # Errors
    /// [`EtcdError`]: a revision that the member does not have yet, or has no longer, is refused.
    pub async fn hash_at(&self, revision: i64) -> Result<KvHash, EtcdError> {
        let answer: HashKvResponse = self.call(HASH_KV, HashKvRequest { revision }).await?;
        Ok(KvHash { revision, hash: answer.hash, compact_revision: answer.compact_revision })
    }

    /// Opens the stream of a snapshot of the member's store, as it is now. It answers without a quorum, too.
    ///
    /// # Errors
    /// [`EtcdError`]; further ones come in the stream.
    pub async fn open_snapshot(&self) -> Result<Snapshot, EtcdError> {
        let opened = tokio::time::timeout(CALL_WITHIN, async {
            let mut client = self.ready().await?;
            let codec = ProstCodec::<Empty, SnapshotResponse>::default();
            client.server_streaming(Request::new(Empty {}), PathAndQuery::from_static(SNAPSHOT), codec).await
        });
        let answer = self.checked(opened.await)?;
        Snapshot::open(self.member.clone(), answer.into_inner()).await
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(client)
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, EtcdError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let answered = tokio::time::timeout(CALL_WITHIN, async {
            let mut client = self.ready().await?;
            let codec = ProstCodec::<Q, A>::default();
            client.unary(Request::new(request), PathAndQuery::from_static(path), codec).await
        });
        Ok(self.checked(answered.await)?.into_inner())
    }

    fn checked<T>(&self, answer: Result<Result<T, Status>, tokio::time::error::Elapsed>) -> Result<T, EtcdError> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => Err(EtcdError::from_status(&self.member, &status)),
            Err(_) => Err(EtcdError::TimedOut { member: self.member.clone() }),
        }
    }
}

fn unusable(member: &str, error: &tonic::transport::Error) -> EtcdError {
    EtcdError::Unreachable { member: member.to_owned(), why: with_causes(error.to_string(), error) }
}
