//! The member that is read: a follower that is in sync, so that the leader has no more to do.

use super::error::BackupError;
use crate::etcd::{EtcdError, MAX_LAG, MemberStatus};

/// A member that is read.
#[derive(Debug)]
pub(super) struct ChosenMember {
    /// Its pod.
    pub(super) pod: String,
    /// Its state before the snapshot.
    pub(super) status: MemberStatus,
}

/// Chooses a member by what each answered. `from` takes that one, whatever it says.
pub(super) fn choose_member(
    answers: Vec<(String, Result<MemberStatus, EtcdError>)>,
    from: Option<&str>,
) -> Result<ChosenMember, BackupError> {
    if let Some(name) = from {
        let members = answers.iter().map(|(pod, _)| pod.as_str()).collect::<Vec<_>>().join(", ");
        let found = answers.into_iter().find(|(pod, _)| pod == name);
        let (pod, status) = found.ok_or_else(|| BackupError::NoSuchMember { name: name.to_owned(), members })?;
        return Ok(ChosenMember { pod, status: status? });
    }
    let mut failures = Vec::new();
    let mut answered = Vec::new();
    for (pod, status) in answers {
        match status {
            Ok(status) if status.leader.is_none() => failures.push(format!("{pod} has no leader")),
            Ok(status) => answered.push((pod, status)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    // Without the leader's own answer, the newest entry that any member knows of is as far as it can be.
    let newest = answered.iter().map(|(_, status)| status.raft_index).max();
    let Some(newest) = newest else { return Err(BackupError::NoQuorum(failures.join("; "))) };
    let (in_sync, behind): (Vec<_>, Vec<_>) = answered
        .into_iter()
        .filter(|(_, status)| !status.learner)
        .partition(|(_, status)| status.lag_behind(newest) <= MAX_LAG);
    let best = in_sync.into_iter().min_by_key(|(_, status)| {
        let is_leader = status.leader == Some(status.id);
        (is_leader, status.lag_behind(newest))
    });
    best.map(|(pod, status)| ChosenMember { pod, status }).ok_or_else(|| {
        let behind =
            behind.iter().map(|(pod, status)| format!("{pod} is {} log entries behind", status.lag_behind(newest)));
        BackupError::NotInSync(behind.chain(failures).collect::<Vec<_>>().join("; "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::MemberId;

    type Answer = (String, Result<MemberStatus, EtcdError>);

    fn answer(number: u64, leader: Option<u64>, applied: u64) -> Answer {
        let status = MemberStatus {
            id: MemberId(number),
            version: "3.5.35".to_owned(),
            leader: leader.map(MemberId),
            revision: 7,
            size_bytes: 0,
            size_in_use_bytes: 0,
            raft_term: 2,
            raft_index: applied,
            raft_applied_index: applied,
            learner: false,
        };
        (format!("etcd-{number}"), Ok(status))
    }

    fn silent(number: u64) -> Answer {
        let member = format!("etcd-{number}");
        (member.clone(), Err(EtcdError::TimedOut { member }))
    }

    fn chosen(answers: Vec<Answer>) -> String {
        choose_member(answers, None).map_or_else(|error| error.to_string(), |chosen| chosen.pod)
    }

    #[test]
    fn a_follower_in_sync_is_read_before_the_leader() {
        assert_eq!(chosen(vec![answer(0, Some(0), 5000)]), "etcd-0");
        assert_eq!(
            chosen(vec![answer(0, Some(0), 5000), answer(1, Some(0), 4000), answer(2, Some(0), 4999)]),
            "etcd-2"
        );
        assert_eq!(chosen(vec![answer(0, Some(0), 5000), answer(1, Some(0), 3999), silent(2)]), "etcd-0");
        assert_eq!(chosen(vec![silent(0), answer(1, Some(0), 5000), answer(2, Some(0), 3999)]), "etcd-1");
    }

    #[test]
    fn a_learner_is_never_read() {
        let mut learner = answer(1, Some(0), 5000);
        if let Ok(status) = &mut learner.1 {
            status.learner = true;
        }
        assert_eq!(chosen(vec![answer(0, Some(0), 5000), learner]), "etcd-0");
    }

    /// The answers of three members, of which one answers, without a leader.
    fn build_lone_answer() -> Vec<Answer> {
        vec![silent(0), answer(1, None, 100), silent(2)]
    }

    #[test]
    fn without_a_leader_only_a_named_member_is_read() {
        assert_eq!(
            chosen(build_lone_answer()),
            "etcd has no quorum: etcd-0 does not answer within 10 s; etcd-1 has no leader; etcd-2 does not answer \
             within 10 s"
        );
        assert_eq!(choose_member(build_lone_answer(), Some("etcd-1")).unwrap().pod, "etcd-1");
        assert_eq!(choose_member(build_lone_answer(), Some("etcd-0")).unwrap_err().reason(), "EtcdUnreachable");
        let unknown = choose_member(build_lone_answer(), Some("etcd-3")).unwrap_err();
        assert_eq!(unknown.to_string(), "etcd has no member etcd-3; its members are etcd-0, etcd-1, etcd-2");
    }
}
