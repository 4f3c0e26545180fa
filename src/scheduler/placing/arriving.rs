//! Added kinds of which the first list is on its way: none of their objects counts before all of them are known.

use std::collections::BTreeMap;

use super::place::Place;
use super::source::Read;
use super::sources::Seen;
use crate::api::placeable::Placeable;

#[derive(Debug, Default)]
struct Kind {
    objects: BTreeMap<Place, Read>,
    /// Nothing else waits for it.
    is_alone: bool,
}

/// Objects of added kinds, by kind, until its first list is complete.
#[derive(Debug, Default)]
pub(super) struct Arriving(BTreeMap<(&'static str, &'static str), Kind>);

impl Arriving {
    /// Creates the state at the beginning of a term: nothing is decided before these kinds are listed.
    pub(super) fn new(kinds: &[&'static Placeable]) -> Self {
        Self(kinds.iter().map(|kind| ((kind.group, kind.plural), Kind::default())).collect())
    }

    /// Adds a kind that begins to be served.
    pub(super) fn add_arriving_kind(&mut self, kind: &Placeable) {
        self.0.insert((kind.group, kind.plural), Kind { is_alone: true, ..Kind::default() });
    }

    /// Number of kinds that nothing else waits for.
    pub(super) fn count_unawaited_kinds(&self) -> usize {
        self.0.values().filter(|kind| kind.is_alone).count()
    }

    /// Records that a kind cannot be listed at the moment. Somebody's conversion webhook must not keep everything else
    /// waiting.
    pub(super) fn record_list_failure(&mut self, kind: &Placeable) {
        if let Some(kind) = self.0.get_mut(&(kind.group, kind.plural)) {
            kind.is_alone = true;
        }
    }

    /// Holds an observation back until its kind is listed; returns those that count now.
    pub(super) fn hold_until_listed(&mut self, kind: &Placeable, seen: Seen<Read>) -> Vec<Seen<Read>> {
        let of = (kind.group, kind.plural);
        let Some(known) = self.0.get_mut(&of) else { return vec![seen] };
        match seen {
            Seen::There(object) => drop(known.objects.insert(object.place.clone(), object)),
            Seen::Gone(object) => drop(known.objects.remove(&object.place)),
            Seen::Listed(places) => {
                let objects = self.0.remove(&of).unwrap_or_default().objects;
                let listed = objects.into_iter().filter(|(at, _)| places.contains(at));
                let mut all: Vec<_> = listed.map(|(_, object)| Seen::There(object)).collect();
                all.push(Seen::Listed(places));
                return all;
            }
        }
        Vec::new()
    }
}
