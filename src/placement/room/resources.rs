//! Numbers of resources, which all clusters of a fleet share.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a resource in a [`Resources`].
pub(crate) type ResourceId = u32;

/// Resources that have their numbers for ever: cpu 0, memory 1, pods 2.
const FIRST: [&str; 3] = ["cpu", "memory", "pods"];

/// The resources of all clusters by number, CPU, memory and pods first. A number is free again when no cluster has the
/// resource any more, so that names which one cluster makes up take nothing from the others.
#[derive(Debug, Clone)]
pub struct Resources {
    names: Vec<Arc<str>>,
    ids: BTreeMap<Arc<str>, ResourceId>,
    /// Clusters with the resource, by number.
    users: Vec<usize>,
    free: Vec<ResourceId>,
}

impl Default for Resources {
    fn default() -> Self {
        let names = FIRST.map(Arc::from).to_vec();
        let ids = names.iter().cloned().zip(0..).collect();
        Self { users: vec![1; names.len()], names, ids, free: Vec::new() }
    }
}

impl Resources {
    /// Returns the number of a resource that some cluster has.
    pub(crate) fn find_resource(&self, name: &str) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }

    /// Returns the name of a resource.
    pub(crate) fn name(&self, id: ResourceId) -> &Arc<str> {
        &self.names[id as usize]
    }

    /// Returns the number of a resource that one more cluster has; `None` where there are no numbers left.
    pub(super) fn acquire_id(&mut self, name: &Arc<str>) -> Option<ResourceId> {
        if let Some(id) = self.find_resource(name) {
            self.users[id as usize] += 1;
            return Some(id);
        }
        let id = match self.free.pop() {
            Some(id) => {
                self.names[id as usize] = name.clone();
                self.users[id as usize] = 1;
                id
            }
            None => {
                let id = ResourceId::try_from(self.names.len()).ok()?;
                self.names.push(name.clone());
                self.users.push(1);
                id
            }
        };
        self.ids.insert(name.clone(), id);
        Some(id)
    }

    /// Takes back the resources that a cluster no longer has.
    pub(super) fn release_ids(&mut self, ids: &[ResourceId]) {
        for id in ids {
            let users = &mut self.users[*id as usize];
            *users = users.saturating_sub(1);
            if *users == 0 {
                self.ids.remove(&self.names[*id as usize]);
                self.free.push(*id);
            }
        }
    }

    /// Number of resources that have a number.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}
