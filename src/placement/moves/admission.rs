//! Which moves begin now: the limits of the fleet, and the queue of those that wait.

use std::collections::BTreeMap;

use super::record::MoveCause;

/// Seconds at the start of a term in which nothing begins: writes of the former leader are dead after them.
pub const TERM_GATE_SECONDS: i64 = 60;
/// Most young moves at a time.
const MOST_YOUNG: usize = 10;
/// Seconds in which a move is young.
const YOUNG_SECONDS: i64 = 120;
/// Most open moves whose clusters are all Ready.
const MOST_OPEN: usize = 50;
/// Most moves that begin within a minute.
const MOST_A_MINUTE: usize = 30;
/// Places among the young that are kept for drains and pods without a node.
const KEPT_FOR_URGENT: usize = 3;

/// The fleet at one moment, as admission sees it. Times are seconds of the control plane's clock.
#[derive(Debug, Clone)]
pub struct MoveLimits<'a> {
    /// The present time.
    pub now: i64,
    /// When this leader's term began.
    pub term: i64,
    /// Mass-loss protection is active, or one of our watches is stale: no event or bookmark for 60 s.
    pub frozen: bool,
    /// Every group that waits, moves, or moved within the last minute, by name.
    pub groups: &'a BTreeMap<String, GroupMoves>,
}

/// What admission knows of a group: from its record, and from the comparison that found its cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupMoves {
    /// The move that it waits for.
    pub waits: Option<WaitingMove>,
    /// The move that runs: `status.move`.
    pub running: Option<RunningMove>,
    /// When its last move began, if that is over.
    pub ended: Option<i64>,
}

/// A move that waits for its admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingMove {
    /// Why the group would move.
    pub cause: MoveCause,
    /// Creation of the oldest member, in seconds: who waits in the same class goes by it.
    pub since: i64,
    /// Moves that failed in a row: `retry.attempt`, 0 without.
    pub attempt: i32,
    /// Earliest time: `retry.notBefore` if the cause is the same, else 0.
    pub not_before: i64,
}

/// A move that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningMove {
    /// Its cause.
    pub cause: MoveCause,
    /// When it began: `move.since`.
    pub began: i64,
    /// A cluster that it waits for is not Ready.
    pub away: bool,
}

impl MoveCause {
    /// Returns the class in which a cause waits, the most urgent first; none for what is no move or has its own limit.
    fn waiting_class(self) -> Option<u8> {
        match self {
            Self::Drain | Self::Leaving => Some(0),
            Self::Unschedulable | Self::KindNotServed => Some(1),
            Self::Policy | Self::Outgrown | Self::Label => Some(2),
            Self::Rebalance => Some(3),
            Self::Failover | Self::Lost | Self::Scale => None,
        }
    }

    fn is_urgent(self) -> bool {
        self.waiting_class().is_some_and(|class| class < 2)
    }
}

/// Returns the groups that wait and may begin, in the order of their admission; what is in back-off is left out.
pub fn queue_moves<'a>(limits: &MoveLimits<'a>) -> Vec<&'a str> {
    let waiting = limits.groups.iter().filter(|(_, group)| group.running.is_none());
    let mut queue: Vec<(u8, i32, i64, &str)> = waiting
        .filter_map(|(name, group)| {
            let waits = group.waits.filter(|waits| waits.not_before <= limits.now)?;
            Some((waits.cause.waiting_class()?, waits.attempt, waits.since, name.as_str()))
        })
        .collect();
    queue.sort_unstable();
    queue.into_iter().map(|(.., name)| name).collect()
}

/// Returns the groups whose move begins now, in order. Failover has [`admit_failovers`].
pub fn admit_moves<'a>(limits: &MoveLimits<'a>) -> Vec<&'a str> {
    if is_closed(limits) {
        return Vec::new();
    }
    let now = limits.now;
    let running = limits.groups.values().filter_map(|group| group.running);
    let counted: Vec<RunningMove> = running.filter(|running| running.cause != MoveCause::Failover).collect();
    let open: Vec<&RunningMove> = counted.iter().filter(|running| !running.away).collect();
    let young: Vec<&&RunningMove> = open.iter().filter(|running| now - running.began < YOUNG_SECONDS).collect();
    let ended = limits.groups.values().filter(|group| group.running.is_none()).filter_map(|group| group.ended);
    let recent = counted.iter().map(|running| running.began).chain(ended).filter(|began| now - began < 60).count();
    let free = (MOST_YOUNG.saturating_sub(young.len()))
        .min(MOST_OPEN.saturating_sub(open.len()))
        .min(MOST_A_MINUTE.saturating_sub(recent));
    if free == 0 {
        return Vec::new();
    }
    let mut slow = young.iter().filter(|running| !running.cause.is_urgent()).count();
    let mut admitted = Vec::new();
    for name in queue_moves(limits) {
        if admitted.len() == free {
            break;
        }
        if !limits.groups[name].waits.is_some_and(|waits| waits.cause.is_urgent()) {
            if slow >= MOST_YOUNG - KEPT_FOR_URGENT {
                continue;
            }
            slow += 1;
        }
        admitted.push(name);
    }
    admitted
}

/// Returns the groups whose failover begins now, oldest member first; what is in back-off is left out.
pub fn admit_failovers<'a>(limits: &MoveLimits<'a>, credit: FailoverCredit) -> Vec<&'a str> {
    if is_closed(limits) || credit.whole_failovers() == 0 {
        return Vec::new();
    }
    let waiting = limits.groups.iter().filter(|(_, group)| group.running.is_none());
    let mut queue: Vec<(i64, &str)> = waiting
        .filter_map(|(name, group)| {
            let waits = group.waits.filter(|waits| waits.not_before <= limits.now)?;
            (waits.cause == MoveCause::Failover).then_some((waits.since, name.as_str()))
        })
        .collect();
    queue.sort_unstable();
    queue.into_iter().take(credit.whole_failovers()).map(|(_, name)| name).collect()
}

/// Returns whether nothing may begin at all.
fn is_closed(limits: &MoveLimits<'_>) -> bool {
    limits.frozen || limits.now - limits.term < TERM_GATE_SECONDS
}

/// How many failovers may begin: it grows by one in two seconds, up to one. A new term begins with none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailoverCredit {
    thousandths: u32,
}

impl FailoverCredit {
    /// Most that is saved, in thousandths.
    const MOST: u32 = 1_000;

    /// Returns the credit of so many thousandths of a failover.
    pub fn from_thousandths(thousandths: u32) -> Self {
        Self { thousandths: thousandths.min(Self::MOST) }
    }

    /// Adds what so many milliseconds bring.
    #[must_use]
    pub fn after_milliseconds(self, milliseconds: u64) -> Self {
        let gained = u32::try_from(milliseconds / 2).unwrap_or(Self::MOST);
        Self::from_thousandths(self.thousandths.saturating_add(gained))
    }

    /// Takes the failovers that began.
    #[must_use]
    pub fn spend_failovers(self, begun: usize) -> Self {
        let spent = u32::try_from(begun).unwrap_or(Self::MOST).saturating_mul(1_000);
        Self { thousandths: self.thousandths.saturating_sub(spent) }
    }

    fn whole_failovers(self) -> usize {
        usize::try_from(self.thousandths / 1_000).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting_failover(since: i64, attempt: i32, not_before: i64) -> GroupMoves {
        let waits = WaitingMove { cause: MoveCause::Failover, since, attempt, not_before };
        GroupMoves { waits: Some(waits), ..GroupMoves::default() }
    }

    #[test]
    fn a_failover_in_back_off_does_not_hold_up_others() {
        let groups = BTreeMap::from([
            ("older".to_owned(), waiting_failover(1, 1, 1_060)),
            ("younger".to_owned(), waiting_failover(2, 0, 0)),
        ]);
        let credit = FailoverCredit::from_thousandths(1_000);
        for (now, admitted) in [(1_059, "younger"), (1_060, "older")] {
            let limits = MoveLimits { now, term: 0, frozen: false, groups: &groups };
            assert_eq!(admit_failovers(&limits, credit), [admitted]);
        }
    }
}
