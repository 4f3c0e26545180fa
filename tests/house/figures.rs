//! What can be counted of the house: names that a search finds, closures with names, circles of files.
//! `cargo test --test house figures -- --nocapture` prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source::{
    ImportedNames, Source, count_named_closures, function_names, imported_names, named_paths, parse_sources, parse_text,
};

/// Highest share of functions whose name is one word, in percent; the field's best have 41.
const MOST_OF_ONE_WORD: usize = 10;
/// Highest share of functions that share their name with another one, in percent; the field's best have 42.
const MOST_SHARED: usize = 15;
/// Most closures with a name in ten thousand lines. It may fall only.
const MOST_CLOSURES: usize = 3;
/// Most files of a room that import one another in a circle.
const LONGEST_CIRCLE: usize = 3;

#[test]
#[expect(clippy::print_stderr, reason = "the figures are to be read")]
fn names_can_be_searched() {
    let sources = parse_sources();
    let names: Vec<String> = sources.iter().flat_map(function_names).collect();
    assert!(names.len() > 3_000, "functions are found: {}", names.len());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &names {
        *counts.entry(name).or_default() += 1;
    }
    let of_one_word = names.iter().filter(|name| !name.contains('_')).count() * 100 / names.len();
    let shared = names.iter().filter(|name| counts[name.as_str()] > 1).count() * 100 / names.len();
    let lines: usize = sources.iter().map(|source| source.lines).sum();
    let closures: usize = sources.iter().map(count_named_closures).sum();
    let closures = closures * 10_000 / lines;
    eprintln!(
        "{} functions: {of_one_word} % of one word, {shared} % share their name; \
         {closures} named closures in ten thousand lines",
        names.len()
    );
    assert!(of_one_word <= MOST_OF_ONE_WORD, "{of_one_word} % of the functions have a name of one word");
    assert!(shared <= MOST_SHARED, "{shared} % of the functions share their name with another one");
    assert!(closures <= MOST_CLOSURES, "{closures} named closures in ten thousand lines");
}

/// Files by their modules, with the names that each imports.
struct Modules<'a>(BTreeMap<&'a [String], (&'a Source, ImportedNames)>);

impl<'a> Modules<'a> {
    fn new(sources: &'a [Source]) -> Self {
        Self(sources.iter().map(|source| (&source.module[..], (source, imported_names(source)))).collect())
    }

    /// The file that defines what a path names from within a module; none for other crates.
    fn defining_file(&self, from: &[String], path: &[String], depth: usize) -> Option<&'a Source> {
        let above = path.iter().take_while(|segment| *segment == "super").count();
        let (mut at, rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (from.to_vec(), &path[1..]),
            "super" => (from[..from.len().checked_sub(above)?].to_vec(), &path[above..]),
            first if self.0.contains_key(&[from, &[first.to_owned()]].concat()[..]) => (from.to_vec(), path),
            _ => return None,
        };
        for name in rest {
            at.push(name.clone());
            if !self.0.contains_key(&at[..]) {
                at.pop();
                let (source, imported) = self.0.get(&at[..])?;
                let through = imported.get(name).filter(|_| depth > 0);
                return match through {
                    Some(through) => self.defining_file(&source.module, through, depth - 1).or(Some(source)),
                    None => Some(source),
                };
            }
        }
        self.0.get(&at[..]).map(|(source, _)| *source)
    }
}

/// Returns whether a file is the head of a folder, which knows its files and is known by them.
fn is_head(source: &Source) -> bool {
    source.path.ends_with("/mod.rs")
}

/// Imports between files of one room but for the heads of its folders, as indices.
fn imports_within_rooms(sources: &[Source]) -> Vec<BTreeSet<usize>> {
    let modules = Modules::new(sources);
    let index: BTreeMap<&str, usize> = sources.iter().enumerate().map(|(at, one)| (one.path.as_str(), at)).collect();
    let of_source = |source: &Source| {
        let files = named_paths(source).into_iter().filter_map(|path| modules.defining_file(&source.module, &path, 4));
        let within = files.filter(|file| file.room() == source.room() && file.path != source.path && !is_head(file));
        within.map(|file| index[file.path.as_str()]).collect()
    };
    sources.iter().map(of_source).collect()
}

/// The circles of a graph: its strongly connected parts of more than one node.
fn circles(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reachable(edges, from)).collect();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut found = Vec::new();
    for from in 0..edges.len() {
        if reach[from].contains(&from) && !seen.contains(&from) {
            let circle: Vec<usize> = reach[from].iter().copied().filter(|to| reach[*to].contains(&from)).collect();
            seen.extend(&circle);
            found.push(circle);
        }
    }
    found
}

fn reachable(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        next.extend(edges[at].iter().filter(|to| seen.insert(**to)));
    }
    seen
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are to be read")]
fn files_of_a_room_import_one_another_in_short_circles() {
    let sources = parse_sources();
    let mut circles = circles(&imports_within_rooms(&sources));
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    let names = |circle: &Vec<usize>| circle.iter().map(|at| sources[*at].path.as_str()).collect::<Vec<_>>().join(" ");
    for circle in &circles {
        eprintln!("{} files: {}", circle.len(), names(circle));
    }
    let long: Vec<String> = circles.iter().filter(|circle| circle.len() > LONGEST_CIRCLE).map(names).collect();
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn circles_are_found() {
    let edges = [vec![1], vec![2, 3], vec![0], vec![3], vec![]].map(|to| to.into_iter().collect());
    assert_eq!(circles(&edges), [vec![0, 1, 2], vec![3]]);
}

#[test]
fn the_file_behind_a_path_is_found() {
    let source = |path: &str, text: &str| parse_text(Path::new(path), text);
    let sources = [
        source("src/a/mod.rs", "mod b; pub use b::c::Thing;"),
        source("src/a/b/mod.rs", "mod c; struct Other;"),
        source("src/a/b/c.rs", "pub struct Thing;"),
    ];
    let modules = Modules::new(&sources);
    let from = ["a", "b", "c"].map(str::to_owned);
    let file = |path: &str| {
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        modules.defining_file(&from, &path, 4).map(|source| source.path.as_str())
    };
    assert_eq!(file("super::Other"), Some("src/a/b/mod.rs"));
    assert_eq!(file("super::super::b::c"), Some("src/a/b/c.rs"));
    assert_eq!(file("super::super::Thing"), Some("src/a/b/c.rs"), "through what the folder exports");
    assert_eq!(file("crate::a::b::Other"), Some("src/a/b/mod.rs"));
    assert_eq!(file("std::fs"), None);
}
