//! Resource versions, which an API server counts up with every write to its store.

use kube::Resource;

/// Returns true where one state of an object was written before another one. Versions that are no numbers cannot be compared.
pub fn is_before<K: Resource>(one: &K, other: &K) -> bool {
    let [one, other] = [one, other].map(|object| object.meta().resource_version.as_ref()?.parse::<u64>().ok());
    one.zip(other).is_some_and(|(one, other)| one < other)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn config_map_at(version: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.resource_version = Some(version.to_owned());
        map
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(
            is_before(&config_map_at("9"), &config_map_at("10"))
                && !is_before(&config_map_at("10"), &config_map_at("9"))
                && !is_before(&config_map_at("9"), &config_map_at("9"))
        );
        assert!(
            !is_before(&config_map_at("a"), &config_map_at("b"))
                && !is_before(&ConfigMap::default(), &config_map_at("9"))
        );
    }
}
