//! What the members of one etcd report, side by side, and where they differ.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde::Serialize;

use super::client::EtcdClient;
use super::error::EtcdError;
use super::member::{Alarm, KvHash, MAX_LAG, Member, MemberId, MemberStatus};

/// A key that nobody has: reading it needs a quorum, and nothing else.
const NO_KEY: &str = "health";
/// Revision that stands for the latest one.
const LATEST: i64 = 0;
/// Part of its quota that a store may have, in percent.
const FULL_AT: u64 = 80;
/// Attempts to find a revision at which all members compute their hash over the same keys.
const HASH_ATTEMPTS: usize = 3;

/// All members, and what is wrong between them.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// One for each pod.
    pub members: Vec<MemberReport>,
    /// Largest size of a store, in bytes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Alarms that any member knows of.
    pub alarms: Vec<Alarm>,
    /// Sentences about what is unequal, missing or refused: with one of them, etcd is not healthy.
    pub problems: Vec<String>,
    /// Sentences about what needs attention.
    pub warnings: Vec<String>,
}

/// One member as it reports itself. What it did not answer is left out, with the reason.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    /// Its pod, which is also its name.
    pub pod: String,
    /// Its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<MemberStatus>,
    /// The members as this one lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists: Option<Vec<Member>>,
    /// Whether it answers a read that a majority has to confirm.
    pub quorum: bool,
    /// Hash of its keys, at the same revision for all members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<KvHash>,
    /// Reason that something is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Asks all members at once, and compares what they report.
pub async fn observe_members(clients: &[EtcdClient], quota_bytes: Option<u64>) -> ClusterReport {
    let observed = join_all(clients.iter().map(observe_member)).await;
    let (members, alarms): (Vec<_>, Vec<_>) = observed.into_iter().unzip();
    let alarms: BTreeSet<Alarm> = alarms.into_iter().flatten().collect();
    let mut report =
        ClusterReport { members, quota_bytes, alarms: alarms.into_iter().collect(), ..ClusterReport::default() };
    for _ in 0..HASH_ATTEMPTS {
        if report.read_hashes(clients).await {
            break;
        }
    }
    report.evaluate();
    report
}

/// Finds what differs between members while nobody writes: their hashes are those of all keys as they are, because a store
/// that was just restored has no earlier revision. None if all members have the same keys and a majority answers.
pub async fn find_store_difference(clients: &[EtcdClient]) -> Option<String> {
    let asked = clients.iter().map(|client| async move {
        client.read_value(NO_KEY).await?;
        let (status, hash) = (client.read_status().await?, client.hash_at(LATEST).await?);
        Ok::<_, EtcdError>((status.revision, hash.hash, client.list_members().await?))
    });
    let mut found = Vec::new();
    for answer in join_all(asked).await {
        match answer {
            Ok(answer) => found.push(answer),
            Err(error) => return Some(error.to_string()),
        }
    }
    for (client, one) in clients.iter().zip(&found) {
        if one.2.len() != clients.len() {
            return Some(format!("{} lists {} members; expected {}", client.member(), one.2.len(), clients.len()));
        }
        if *one != found[0] {
            return Some(format!("the data of {} differs from that of {}", client.member(), clients[0].member()));
        }
    }
    None
}

async fn observe_member(client: &EtcdClient) -> (MemberReport, Vec<Alarm>) {
    let mut report = MemberReport { pod: client.member().to_owned(), ..MemberReport::default() };
    let local = async {
        let status = client.read_status().await?;
        Ok::<_, EtcdError>((status, client.list_members().await?))
    };
    // Without a quorum, this one is answered after a while or never.
    let confirmed = async { (client.read_value(NO_KEY).await, client.list_alarms().await) };
    let (local, (quorum, alarms)) = tokio::join!(local, confirmed);
    match local {
        Ok((status, lists)) => (report.status, report.lists) = (Some(status), Some(lists)),
        Err(error) => report.error = Some(error.to_string()),
    }
    report.quorum = quorum.is_ok();
    let further = quorum.err().or_else(|| alarms.as_ref().err().cloned());
    report.error = report.error.or_else(|| further.map(|error| error.to_string()));
    (report, alarms.unwrap_or_default())
}

impl ClusterReport {
    /// Returns whether nothing is wrong. There may be warnings.
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }

    /// Reads the hash of every member that answers, at the latest revision that all of them have. Returns whether the hashes
    /// can be compared: members that were compacted in between count other keys.
    async fn read_hashes(&mut self, clients: &[EtcdClient]) -> bool {
        let revisions = self.members.iter().filter_map(|member| Some(member.status.as_ref()?.revision));
        let Some(revision) = revisions.min() else { return true };
        let asked = self.members.iter().zip(clients).map(|(member, client)| async move {
            if member.status.is_some() { Some(client.hash_at(revision).await) } else { None }
        });
        let answers = join_all(asked).await;
        for (member, answer) in self.members.iter_mut().zip(answers) {
            match answer {
                Some(Ok(hash)) => member.hash = Some(hash),
                Some(Err(error)) => member.error = member.error.take().or_else(|| Some(error.to_string())),
                None => {}
            }
        }
        let compacted: BTreeSet<i64> =
            self.members.iter().filter_map(|member| Some(member.hash?.compact_revision)).collect();
        compacted.len() <= 1
    }

    /// Writes down what is wrong.
    fn evaluate(&mut self) {
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        for member in &self.members {
            problems.extend(member.error.clone());
        }
        self.compare_lists(&mut problems, &mut warnings);
        self.compare_leaders(&mut problems);
        self.compare_hashes(&mut problems, &mut warnings);
        for alarm in &self.alarms {
            problems.push(format!("alarm {} is raised for {}", alarm.kind, self.name_of(alarm.member)));
        }
        self.check_sizes(&mut warnings);
        (self.problems, self.warnings) = (problems, warnings);
    }

    fn with_status(&self) -> impl Iterator<Item = (&str, &MemberStatus)> {
        self.members.iter().filter_map(|member| Some((member.pod.as_str(), member.status.as_ref()?)))
    }

    /// The pod of a member, else its identifier.
    fn name_of(&self, id: MemberId) -> String {
        let known = self.with_status().find(|(_, status)| status.id == id).map(|(pod, _)| pod.to_owned());
        known.or_else(|| self.find_listed_name(id)).unwrap_or_else(|| format!("member {id}"))
    }

    /// The name of a member in the first list that has it, if that is not empty.
    fn find_listed_name(&self, id: MemberId) -> Option<String> {
        let mut all = self.members.iter().flat_map(|member| member.lists.iter().flatten());
        all.find(|member| member.id == id).map(|member| member.name.clone()).filter(|name| !name.is_empty())
    }

    fn compare_lists(&self, problems: &mut Vec<String>, warnings: &mut Vec<String>) {
        let mut lists = self.members.iter().filter_map(|member| Some((&member.pod, member.lists.as_ref()?)));
        let Some((first, members)) = lists.next() else { return };
        for (pod, other) in lists.filter(|(_, other)| *other != members) {
            let (here, there) = (format_list(other), format_list(members));
            problems.push(format!("{pod} lists the members {here}, but {first} lists {there}"));
        }
        for member in members {
            if member.name.is_empty() {
                warnings.push(format!("member {} has never started", member.id));
            } else if !self.members.iter().any(|known| known.pod == member.name) {
                problems.push(format!("{} (member {}) is listed, but has no pod", member.name, member.id));
            }
            if member.learner {
                warnings.push(format!("{} is a learner: it has no vote yet", self.name_of(member.id)));
            }
        }
        for known in self.members.iter().filter(|known| !members.iter().any(|member| member.name == known.pod)) {
            problems.push(format!("{} is not listed as a member", known.pod));
        }
    }

    fn compare_leaders(&self, problems: &mut Vec<String>) {
        let mut leading: Option<(&str, MemberId)> = None;
        for (pod, status) in self.with_status() {
            match (status.leader, leading) {
                (None, _) => problems.push(format!("{pod} has no leader")),
                (Some(leader), None) => leading = Some((pod, leader)),
                (Some(leader), Some((first, known))) if leader != known => {
                    let (here, there) = (self.name_of(leader), self.name_of(known));
                    problems.push(format!("{pod} follows the leader {here}, but {first} follows {there}"));
                }
                _ => {}
            }
        }
    }

    fn compare_hashes(&self, problems: &mut Vec<String>, warnings: &mut Vec<String>) {
        let mut hashes = self.members.iter().filter_map(|member| Some((&member.pod, member.hash?)));
        let Some((first, known)) = hashes.next() else { return };
        for (pod, hash) in hashes {
            if hash.compact_revision != known.compact_revision {
                warnings.push(format!(
                    "the hashes of {first} and {pod} cannot be compared: the members were compacted at revisions {} and {}",
                    known.compact_revision, hash.compact_revision
                ));
            } else if hash.hash != known.hash {
                problems.push(format!(
                    "the data of {pod} differs from that of {first}: at revision {} their hashes are {:08x} and {:08x}",
                    known.revision, hash.hash, known.hash
                ));
            }
        }
    }

    fn check_sizes(&self, warnings: &mut Vec<String>) {
        let newest = self.with_status().map(|(_, status)| status.raft_index).max().unwrap_or_default();
        for (pod, status) in self.with_status() {
            let lag = status.lag_behind(newest);
            if lag > MAX_LAG {
                warnings.push(format!("{pod} is {lag} log entries behind the newest member"));
            }
            let quota = self.quota_bytes.filter(|quota| *quota > 0);
            if let Some(percent) = quota.map(|quota| status.size_bytes.saturating_mul(100) / quota)
                && percent >= FULL_AT
            {
                warnings.push(format!(
                    "the store of {pod} uses {percent} % of its quota; when the quota is used up, etcd rejects writes"
                ));
            }
        }
    }
}

fn format_list(members: &[Member]) -> String {
    let names = members.iter().map(|member| match member.name.as_str() {
        "" => member.id.to_string(),
        name => name.to_owned(),
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u64) -> Member {
        Member { id: MemberId(number), name: format!("etcd-{number}"), learner: false }
    }

    fn report_of(number: u64) -> MemberReport {
        let status = MemberStatus {
            id: MemberId(number),
            version: "3.5.35".to_owned(),
            leader: Some(MemberId(1)),
            revision: 100,
            size_bytes: 700,
            size_in_use_bytes: 500,
            raft_term: 2,
            raft_index: 5000,
            raft_applied_index: 5000,
            learner: false,
        };
        MemberReport {
            pod: format!("etcd-{number}"),
            status: Some(status),
            lists: Some((0..3).map(member).collect()),
            quorum: true,
            hash: Some(KvHash { revision: 100, hash: 7, compact_revision: 50 }),
            error: None,
        }
    }

    fn evaluated(change: impl Fn(&mut ClusterReport)) -> (Vec<String>, Vec<String>) {
        let members = (0..3).map(report_of).collect();
        let mut report = ClusterReport { members, quota_bytes: Some(1000), ..ClusterReport::default() };
        change(&mut report);
        report.evaluate();
        assert_eq!(report.is_healthy(), report.problems.is_empty());
        (report.problems, report.warnings)
    }

    fn join_problems(change: impl Fn(&mut ClusterReport)) -> String {
        evaluated(change).0.join("; ")
    }

    /// The warnings of a report without problems.
    fn join_warnings(change: impl Fn(&mut ClusterReport)) -> String {
        let (problems, warnings) = evaluated(change);
        assert_eq!(problems, Vec::<String>::new());
        warnings.join("; ")
    }

    fn status(report: &mut ClusterReport, number: usize) -> &mut MemberStatus {
        report.members[number].status.as_mut().unwrap()
    }

    #[test]
    fn equal_members_are_healthy() {
        assert_eq!(evaluated(|_| {}), (vec![], vec![]));
    }

    #[test]
    fn whatever_is_unequal_is_a_problem_that_names_both_members() {
        assert_eq!(
            join_problems(|report| report.members[2].hash.as_mut().unwrap().hash = 9),
            "the data of etcd-2 differs from that of etcd-0: at revision 100 their hashes are 00000009 and 00000007"
        );
        assert_eq!(
            join_problems(|report| drop(report.members[1].lists.as_mut().unwrap().pop())),
            "etcd-1 lists the members etcd-0, etcd-1, but etcd-0 lists etcd-0, etcd-1, etcd-2"
        );
        assert_eq!(
            join_problems(|report| status(report, 2).leader = Some(MemberId(2))),
            "etcd-2 follows the leader etcd-2, but etcd-0 follows etcd-1"
        );
        assert_eq!(join_problems(|report| status(report, 0).leader = None), "etcd-0 has no leader");
        assert_eq!(
            join_problems(|report| report.members.iter_mut().for_each(|of| of.lists.as_mut().unwrap().push(member(9)))),
            "etcd-9 (member 9) is listed, but has no pod"
        );
        assert_eq!(
            join_problems(|report| report.members.iter_mut().for_each(|of| drop(of.lists.as_mut().unwrap().pop()))),
            "etcd-2 is not listed as a member"
        );
        let alarm = Alarm { member: MemberId(1), kind: super::super::AlarmKind::NoSpace };
        assert_eq!(join_problems(|report| report.alarms.push(alarm)), "alarm NOSPACE is raised for etcd-1");
        let away = join_problems(|report| {
            let error = Some("etcd-1 cannot be reached: refused".to_owned());
            report.members[1] = MemberReport { pod: "etcd-1".to_owned(), error, ..MemberReport::default() };
        });
        assert_eq!(away, "etcd-1 cannot be reached: refused");
    }

    #[test]
    fn what_needs_attention_is_a_warning() {
        let full = join_warnings(|report| status(report, 1).size_bytes = 800);
        assert!(full.starts_with("the store of etcd-1 uses 80 % of its quota"), "{full}");
        assert_eq!(join_warnings(|report| report.quota_bytes = Some(0)), "");
        let behind = join_warnings(|report| status(report, 1).raft_applied_index = 3999);
        assert_eq!(behind, "etcd-1 is 1001 log entries behind the newest member");
        let compacted = join_warnings(|report| {
            *report.members[1].hash.as_mut().unwrap() = KvHash { revision: 100, hash: 9, compact_revision: 60 };
        });
        assert!(compacted.contains("cannot be compared"), "{compacted}");
        let learner = join_warnings(|report| {
            report.members.iter_mut().for_each(|of| of.lists.as_mut().unwrap()[2].learner = true);
        });
        assert_eq!(learner, "etcd-2 is a learner: it has no vote yet");
    }
}
