//! What a follower belongs to: what names it, what it names or selects, its group, its namespace.

use super::board::Board;
use super::kinds::is_claim;
use super::uses::{Index, Uses};
use crate::placement::facts::{ObjectKey, PodSelection, Relations};

impl<'a> Board<'a> {
    /// Adds up everything that uses a follower.
    pub(super) fn find_uses(&mut self, index: Index) -> Uses<'a> {
        let record = self.sources.records[index];
        let key = &record.facts.key;
        let mut uses = self.find_owners(key, record.relations);
        let policy = self.sources.policy(index).map(|policy| self.sources.policies[policy].name.as_str());
        for ((editor, cluster), edited) in record.edited {
            if Some(editor.as_str()) == policy {
                let edited = self.find_owners(key, edited);
                uses.replace_place(cluster, &edited);
            }
        }
        if let Some(named) = self.named.get(key) {
            uses.merge_uses(named);
        }
        if is_claim(key) {
            self.add_claim_makers(key, &mut uses);
        }
        if let Some(members) = self.shared_group(index).and_then(|group| self.members.get(&group))
            && let Some(members) = members.get(key.namespace())
        {
            uses.merge_uses(members);
        }
        if key.is_of_kind("", "Namespace")
            && let Some(contents) = self.contents.get(key.name())
        {
            uses.merge_uses(contents);
        }
        let is_for_namespace = self.sources.kind(index).is_some_and(|kind| kind.is_for_namespace);
        if is_for_namespace
            && !uses.is_used()
            && let Some(decided) = self.decided.get(key.namespace())
        {
            uses.merge_uses(decided);
        }
        uses
    }

    /// Adds up what an object belongs to by its names and its selector.
    fn find_owners(&mut self, key: &'a ObjectKey, relations: &'a Relations) -> Uses<'a> {
        let mut uses = Uses::default();
        match &relations.selects {
            PodSelection::Nothing => {}
            PodSelection::Namespace => {
                if let Some(decided) = self.decided.get(key.namespace()) {
                    uses.merge_uses(decided);
                }
            }
            PodSelection::Pods(selector) => uses.merge_uses(&self.select_pods(key.namespace(), selector)),
        }
        for owner in &relations.belongs_to {
            if super::kinds::is_default_account(owner) {
                // Every cluster has that account: rights for it are for the pods that run as it.
                if let Some(pods) = self.named.get(owner) {
                    uses.merge_uses(pods);
                }
            } else if let Some(owner) = self.sources.find(owner) {
                self.add_standing(owner, &mut uses);
            }
        }
        uses
    }

    /// Adds the StatefulSets that a claim is made for: `data-db-0` for the template `data` of `db`.
    fn add_claim_makers(&self, key: &'a ObjectKey, uses: &mut Uses<'a>) {
        for maker in self.find_claim_makers(key) {
            self.add_standing(*maker, uses);
        }
    }

    /// Returns the StatefulSets that a claim is made for.
    pub(super) fn find_claim_makers(&self, key: &'a ObjectKey) -> &[Index] {
        let makers = key.name().rsplit_once('-').filter(|(_, ordinal)| is_ordinal(ordinal));
        let makers = makers.and_then(|(prefix, _)| self.claim_makers.get(&(key.namespace(), prefix)));
        makers.map(Vec::as_slice).unwrap_or_default()
    }
}

fn is_ordinal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
}
