//! Resource versions, which an API server counts up with every write to its store.

use kube::Resource;

/// Returns true where one state of an object was written before another one. Versions that are no numbers cannot be compared.
pub fn is_before<K: Resource>(one: &K, other: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.as_ref()?.parse::<u64>().ok();
    version(one).zip(version(other)).is_some_and(|(one, other)| one < other)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let of = |version: &str| {
            let mut map = ConfigMap::default();
            map.metadata.resource_version = Some(version.to_owned());
            map
        };
        assert!(is_before(&of("9"), &of("10")) && !is_before(&of("10"), &of("9")) && !is_before(&of("9"), &of("9")));
        assert!(!is_before(&of("a"), &of("b")) && !is_before(&ConfigMap::default(), &of("9")));
    }
}
