//! The sources of the program as syntax trees, without their tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::buffer::{Cursor, TokenBuffer};
use syn::visit::Visit;

use super::{find_files, root};

/// One file below `src`.
pub(crate) struct Source {
    /// Path below the checkout, such as `src/k8s/watch.rs`.
    pub(crate) path: String,
    /// Module that it is, such as `["k8s", "watch"]`.
    pub(crate) module: Vec<String>,
    pub(crate) lines: usize,
    pub(crate) tree: syn::File,
}

impl Source {
    /// The first folder below `src`.
    pub(crate) fn room(&self) -> &str {
        self.module.first().map_or("", String::as_str)
    }
}

/// Parses every file below `src` but those of tests.
pub(crate) fn parse_sources() -> Vec<Source> {
    let paths = find_files(&root().join("src"), "rs");
    let paths = paths.iter().map(|path| path.strip_prefix(root()).unwrap());
    paths.filter(|path| !is_test_file(path)).map(parse_source).collect()
}

fn is_test_file(path: &Path) -> bool {
    path.iter().any(|part| part.to_string_lossy().contains("test"))
}

fn parse_source(path: &Path) -> Source {
    parse_text(path, &fs::read_to_string(root().join(path)).unwrap())
}

/// Parses the text of a file, and leaves its tests out.
pub(crate) fn parse_text(path: &Path, text: &str) -> Source {
    let mut tree = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    tree.items.retain(|item| !is_test_item(item));
    let mut module: Vec<String> =
        path.with_extension("").iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    Source { path: path.display().to_string(), module, lines: text.lines().count(), tree }
}

/// Returns whether an item is compiled for tests alone.
fn is_test_item(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Names of the functions of a file that it names itself: not those of implementations of traits.
pub(crate) fn function_names(source: &Source) -> Vec<String> {
    #[derive(Default)]
    struct Names(Vec<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
            if item.trait_.is_none() {
                syn::visit::visit_item_impl(self, item);
            }
        }
        fn visit_signature(&mut self, signature: &'ast syn::Signature) {
            self.0.push(signature.ident.to_string());
        }
    }
    let mut names = Names::default();
    names.visit_file(&source.tree);
    names.0
}

/// Number of closures of a file that are bound to a name.
pub(crate) fn count_named_closures(source: &Source) -> usize {
    #[derive(Default)]
    struct Count(usize);
    impl<'ast> Visit<'ast> for Count {
        fn visit_local(&mut self, local: &'ast syn::Local) {
            if local.init.as_ref().is_some_and(|init| matches!(*init.expr, syn::Expr::Closure(_))) {
                self.0 += 1;
            }
            syn::visit::visit_local(self, local);
        }
    }
    let mut count = Count::default();
    count.visit_file(&source.tree);
    count.0
}

/// String literals of a file, also in its macros and attributes. Comments are left out.
pub(crate) fn string_literals(source: &Source) -> Vec<String> {
    #[derive(Default)]
    struct Literals(Vec<String>);
    impl Literals {
        fn read_tokens(&mut self, mut tokens: Cursor<'_>) {
            while !tokens.eof() {
                if let Some((inside, _, _, rest)) = tokens.any_group() {
                    self.read_tokens(inside);
                    tokens = rest;
                } else if let Some((literal, rest)) = tokens.literal() {
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.0.push(text.value());
                    }
                    tokens = rest;
                } else if let Some((_, rest)) = tokens.token_tree() {
                    tokens = rest;
                } else {
                    break;
                }
            }
        }
    }
    impl<'ast> Visit<'ast> for Literals {
        fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
            if let syn::Meta::List(list) = &attribute.meta {
                self.read_tokens(TokenBuffer::new2(list.tokens.clone()).begin());
            }
        }
        fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
            self.0.push(text.value());
        }
        fn visit_macro(&mut self, called: &'ast syn::Macro) {
            self.read_tokens(TokenBuffer::new2(called.tokens.clone()).begin());
        }
    }
    let mut literals = Literals::default();
    literals.visit_file(&source.tree);
    literals.0
}

/// Every path that a file names, its imports flattened.
pub(crate) fn named_paths(source: &Source) -> Vec<Vec<String>> {
    #[derive(Default)]
    struct Paths(Vec<Vec<String>>);
    impl<'ast> Visit<'ast> for Paths {
        fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
            flatten_use(&item.tree, &mut Vec::new(), &mut |path, _| self.0.push(path));
        }
        fn visit_path(&mut self, path: &'ast syn::Path) {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
            syn::visit::visit_path(self, path);
        }
        fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
    }
    let mut paths = Paths::default();
    paths.visit_file(&source.tree);
    paths.0
}

/// Names that a module gives to items of others: from the name to the path.
pub(crate) type ImportedNames = BTreeMap<String, Vec<String>>;

/// Reads the imports at the top of a file.
pub(crate) fn imported_names(source: &Source) -> ImportedNames {
    let mut names = BTreeMap::new();
    for item in &source.tree.items {
        if let syn::Item::Use(item) = item {
            flatten_use(&item.tree, &mut Vec::new(), &mut |path, name| {
                names.insert(name, path);
            });
        }
    }
    names
}

fn flatten_use(tree: &syn::UseTree, before: &mut Vec<String>, found: &mut impl FnMut(Vec<String>, String)) {
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten_use(&path.tree, before, found);
            before.pop();
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten_use(tree, before, found);
            }
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            found(before.clone(), before.last().cloned().unwrap_or_default());
        }
        syn::UseTree::Name(name) => {
            let name = name.ident.to_string();
            found([&before[..], std::slice::from_ref(&name)].concat(), name.clone());
        }
        syn::UseTree::Rename(renamed) => {
            found([&before[..], &[renamed.ident.to_string()]].concat(), renamed.rename.to_string());
        }
        syn::UseTree::Glob(_) => {}
    }
}
