//! A fleet as one page for a browser: clusters with their room and what runs there, and what has no place and why.
//!
//! The page needs no server, loads nothing and runs no script. Every text in it comes from clusters or files, so all of it
//! is escaped.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::api::util::text::{escaped_line, visible_cell, visible_line};
use crate::placement::explain::format_amount;
use crate::placement::simulate::{ClusterOutcome, Placement, RoomAmount, Simulation};

/// Resources that have a bar.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];
/// Most groups that a cluster names, and most rows of the other tables.
const GROUPS: usize = 20;
const ROWS: usize = 500;

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}\
table{border-collapse:collapse;margin:.5em 0 2em}th,td{text-align:left;vertical-align:top;padding:.25em .9em .25em 0;\
border-bottom:1px solid #ddd}th{font-weight:600}svg{width:110px;height:9px;display:block;background:#e4e4e4}\
.u{fill:#4a6fa5}.p{fill:#e0a030}small{color:#666;display:block}.k{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}\
.bad{color:#a11}summary{cursor:pointer}ul{margin:.2em 0;padding-left:1.2em}.new{font-weight:600}.gone{text-decoration:line-through}";

/// Items of the groups of a cluster: new, gone, and as before.
const ITEMS: [&str; 3] = ["<li class=\"new\">", "<li class=\"gone\">", "<li>"];

/// A text as a page may hold it: on one line, bounded, nothing of it markup.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible_line(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn escape_name(text: &str) -> String {
    escape_html(&visible_cell(text))
}

/// Formats a fleet as a page; `has_then` shows what becomes of it beside what is.
pub(crate) fn format_fleet_page(fleet: &Simulation, has_then: bool) -> String {
    let title = if has_then { "Fleet: before and after" } else { "Fleet" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n"
    );
    let without: Vec<&Placement> = fleet.placements.iter().filter(|one| !one.placed).collect();
    let _ = writeln!(
        page,
        "<p>{} clusters, {} groups, {} without a place.</p>",
        fleet.clusters.len(),
        fleet.placements.len(),
        without.len() + fleet.unplaced.iter().filter(|one| one.lacks_place).count()
    );
    push_without(&mut page, fleet, &without);
    if has_then {
        push_moves(&mut page, fleet);
    }
    page.push_str(
        "<h2>Clusters</h2><p><svg class=\"k\" viewBox=\"0 0 1 1\"><rect class=\"u\" width=\"1\" height=\"1\"/></svg>used\
         <svg class=\"k\" viewBox=\"0 0 1 1\"><rect class=\"p\" width=\"1\" height=\"1\"/></svg>promised\
         <svg class=\"k\" viewBox=\"0 0 1 1\"></svg>free</p>\n<table><tr><th>Cluster",
    );
    for name in RESOURCES {
        let _ = write!(page, "<th>{name}");
    }
    page.push_str("<th>Groups</tr>\n");
    for cluster in &fleet.clusters {
        push_cluster(&mut page, cluster, has_then);
    }
    page.push_str("</table>\n");
    for note in fleet.notes.iter().take(ROWS) {
        let _ = writeln!(page, "<p><small>{}</small></p>", escape_html(note));
    }
    page.push_str("</body></html>\n");
    page
}

/// Adds what has no place, and the reasons by cluster.
fn push_without(page: &mut String, fleet: &Simulation, without: &[&Placement]) {
    if without.is_empty() && fleet.unplaced.is_empty() {
        return;
    }
    page.push_str("<h2>Without a place</h2>\n<table><tr><th>Objects<th>Policy<th>Why</tr>\n");
    for placement in without.iter().take(ROWS) {
        let policy = placement.policy.as_deref().map(escape_name).unwrap_or_default();
        let words = if placement.message.is_empty() { &placement.reason } else { &placement.message };
        let (title, words) = (escape_name(&placement.format_title()), escape_html(words));
        let _ = write!(page, "<tr><td class=\"bad\">{title}<td>{policy}<td>{words}");
        push_list(
            page,
            "by cluster",
            placement.rejected.iter().map(|row| {
                let mut clusters: Vec<String> =
                    row.clusters.iter().take(GROUPS).map(|name| escape_name(name)).collect();
                let more = row.clusters.len().saturating_sub(GROUPS);
                clusters.extend((more > 0).then(|| format!("and {more} more")));
                format!("<li>{}: {} {}", clusters.join(", "), escape_html(&row.reason), escape_html(&row.detail))
            }),
        );
        page.push_str("</tr>\n");
    }
    for one in fleet.unplaced.iter().take(ROWS) {
        let (object, why) = (escape_name(&one.object), escape_html(&one.why));
        let _ = writeln!(page, "<tr><td>{object}<td><td>{why}</tr>");
    }
    push_rest(page, without.len().max(fleet.unplaced.len()));
}

/// Adds the end of a table of which not all rows may be shown.
fn push_rest(page: &mut String, rows: usize) {
    if rows > ROWS {
        let _ = writeln!(page, "<tr><td>and {} more</tr>", rows - ROWS);
    }
    page.push_str("</table>\n");
}

/// Adds the copies that change their clusters.
fn push_moves(page: &mut String, fleet: &Simulation) {
    if fleet.moves.is_empty() {
        page.push_str("<p>No running workload changes its cluster.</p>\n");
        return;
    }
    page.push_str("<h2>Copies that change their clusters</h2>\n<table><tr><th>Object<th>Leave<th>Get</tr>\n");
    for one in fleet.moves.iter().take(ROWS) {
        let (object, from, to) = (escape_name(&one.object), escape_names(&one.from), escape_names(&one.to));
        let _ = writeln!(page, "<tr><td>{object}<td>{from}<td>{to}</tr>");
    }
    push_rest(page, fleet.moves.len());
}

fn escape_names(names: &BTreeSet<String>) -> String {
    let shown: Vec<String> = names.iter().take(GROUPS).map(|name| escape_name(name)).collect();
    shown.join(", ")
}

/// Adds a list that opens; nothing of one without items.
fn push_list(page: &mut String, title: &str, items: impl ExactSizeIterator<Item = String>) {
    let count = items.len();
    if count == 0 {
        return;
    }
    let _ = write!(page, "<details><summary>{title}</summary><ul>");
    items.take(GROUPS).for_each(|item| page.push_str(&item));
    if count > GROUPS {
        let _ = write!(page, "<li>and {} more", count - GROUPS);
    }
    page.push_str("</ul></details>");
}

fn push_cluster(page: &mut String, cluster: &ClusterOutcome, has_then: bool) {
    let state = if cluster.state == "Ready" { "" } else { " class=\"bad\"" };
    let (name, shown) = (escape_name(&cluster.name), escape_name(&cluster.state));
    let nodes = if cluster.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", cluster.nodes) };
    let _ = write!(page, "<tr><td>{name}<small{state}>{shown}, {nodes}</small>");
    for resource in RESOURCES {
        page.push_str("<td>");
        let before = cluster.before.iter().find(|one| one.resource == resource);
        let after = cluster.after.iter().find(|one| one.resource == resource);
        push_bar(page, before);
        if has_then && before != after {
            push_bar(page, after);
        }
    }
    page.push_str("<td>");
    let all: BTreeSet<&String> =
        if has_then { cluster.groups_before.union(&cluster.groups).collect() } else { cluster.groups.iter().collect() };
    let classes = all.into_iter().map(|title| {
        let class = match (cluster.groups_before.contains(title), cluster.groups.contains(title)) {
            _ if !has_then => 2,
            (false, true) => 0,
            (true, false) => 1,
            _ => 2,
        };
        (class, title)
    });
    // What changes comes first.
    let mut all: Vec<(usize, &String)> = classes.collect();
    all.sort();
    let title = match (cluster.groups_before.len(), cluster.groups.len()) {
        (before, after) if has_then && before != after => format!("{before} &rarr; {after}"),
        (_, after) => after.to_string(),
    };
    push_list(page, &title, all.into_iter().map(|(class, title)| format!("{}{}", ITEMS[class], escape_name(title))));
    page.push_str("</tr>\n");
}

/// Adds a bar with what is used and promised, and what is free in numbers.
fn push_bar(page: &mut String, amount: Option<&RoomAmount>) {
    let Some(amount) = amount.filter(|amount| amount.capacity > 0) else {
        page.push_str("<small>-</small>");
        return;
    };
    let capacity = i128::from(amount.capacity);
    let [used, promised] = [amount.used, amount.promised]
        .map(|part| i128::from(part.max(0)).saturating_mul(100).min(capacity * 100) / capacity);
    page.push_str("<svg viewBox=\"0 0 100 9\" preserveAspectRatio=\"none\">");
    for (class, from, width) in [("u", 0, used), ("p", used, promised.min(100 - used))] {
        if width > 0 {
            let _ = write!(page, "<rect class=\"{class}\" x=\"{from}\" width=\"{width}\" height=\"9\"/>");
        }
    }
    let [free, capacity] = [amount.free.max(0), amount.capacity]
        .map(|part| escaped_line(&format_amount(&amount.resource, part)).into_owned());
    let _ = write!(page, "</svg><small>{free} of {capacity} free</small>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::simulate::RejectedRow;

    fn amounts(free: i64) -> Vec<RoomAmount> {
        RESOURCES
            .map(|resource| RoomAmount {
                resource: resource.to_owned(),
                capacity: 400_000,
                used: 150_000,
                promised: 250_000 - free,
                free,
            })
            .to_vec()
    }

    fn cluster(name: &str, groups: usize) -> ClusterOutcome {
        let titles: BTreeSet<String> =
            (0..groups).map(|at| format!("Deployment namespace-{at}/application-{at}")).collect();
        ClusterOutcome {
            name: name.to_owned(),
            state: "Ready".to_owned(),
            nodes: 100,
            before: amounts(200_000),
            after: amounts(100_000),
            groups_before: titles.clone(),
            groups: titles,
        }
    }

    #[test]
    fn names_of_clusters_and_texts_are_no_markup() {
        let evil = "<script>alert(1)</script>\"'&\u{1b}[2J\u{202e}";
        let mut one = cluster(evil, 0);
        one.groups.insert(evil.to_owned());
        one.state = evil.to_owned();
        let placement = Placement {
            name: evil.to_owned(),
            policy: Some(evil.to_owned()),
            objects: [evil.to_owned()].into(),
            message: evil.to_owned(),
            rejected: vec![RejectedRow {
                clusters: vec![evil.to_owned()],
                reason: evil.to_owned(),
                detail: evil.to_owned(),
            }],
            ..Placement::default()
        };
        let fleet = Simulation {
            clusters: vec![one],
            placements: vec![placement],
            notes: vec![evil.to_owned()],
            ..Simulation::default()
        };
        for has_then in [false, true] {
            let page = format_fleet_page(&fleet, has_then);
            assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'), "{page}");
            assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"), "{page}");
            assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="), "{page}");
        }
    }

    #[test]
    fn a_thousand_clusters_fit_into_three_megabytes() {
        let clusters = (0..1_000).map(|at| cluster(&format!("cluster-{at:04}.region-of-the-world"), 30));
        let fleet = Simulation { clusters: clusters.collect(), ..Simulation::default() };
        let page = format_fleet_page(&fleet, true);
        assert!(page.len() <= 3 << 20, "{} bytes", page.len());
        assert_eq!(page.matches("region-of-the-world").count(), 1_000, "none is left out");
    }
}
