//! The labels of nodes as they are reported: each distinct set once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::crd::cluster::NodeLabels;

/// Labels by node.
pub type Labels = BTreeMap<String, Arc<BTreeMap<String, String>>>;

/// Largest report, as JSON. Beyond, keys are left out.
const MOST: usize = 8 * 1024;
/// The label that every node has, and no two share: it is read as the node's name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Returns the labels as they are reported. While that is too large the key with most distinct values is left out.
pub fn report_labels(labels: &Labels) -> NodeLabels {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in labels.values().flat_map(|labels| labels.iter()).filter(|(key, _)| *key != HOSTNAME) {
        values.entry(key).or_default().insert(value);
    }
    let mut dropped: Vec<String> = Vec::new();
    loop {
        let report = labels_without_keys(labels, &dropped);
        let size = serde_json::to_vec(&(&report.sets, &report.of)).map_or(0, |text| text.len());
        let widest = values.iter().max_by_key(|(key, values)| (values.len(), key.len(), **key)).map(|(key, _)| *key);
        match widest {
            Some(key) if size > MOST => {
                values.remove(key);
                dropped.push(key.to_owned());
            }
            _ => return report,
        }
    }
}

fn labels_without_keys(labels: &Labels, dropped: &[String]) -> NodeLabels {
    let mut known: BTreeMap<BTreeMap<&str, &str>, i32> = BTreeMap::new();
    let mut report = NodeLabels { dropped_keys: dropped.to_vec(), ..NodeLabels::default() };
    for labels in labels.values() {
        let kept = labels.iter().filter(|(key, _)| *key != HOSTNAME && !dropped.contains(key));
        let set: BTreeMap<&str, &str> = kept.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let next = i32::try_from(known.len()).unwrap_or(i32::MAX);
        let index = *known.entry(set).or_insert_with_key(|set| {
            report.sets.push(set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
            next
        });
        report.of.push(index);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(nodes: impl IntoIterator<Item = (String, Vec<(&'static str, String)>)>) -> Labels {
        let nodes = nodes.into_iter().map(|(name, pairs)| {
            (name, Arc::new(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
        });
        nodes.collect()
    }

    #[test]
    fn each_set_is_reported_once() {
        let nodes = [("b", "1"), ("a", "2"), ("c", "2")]
            .map(|(name, zone)| (name.to_owned(), vec![("zone", zone.to_owned()), (HOSTNAME, name.to_owned())]));
        let report = report_labels(&labels(nodes));
        assert_eq!(report.of, [0, 1, 0], "in the order of names");
        let sets = ["2", "1"].map(|zone| BTreeMap::from([("zone".to_owned(), zone.to_owned())]));
        assert_eq!((report.sets, report.dropped_keys), (sets.to_vec(), Vec::new()));
    }

    #[test]
    fn the_key_with_most_values_goes_first() {
        let nodes = (0..200).map(|i| {
            let few = format!("{:040}", i % 30);
            let pairs = vec![("of-each", format!("{i:060}")), ("few", few), ("zone", (i % 3).to_string())];
            (format!("n{i:03}"), pairs)
        });
        let report = report_labels(&labels(nodes));
        assert_eq!((report.dropped_keys.as_slice(), report.sets.len()), (&["of-each".to_owned()][..], 30));
        assert_eq!(report.of.len(), 200);
    }
}
