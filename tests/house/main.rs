//! The order of the house: which room may import which, what lies at the top level, and which phrases no text contains.

mod figures;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What each room may import, besides itself: the table of CONTRIBUTING.md.
fn allowed() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let table = text.split("\n## ").find(|section| section.starts_with("Rooms")).expect("the section on rooms");
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(room, imports)| (room.to_owned(), names(imports))).collect()
}

/// Finds the files below a folder whose names end with an extension, in order.
fn find_files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(find_files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

/// The rooms that a source text names after `crate::` or `fleetctl::`, also inside braces.
fn named_rooms(text: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for marker in ["crate::", "fleetctl::"] {
        for (at, _) in text.match_indices(marker) {
            // `my_crate::` is another path; `$crate::` is this one.
            if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = &text[at + marker.len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap_or_default().split(',').collect(),
                None => vec![rest],
            };
            for name in names {
                let name = name.trim_start();
                let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
                rooms.push(name[..end].to_owned());
            }
        }
    }
    rooms
}

/// Imports that the house forbids, as `file: room`.
fn forbidden(files: &[(String, String)]) -> Vec<String> {
    let allowed = allowed();
    let mut found = Vec::new();
    for (path, text) in files {
        let room = path.trim_start_matches("src/").split('/').next().unwrap_or_default();
        let Some(may) = allowed.get(room) else {
            found.push(format!("{path}: no rule for room `{room}`"));
            continue;
        };
        for named in named_rooms(text) {
            if allowed.contains_key(&named) && named != room && !may.contains(&named) {
                found.push(format!("{path}: {named}"));
            }
        }
    }
    found
}

#[test]
fn rooms_import_only_what_stands_below_them() {
    let paths = find_files(&root().join("src"), "rs");
    assert!(paths.len() > 20, "the sources were not found");
    let files: Vec<(String, String)> = paths
        .iter()
        .map(|path| (path.strip_prefix(root()).unwrap().display().to_string(), fs::read_to_string(path).unwrap()))
        .filter(|(path, _)| path != "src/lib.rs")
        .collect();
    assert_eq!(forbidden(&files), Vec::<String>::new());
}

/// Files below the command line whose text names commands or flags of the program, and why they may.
const NAMING_COMMANDS: [(&str, &str); 4] = [
    ("src/scheduler/", "another program: its messages are read with kubectl, where no command line writes a remedy"),
    ("src/chart/", "errors in `--version`, `--set` and other sources of values point at the flag that was given"),
    ("src/control_plane/validate.rs", "the same"),
    ("src/install/validate_resources.rs", "the same"),
];

#[test]
fn no_room_below_the_command_line_writes_commands_or_flags() {
    let paths = find_files(&root().join("src"), "rs");
    let mut found = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let above = name.starts_with("src/cli/") || name.starts_with("src/bin/") || name == "src/lib.rs";
        if above || NAMING_COMMANDS.iter().any(|(file, _)| name.starts_with(file)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = without_tests(&text);
        let lines = code.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
        let tells = |line: &&str| line.contains("`fleetctl ") || line.contains("`--") && !line.contains("#[");
        found.extend(lines.filter(tells).map(|line| format!("{name}: {line}")));
    }
    assert_eq!(found, Vec::<String>::new());
}

/// A source text without its modules of tests, wherever in it they are.
fn without_tests(text: &str) -> String {
    let mut parts = text.split("#[cfg(test)]\nmod ");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A declaration ends with its line, a module with the first brace at the left edge.
        let end = if part.lines().next().is_some_and(|line| line.ends_with(';')) { "\n" } else { "\n}\n" };
        code.push_str(part.split_once(end).map_or("", |(_, rest)| rest));
    }
    code
}

#[test]
fn code_behind_a_module_of_tests_is_read() {
    let text =
        "struct A;\n#[cfg(test)]\nmod tests;\nstruct B;\n#[cfg(test)]\nmod more {\n    struct C;\n}\n\nstruct D;\n";
    assert_eq!(types(text), ["A", "B", "D"]);
}

/// The names of the types that a source text defines outside of functions and of its tests.
fn types(text: &str) -> Vec<String> {
    let code = without_tests(text);
    let of_line = |line: &'_ str| -> Option<(usize, usize)> {
        // At the left edge, behind `pub` or `pub(…)` alone.
        let start =
            ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| Some((line.find(kind)?, kind.len())))?;
        let before = line[..start.0].trim_end();
        let is_whole =
            before.is_empty() && start.0 == 0 || before == "pub" || before.starts_with("pub(") && before.ends_with(')');
        let (from, rest) = (start.0 + start.1, &line[start.0 + start.1..]);
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        is_whole.then_some((from, from + end))
    };
    code.lines().filter_map(|line| of_line(line).map(|(from, to)| line[from..to].to_owned())).collect()
}

#[test]
fn no_name_of_a_type_stands_for_two_things_in_one_room() {
    let paths = find_files(&root().join("src"), "rs");
    let mut defined: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for path in paths {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let room = name.split('/').nth(1).unwrap_or_default().to_owned();
        if name.contains("tests") {
            continue;
        }
        for of_type in types(&fs::read_to_string(&path).unwrap()) {
            defined.entry((room.clone(), of_type)).or_default().push(name.clone());
        }
    }
    assert!(defined.len() > 500, "types are found: {}", defined.len());
    defined.retain(|_, files| files.len() > 1);
    assert_eq!(defined, BTreeMap::new());
}

#[test]
fn contributing_names_every_room_and_only_files_that_are_there() {
    let folders = fs::read_dir(root().join("src")).unwrap().map(|entry| entry.unwrap());
    let mut rooms: Vec<String> = folders
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    rooms.sort();
    assert_eq!(allowed().into_keys().collect::<Vec<_>>(), rooms);
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let paths =
        text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("src/") && !code.contains(['{', ' ']));
    let missing: Vec<&str> = paths.filter(|path| !root().join(path).exists()).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn a_forbidden_import_is_found_however_it_is_written() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let planted = [
        file("src/chart/a.rs", "use crate::apply::engine;"),
        file("src/api/b.rs", "fn f() { crate::chart::versions() }"),
        file("src/pki/c.rs", "use crate::{api::names, cli::ui};"),
        file("src/check/d.rs", "use crate::api::names; use my_crate::cli;"),
    ];
    assert_eq!(forbidden(&planted), ["src/chart/a.rs: apply", "src/api/b.rs: chart", "src/pki/c.rs: cli"]);
}

#[test]
fn the_top_level_holds_only_what_the_design_names() {
    let named = [
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "charts",
        "values",
        "tests",
        "examples",
        "docs",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "build.rs",
        "install.sh",
        "Containerfile",
        "Dockerfile",
    ];
    let tracked = std::process::Command::new("git").args(["ls-files"]).current_dir(root()).output().unwrap();
    let tracked = String::from_utf8(tracked.stdout).unwrap();
    let mut others: Vec<&str> = tracked
        .lines()
        .filter_map(|path| path.split('/').next())
        .filter(|name| !named.contains(name) && !name.starts_with('.'))
        .collect();
    others.dedup();
    assert_eq!(others, Vec::<&str>::new());
}

#[test]
fn images_of_a_checkout_have_the_same_shape_as_those_of_a_release() {
    let stages = |path: &str| {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let (_, stages) = text.split_once("FROM scratch AS base\n").expect("a stage without a base image");
        stages.to_owned()
    };
    let (checkout, release) = (stages("Containerfile"), stages("src/bin/Containerfile"));
    assert_eq!(checkout.replace("COPY --from=build /out/", "COPY "), release);
    assert_eq!(release.matches("\nENTRYPOINT ").count(), 2);
    // Docker looks for this name alone.
    assert_eq!(fs::read_link(root().join("Dockerfile")).unwrap(), Path::new("Containerfile"));
}

/// Phrases that readers stumble over, and what stands in their place.
const ODD_PHRASES: [(&str, &str); 54] = [
    ("is none that", "is not"),
    ("are none that", "are not"),
    ("none of which", "not"),
    ("over there", "existing, there"),
    ("what is there", "existing"),
    ("that is there", "existing"),
    ("that are there", "existing"),
    ("is there already", "exists"),
    ("anew", "again"),
    ("by then", "until then"),
    ("lets in", "accepts"),
    ("let in", "accepted"),
    ("is told", "reports"),
    ("are told", "report"),
    ("be told", "report"),
    ("the time is up", "timed out"),
    ("the time was up", "timed out"),
    ("time is up", "timed out"),
    ("of one's own", "own"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("all the same", "anyway"),
    ("of before", "former, previous"),
    ("without a word", "silently"),
    ("but for", "except for"),
    ("let go of", "release"),
    ("puts right", "corrects"),
    ("is said", "is reported"),
    ("for good", "permanently"),
    ("whose they are", "their owner"),
    ("whose it is", "its owner"),
    ("has to be", "must be"),
    ("have to be", "must be"),
    ("had to be", "must be"),
    ("gives no answer", "does not answer"),
    ("give no answer", "do not answer"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("going on", "continuing"),
    ("what there is", "existing"),
    ("what runs", "workloads, copies"),
    ("made again", "recreated"),
    ("taken back", "undone, withdrawn"),
    ("take back", "undo, withdraw"),
    ("takes back", "undoes, withdraws"),
    ("to be had", "available"),
    ("hold data", "contain data"),
    ("holds data", "contains data"),
    ("was there before", "already existed"),
    ("there already", "already exists"),
    ("nothing but", "only"),
    ("lives for", "is valid for"),
    ("wants", "needs, requires"),
    ("not one is", "none is"),
];

/// The odd phrases of texts, each a name and its text, as `name:line: phrase (instead)`. A phrase may go over an end of line.
fn odd_phrases(texts: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in texts {
        let flat = text.to_ascii_lowercase().replace('\n', " ");
        for (phrase, instead) in ODD_PHRASES {
            for (at, _) in flat.match_indices(phrase) {
                let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                let end = at + phrase.len();
                if is_word(flat[..at].chars().next_back()) || is_word(flat[end..].chars().next()) {
                    continue;
                }
                let line = text[..at].matches('\n').count() + 1;
                found.push(format!("{name}:{line}: {phrase} ({instead})"));
            }
        }
    }
    found
}

/// Prose of a page: without code blocks and spans of code, line for line.
fn prose(page: &str) -> String {
    let mut in_block = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        let text = if is_fence || in_block { "" } else { line };
        lines.push(text.split('`').step_by(2).collect::<Vec<_>>().join("`"));
    }
    lines.join("\n")
}

/// All pages with their prose. Of the changelog it is the part that is not released yet, of CONTRIBUTING everything except
/// the glossary, which names the words that are not used.
fn all_pages() -> Vec<(String, String)> {
    let mut paths = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)).to_vec();
    paths.extend(["docs", "examples"].iter().flat_map(|folder| find_files(&root().join(folder), "md")));
    paths.sort();
    let mut pages = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        let text = match name.as_str() {
            "CHANGELOG.md" => text.split("\n## ").take(2).collect::<Vec<_>>().join("\n## "),
            "CONTRIBUTING.md" => text.split("\n## Words").next().unwrap().to_owned(),
            _ => text,
        };
        pages.push((name, prose(&text)));
    }
    pages
}

#[test]
fn pages_have_no_odd_phrases() {
    let pages = all_pages();
    assert!(pages.len() > 150 && pages.iter().any(|(name, _)| name == "docs/explain/etcd.md"), "{}", pages.len());
    let found = odd_phrases(&pages);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Messages of a file of the program: its string literals of several words, without the names of values in braces.
fn messages(source: &source::Source) -> Vec<(String, String)> {
    let literals = source::string_literals(source).into_iter().filter(|text| text.contains(' '));
    literals.map(|text| (source.path.clone(), without_values(&text))).collect()
}

/// A format string without what is in its braces.
fn without_values(text: &str) -> String {
    let mut parts = text.split('{');
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        words.push_str("{}");
        words.push_str(part.split_once('}').map_or(part, |(_, rest)| rest));
    }
    words
}

#[test]
fn messages_have_no_odd_phrases() {
    let messages: Vec<(String, String)> = source::parse_sources().iter().flat_map(messages).collect();
    assert!(messages.len() > 3_000, "messages are found: {}", messages.len());
    let found = odd_phrases(&messages);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn messages_are_found_in_code_macros_and_attributes() {
    let text = r##"
        /// No key is let in.
        #[error("no key {mend} was let in: {0}")]
        struct A;
        fn f() -> &'static str {
            // The time is up.
            tracing::warn!(%error, "the time \
                is up");
            let pair = ["over {there} there", r#"go on"#];
            g(json!({"a": [{"b": "over there {mend}"}]}), 'c', "anew", b"let in")
        }
        #[cfg(test)]
        mod tests {
            const T: &str = "let in by then";
        }
    "##;
    let source = source::parse_text(Path::new("src/a/b.rs"), text);
    let found = odd_phrases(&messages(&source));
    assert_eq!(
        found,
        [
            "src/a/b.rs:1: let in (accepted)",
            "src/a/b.rs:1: the time is up (timed out)",
            "src/a/b.rs:1: time is up (timed out)",
            "src/a/b.rs:1: go on (continue)",
            "src/a/b.rs:1: over there (existing, there)",
        ]
    );
}

/// Descriptions of the CustomResourceDefinitions and comments of the presets, which `kubectl explain` and `show presets`
/// print.
fn chart_texts() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for (folder, begin) in [("charts", "description: "), ("values", "# ")] {
        for path in find_files(&root().join(folder), "yaml") {
            let text = fs::read_to_string(&path).unwrap();
            let is_text = |line: &str| line.trim_start().starts_with(begin);
            let lines: Vec<&str> = text.lines().map(|line| if is_text(line) { line } else { "" }).collect();
            texts.push((path.strip_prefix(root()).unwrap().display().to_string(), lines.join("\n")));
        }
    }
    texts
}

#[test]
fn charts_have_no_odd_phrases() {
    let texts = chart_texts();
    let lines = texts.iter().flat_map(|(_, text)| text.lines()).filter(|line| !line.is_empty()).count();
    assert!(lines > 200, "descriptions are found: {lines}");
    let found = odd_phrases(&texts);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn odd_phrases_are_found_as_words_and_over_line_ends() {
    let page = "It is made\nanew.\n```text\nmend\n```\nAmend `mend`: over\nthere. Mend it.\n";
    let found = odd_phrases(&[("a.md".to_owned(), prose(page))]);
    assert_eq!(found, ["a.md:6: over there (existing, there)", "a.md:2: anew (again)", "a.md:7: mend (fix)"]);
    assert_eq!(odd_phrases(&[("b.rs".to_owned(), "no key is let in".to_owned())]), ["b.rs:1: let in (accepted)"]);
}
