//! The pages of `explain`: one for each check, each cause of a failed wait and each reason of an error, from `docs/explain`.

use include_dir::{Dir, File, include_dir};

use crate::check::{hosting, inside, installed, pulls, workload};
use crate::diagnose::CauseId;

static EXPLAIN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/docs/explain");

/// One page, in Markdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// The id that it explains; also its title and the name of its file.
    pub(crate) id: &'static str,
    /// The whole text.
    pub(crate) text: &'static str,
}

impl Page {
    /// The sentence under the title.
    pub(crate) fn summary(&self) -> &'static str {
        self.text.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default()
    }

    /// Returns the kinds of the id: `check`, `cause`, `placement` or `error`; an id can be a check and a cause.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        let check = check_ids().any(|id| id == self.id);
        let cause = CauseId::ALL.iter().any(|cause| cause.id() == self.id);
        let placement = self.id == PLACEMENT;
        let error = !check && !cause && !placement;
        let kinds = [("check", check), ("cause", cause), ("placement", placement), ("error", error)];
        kinds.into_iter().filter_map(|(kind, is)| is.then_some(kind)).collect()
    }
}

/// The ids of all checks, those before an install first.
pub(crate) fn check_ids() -> impl Iterator<Item = &'static str> {
    let before = hosting::CHECKS.iter().map(|check| check.id).chain(workload::CHECKS.iter().map(|check| check.id));
    let before = before.chain(pulls::CHECKS.iter().map(|check| check.id));
    before.chain(inside::CHECKS.iter().map(|check| check.id)).chain(installed::CHECKS.iter().map(|check| check.id))
}

/// All pages, sorted by id. A README is a note for those who write them.
pub(crate) fn explain_pages() -> impl Iterator<Item = Page> {
    let mut pages: Vec<Page> = EXPLAIN.files().filter_map(read_page).filter(|page| page.id != "README").collect();
    pages.sort_by_key(|page| page.id);
    pages.into_iter()
}

fn read_page(file: &'static File<'static>) -> Option<Page> {
    Some(Page { id: file.path().to_str()?.strip_suffix(".md")?, text: file.contents_utf8()? })
}

/// The page of an id, however its letters are written; of a code that stands in a table of wrong values, such as `unknown-key`,
/// of wrong manifests, or of placement, such as `NoFit`, the page with that table.
pub(crate) fn find_page(id: &str) -> Option<Page> {
    explain_pages()
        .find(|page| page.id == id)
        .or_else(|| explain_pages().find(|page| page.id.eq_ignore_ascii_case(id)))
        .or_else(|| explain_pages().find(|page| lists_code(page, id)))
}

fn lists_code(page: &Page, code: &str) -> bool {
    let mut rows = page.text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    [VALUES, MANIFESTS, PLACEMENT].contains(&page.id) && rows.any(|(listed, _)| listed.eq_ignore_ascii_case(code))
}

/// The page about wrong values, with a row for each code.
const VALUES: &str = "InvalidValues";
/// The page about wrong manifests, with a row for each code.
const MANIFESTS: &str = "InvalidManifest";
/// The page about placement, with a row for each reason.
pub(crate) const PLACEMENT: &str = "NotPlaced";

#[cfg(test)]
mod block;
#[cfg(test)]
mod examples;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The word in quotes that a piece of code begins with, if it is written as a reason.
    fn leading_reason(code: &str) -> Option<String> {
        let name = code.trim_start().strip_prefix('"')?.split('"').next()?;
        let is_reason =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric());
        is_reason.then(|| name.to_owned())
    }

    /// Every word in quotes that stands where the code gives an error its reason.
    fn reasons(source: &str) -> BTreeSet<String> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let flat: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut found = BTreeSet::new();
        for marker in ["CliError::usage(", "Self::usage(", "own_kubeconfig_failure(", "let reason = "] {
            found.extend(flat.match_indices(marker).filter_map(|(at, _)| leading_reason(&flat[at + marker.len()..])));
        }
        for marker in ["CliError::new(", "Self::new(", "shared_kubeconfig_failure(Exit::"] {
            for (at, _) in flat.match_indices(marker) {
                found.extend(leading_reason(flat[at..].split_once(',').unwrap_or_default().1));
            }
        }
        for part in flat.split("fn reason(").skip(1) {
            let body = part.split(" fn ").next().unwrap_or_default();
            for marker in ["=> ", "{ "] {
                let starts = body.match_indices(marker);
                found.extend(starts.filter_map(|(at, _)| leading_reason(&body[at + marker.len()..])));
            }
        }
        for part in flat.split("let reason = ").skip(1) {
            let body = part.split(';').next().unwrap_or_default();
            found.extend(body.match_indices("{ ").filter_map(|(at, _)| leading_reason(&body[at + 2..])));
        }
        found
    }

    fn sources(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(path.display().to_string(), fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// The ids that the code has, each with where it comes from.
    fn ids() -> BTreeMap<String, String> {
        let mut ids: BTreeMap<String, String> = check_ids().map(|id| (id.to_owned(), "a check".to_owned())).collect();
        ids.extend(CauseId::ALL.iter().map(|cause| (cause.id(), "a cause".to_owned())));
        let mut files = BTreeMap::new();
        for room in [
            "src/cli",
            "src/apply",
            "src/backup",
            "src/control_plane/backup",
            "src/control_plane/restore",
            "src/diagnose",
            "src/etcd",
            "src/inventory",
            "src/k8s",
        ] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(room), &mut files);
        }
        // What a server says of itself; `Error::reason` gives it a reason of ours.
        files.retain(|file, _| !file.ends_with("/api_error.rs"));
        for (file, text) in files {
            ids.extend(reasons(&text).into_iter().map(|reason| (reason, file.clone())));
        }
        ids.insert(PLACEMENT.to_owned(), "an event".to_owned());
        ids.insert(crate::cli::BROKEN_PIPE.to_owned(), "a constant".to_owned());
        ids
    }

    #[test]
    fn every_code_of_wrong_values_stands_on_their_page() {
        let mut files = BTreeMap::new();
        for room in ["src/chart/values", "src/chart/yaml", "src/control_plane", "src/install", "src/cli"] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(room), &mut files);
        }
        let mut missing = BTreeSet::new();
        for text in files.values() {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let flat: String = code.split_whitespace().collect::<Vec<_>>().join(" ").replace("( \"", "(\"");
            for marker in ["Diagnostic::error(\"", "Diagnostic::warning(\""] {
                let codes = flat.split(marker).skip(1).filter_map(|rest| rest.split('"').next());
                missing.extend(codes.filter(|code| find_page(code).is_none()).map(str::to_owned));
            }
        }
        assert_eq!(missing, BTreeSet::new());
        assert_eq!(find_page("Unknown-Key").map(|page| page.id), Some("InvalidValues"));
        assert!(find_page("set-syntax").is_some() && find_page("wrong-type").is_some() && find_page("wrong").is_none());
    }

    fn read_source_file(file: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
    }

    /// The words between each `marker`, which ends with a quotation mark, and the next quotation mark.
    fn words_behind_marker(text: &str, marker: &str) -> Vec<String> {
        text.split(marker).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    }

    #[test]
    fn every_reason_of_placement_stands_on_its_page() {
        let page = explain_pages().find(|page| page.id == PLACEMENT).unwrap();
        let of_clusters = words_behind_marker(&read_source_file("src/placement/reason.rs"), "=> \"");
        let decide = read_source_file("src/placement/decide/mod.rs");
        let outcomes = decide.split("impl Outcome").nth(1).unwrap().split("impl How").next().unwrap();
        let of_groups = words_behind_marker(outcomes, "=> \"");
        let schedule = read_source_file("src/api/crd/schedule.rs");
        let applied = schedule.split("pub mod applied").nth(1).unwrap().split("\n}").next().unwrap();
        let of_copies = words_behind_marker(applied, "&str = \"");
        assert!(of_clusters.len() > 12 && of_groups.len() > 4 && of_copies.len() > 9);
        let known =
            ["PolicyGone", "Suspended", "OverrideInvalid", "FieldsDropped", "DriftCorrected"].map(str::to_owned);
        let all = of_clusters.into_iter().chain(of_groups).chain(of_copies).chain(known);
        // Some have a page of their own as well.
        let missing = all.filter(|code| !page.text.contains(&format!("\n| `{code}` |")) || find_page(code).is_none());
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[test]
    fn reasons_are_found_however_they_are_written() {
        let source = r#"
            CliError::usage("One", "a headline")
            CliError::new(
                Exit::Failed,
                "Two",
            )
            CliError::new(exit, "Three", error.to_string())
            fn reason(&self) -> &str { match self { Self::A => "Four", Self::B => other(), } } fn next() { "Never" }
            let reason = if x { Y } else { "Five" };
            let value = json!({"kind": "List"});
            #[cfg(test)] CliError::usage("Never", "")"#;
        let found: Vec<String> = reasons(source).into_iter().collect();
        assert_eq!(found, ["Five", "Four", "One", "Three", "Two"]);
    }

    #[test]
    fn every_id_has_a_page_and_every_page_an_id() {
        let ids = ids();
        let missing: Vec<String> = ids
            .iter()
            .filter(|(id, _)| !explain_pages().any(|page| page.id == id.as_str()))
            .map(|(id, from)| format!("docs/explain/{id}.md is missing ({from})"))
            .collect();
        assert_eq!(missing, Vec::<String>::new());
        let without: Vec<&str> = explain_pages().map(|page| page.id).filter(|id| !ids.contains_key(*id)).collect();
        assert_eq!(without, Vec::<&str>::new(), "pages without an id");
    }

    #[test]
    fn no_cause_is_left_out_of_the_list_of_all() {
        let source = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/diagnose/diagnosis.rs")).unwrap();
        let body = source.split("pub enum CauseId {").nth(1).unwrap().split("\n}").next().unwrap();
        let variants = body.lines().filter(|line| line.ends_with(',') && !line.contains("//")).count();
        assert_eq!(CauseId::ALL.iter().collect::<std::collections::HashSet<_>>().len(), variants);
    }

    #[test]
    fn pages_have_a_title_a_summary_and_links_that_lead_somewhere() {
        let mut folded = BTreeSet::new();
        for page in explain_pages() {
            assert_eq!(page.text.lines().next(), Some(format!("# {}", page.id).as_str()), "{}", page.id);
            assert!(page.summary().ends_with('.') && page.summary().len() < 140, "{}: {}", page.id, page.summary());
            assert!(page.text.contains("\n## What to do\n"), "{}", page.id);
            // Two files that differ in case alone are one on many machines.
            assert!(folded.insert(page.id.to_lowercase()), "{} differs from another page in case alone", page.id);
            for link in page.text.split("](").skip(1) {
                let target = link.split(')').next().unwrap_or_default();
                assert!(explain_pages().any(|other| format!("{}.md", other.id) == target), "{}: {target}", page.id);
            }
        }
    }
}
