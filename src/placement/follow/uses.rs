//! Who uses something in which cluster, added up so that many followers share one sum.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// Most users that are named of a follower in a cluster: the first in the order of keys.
pub const MOST_REASONS: usize = 20;

/// Position of a source among the records, which are in the order of keys.
pub(super) type Index = usize;

/// What a user in a cluster does for what it uses there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UserMode {
    /// What it uses is written.
    Active,
    /// What it uses is left as it is: its policy is suspended.
    Suspended,
    /// What it uses and is there stays, and nothing is made: it leaves.
    Leaving,
}

/// One user in one cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub(super) index: Index,
    pub(super) mode: UserMode,
    /// Position of the policy that places it, in the order in which policies decide.
    pub(super) policy: Option<usize>,
    /// Whether what no policy matches goes along.
    pub(super) carries: bool,
    /// Whether it is spread over clusters, so that each has its own claim.
    pub(super) is_spread: bool,
    pub(super) created: Option<Timestamp>,
    pub(super) has_copy: bool,
}

/// Order of users by age: without a time the youngest, then by key; where it runs before where it is to run.
type Age = (bool, Option<Timestamp>, Index, bool);

/// Everything that uses something in one cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Reasons {
    /// The users, the first [`MOST_REASONS`].
    pub(super) users: BTreeSet<Index>,
    pub(super) is_active: bool,
    pub(super) is_leaving: bool,
    pub(super) is_carried: bool,
    pub(super) is_spread: bool,
    pub(super) oldest: Option<Age>,
    /// First policy of a user that carries.
    carrier: Option<usize>,
    /// First policy of any user that is not suspended.
    placer: Option<usize>,
}

fn lesser<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Reasons {
    fn add_user(&mut self, user: &User) {
        self.insert_index(user.index);
        let is_active = user.mode == UserMode::Active;
        self.is_active |= is_active;
        self.is_leaving |= user.mode == UserMode::Leaving;
        self.is_carried |= is_active && user.carries;
        self.is_spread |= is_active && user.is_spread;
        if is_active && user.carries {
            self.carrier = lesser(self.carrier, user.policy);
        }
        if user.mode != UserMode::Suspended {
            self.placer = lesser(self.placer, user.policy);
        }
        if user.mode != UserMode::Leaving {
            let age = (user.created.is_none(), user.created, user.index, !user.has_copy);
            self.oldest = lesser(self.oldest, Some(age));
        }
    }

    fn insert_index(&mut self, index: Index) {
        self.users.insert(index);
        if self.users.len() > MOST_REASONS {
            self.users.pop_last();
        }
    }

    fn merge_reasons(&mut self, other: &Self) {
        for index in &other.users {
            self.insert_index(*index);
        }
        self.is_active |= other.is_active;
        self.is_leaving |= other.is_leaving;
        self.is_carried |= other.is_carried;
        self.is_spread |= other.is_spread;
        self.oldest = lesser(self.oldest, other.oldest);
        self.carrier = lesser(self.carrier, other.carrier);
        self.placer = lesser(self.placer, other.placer);
    }

    /// Returns the policy whose overrides hold for what no policy matches: the first that carries it, else the first that
    /// places one of its users.
    pub(super) fn overriding_policy(&self) -> Option<usize> {
        if self.is_carried { self.carrier } else { self.placer }
    }
}

/// Everything that uses something.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses<'a> {
    /// By cluster.
    pub(super) places: BTreeMap<&'a str, Reasons>,
    /// Whether a user has no place yet.
    pub(super) is_waiting: bool,
    /// Whether such a user would carry what no policy matches.
    pub(super) waiting_carries: bool,
}

impl<'a> Uses<'a> {
    pub(super) fn add_user(&mut self, cluster: &'a str, user: &User) {
        self.places.entry(cluster).or_default().add_user(user);
    }

    pub(super) fn add_waiting(&mut self, carries: bool) {
        self.is_waiting = true;
        self.waiting_carries |= carries;
    }

    pub(super) fn merge_uses(&mut self, other: &Self) {
        for (cluster, reasons) in &other.places {
            self.places.entry(cluster).or_default().merge_reasons(reasons);
        }
        self.is_waiting |= other.is_waiting;
        self.waiting_carries |= other.waiting_carries;
    }

    /// Takes the reasons of one cluster from other uses, in place of its own.
    pub(super) fn replace_place(&mut self, cluster: &'a str, other: &Self) {
        match other.places.get(cluster) {
            Some(reasons) => self.places.insert(cluster, reasons.clone()),
            None => self.places.remove(cluster),
        };
    }

    /// Returns whether anything counts as a user.
    pub(super) fn is_used(&self) -> bool {
        !self.places.is_empty() || self.is_waiting
    }
}
