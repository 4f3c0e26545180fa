//! Result of `why`, for people and for programs.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::api::util::text::visible_cell;
use crate::placement::facts::Facts;

/// All that is told about one object.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Kind, namespace and name.
    pub(super) object: String,
    /// First sentence, where it cannot be made from the copies.
    #[serde(skip)]
    pub(super) headline: Option<String>,
    /// Whether it has a place.
    pub(super) placed: bool,
    /// Whether every copy is as the control plane has it.
    pub(super) applied: bool,
    /// Policy that decides about it, and the other policies that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    /// Its group, and what that asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
    /// Reasons that nobody decides about it, or that it is where it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) why: Vec<String>,
    /// Remarks, such as on what placement did not regard.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// Decision that the scheduler last recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded: Option<Recorded>,
    /// The move of its group: how far it is, since when, until when, and what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moving: Option<String>,
    /// Decision that would be made now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) now: Option<Now>,
    /// The copies that there are.
    pub(super) copies: Vec<Copy>,
}

/// A recorded decision.
#[derive(Debug, Serialize)]
pub(super) struct Recorded {
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) clusters: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<Timestamp>,
}

/// A decision of now.
#[derive(Debug, Serialize)]
pub(super) struct Now {
    pub(super) decision: String,
    /// Clusters that do not take it.
    pub(super) clusters: Vec<Row>,
}

/// Clusters that do not take it for the same reason.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) clusters: Vec<String>,
    pub(super) reason: String,
    pub(super) detail: String,
}

/// One copy.
#[derive(Debug, Serialize)]
pub(super) struct Copy {
    pub(super) cluster: String,
    pub(super) applied: bool,
    pub(super) available: bool,
    /// Whether the cluster is not Ready, so that this is what it last said.
    pub(super) stale: bool,
    pub(super) message: String,
}

/// Width of the first column.
const TITLE: usize = 10;

impl Report {
    pub(super) fn from_facts(facts: &Facts) -> Self {
        Self { object: facts.key.format_title(), ..Self::default() }
    }

    /// The report as text.
    pub(super) fn format_why_report(&self) -> String {
        let clusters: Vec<&str> = self.copies.iter().map(|copy| copy.cluster.as_str()).collect();
        let mut text = match (&self.headline, self.placed, clusters.is_empty()) {
            (Some(headline), ..) => format!("{}.\n", visible_cell(headline)),
            (None, true, false) => format!("{} is placed on {}.\n", self.object, clusters.join(", ")),
            (None, false, false) => {
                format!("{} is on {}, but a part of it is not placed.\n", self.object, clusters.join(", "))
            }
            (None, true, true) => format!("{} is placed, but has no copy yet.\n", self.object),
            (None, false, true) => format!("{} is not placed.\n", self.object),
        };
        let mut line = |title: &str, words: &str| {
            text.push_str(&format!("  {title:TITLE$}{}\n", visible_cell(words)));
        };
        for (title, words) in [("policy", &self.policy), ("group", &self.group)] {
            if let Some(words) = words {
                line(title, words);
            }
        }
        for (at, words) in self.why.iter().enumerate() {
            line(if at == 0 { "because" } else { "" }, words);
        }
        for words in &self.notes {
            line("note", words);
        }
        for (at, copy) in self.copies.iter().enumerate() {
            let state = match (copy.applied, copy.available) {
                (true, true) => "available",
                (true, false) => "applied, not available",
                (false, _) => "not applied",
            };
            let stale = if copy.stale { " (not Ready: this is its last report)" } else { "" };
            let message = if copy.message.is_empty() { String::new() } else { format!(": {}", copy.message) };
            line(if at == 0 { "copies" } else { "" }, &format!("{} {state}{stale}{message}", copy.cluster));
        }
        if let Some(moving) = &self.moving {
            line("moves", moving);
        }
        if let Some(recorded) = &self.recorded {
            let words = if recorded.message.is_empty() { &recorded.reason } else { &recorded.message };
            line("decided", words);
        }
        if let Some(now) = &self.now {
            let same = self.recorded.as_ref().is_some_and(|recorded| recorded.message == now.decision);
            let stays = now.decision.starts_with("Stays on") && now.clusters.is_empty();
            line("now", if same || stays { "the same" } else { &now.decision });
            let width = now.clusters.iter().map(|row| row.clusters.join(", ").len()).max().unwrap_or_default();
            let reasons = now.clusters.iter().map(|row| row.reason.len()).max().unwrap_or_default();
            for row in &now.clusters {
                let names = row.clusters.join(", ");
                line("", format!("{names:width$}  {:reasons$}  {}", row.reason, row.detail).trim_end());
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_place_names_each_cluster_with_its_reason() {
        let rows = [
            (&["b"][..], "Insufficient memory", "24Gi requested, 16Gi free"),
            (&["d", "e"], "SelectorMismatch", "region In [east]"),
        ];
        let rows = rows.map(|(clusters, reason, detail)| Row {
            clusters: clusters.iter().map(|name| (*name).to_owned()).collect(),
            reason: reason.to_owned(),
            detail: detail.to_owned(),
        });
        let report = Report {
            object: "Deployment shop/web".to_owned(),
            policy: Some(r#"SchedulePolicy "shop" decides (priority 0)"#.to_owned()),
            group: Some("shop-1a2b3c4d, 3 objects: 12 CPU, 24Gi, 14 pods".to_owned()),
            now: Some(Now { decision: "0 of 4 clusters: …".to_owned(), clusters: rows.into() }),
            ..Report::default()
        };
        insta::assert_snapshot!(report.format_why_report());
    }

    #[test]
    fn a_placed_object_shows_its_copies_and_what_they_say() {
        let report = Report {
            object: "Deployment shop/web".to_owned(),
            placed: true,
            copies: vec![Copy {
                cluster: "west".to_owned(),
                applied: true,
                available: false,
                stale: true,
                message: "InProgress: 1 of 3 replicas\u{1b}[2J".to_owned(),
            }],
            recorded: Some(Recorded {
                reason: "Placed".to_owned(),
                message: r#"Placed on "west""#.to_owned(),
                clusters: vec!["west".to_owned()],
                time: None,
            }),
            now: Some(Now { decision: r#"Stays on "west""#.to_owned(), clusters: Vec::new() }),
            ..Report::default()
        };
        insta::assert_snapshot!(report.format_why_report());
    }
}
