//! Prepares a template's source: every expression and every line gets a mark, so that what comes out of the template
//! engine is known by its place; and what would undo the safety of rendering is refused.

use crate::chart::diagnostic::{Diagnostic, Place};

/// The characters that marks and tokens are made of. They are for private use in Unicode; templates must not contain
/// them, but values may, because values never become text that is parsed.
pub(in crate::chart) const SLOT: char = '\u{e000}';
pub(in crate::chart) const END: char = '\u{e001}';
pub(super) const SITE: char = '\u{e002}';
pub(in crate::chart) const LINE: char = '\u{e003}';

/// Returns whether a character is one that marks and tokens are made of.
pub(super) fn is_mark(c: char) -> bool {
    ('\u{e000}'..='\u{e003}').contains(&c)
}

/// Returns whether a text holds a character that marks and tokens are made of.
pub(super) fn has_mark(text: &str) -> bool {
    // Their first byte is in hardly any text.
    memchr::memchr(0xee, text.as_bytes()).is_some() && text.contains(is_mark)
}

/// An expression of a template: `{{ values.x }}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chart) struct Site {
    /// Index of the template among the renderer's templates.
    pub(in crate::chart) template: usize,
    /// The bytes of the expression in the template's own source, braces included.
    pub(in crate::chart) start: usize,
    pub(in crate::chart) end: usize,
}

/// A source ready for the template engine.
#[derive(Debug, Clone, Default)]
pub(in crate::chart) struct Prepared {
    pub(super) source: String,
    /// For each insertion: where in `source` it is, and how many bytes have been inserted up to its end.
    inserted: Vec<(usize, usize)>,
}

impl Prepared {
    /// Converts an offset in the prepared source to one in the template's own.
    pub(super) fn original_offset(&self, offset: usize) -> usize {
        let index = self.inserted.partition_point(|&(at, _)| at < offset);
        let shift = if index == 0 { 0 } else { self.inserted[index - 1].1 };
        offset.saturating_sub(shift)
    }
}

struct Scan<'t> {
    path: &'t str,
    text: &'t str,
    template: usize,
    at: usize,
    out: String,
    inserted: Vec<(usize, usize)>,
    total: usize,
    line: usize,
    /// Whether this line has held nothing but spaces so far.
    fresh: bool,
    marks: Marks,
    /// For each open tag whether it has an `else`; kept if branches are to be marked.
    open: Vec<bool>,
}

/// Places that are marked in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chart) enum Marks {
    /// The lines that objects begin with, and no more: the least that the engine has to carry around.
    Objects,
    /// Every expression and every line, so that everything that comes out is known by its place.
    Places,
    /// The same and every branch: the text that comes out cannot be bound, but says which branches were taken.
    Branches,
}

impl Scan<'_> {
    fn scan_error(&self, start: usize, end: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error("template", message).at(Place::in_text(self.path, self.text, start, end))
    }

    fn insert_mark(&mut self, mark: &str) {
        let at = self.out.len();
        self.out.push_str(mark);
        self.total += mark.len();
        self.inserted.push((at, self.total));
    }

    fn copy_to(&mut self, end: usize) {
        let piece = &self.text[self.at..end];
        self.line += memchr::memchr_iter(b'\n', piece.as_bytes()).count();
        self.out.push_str(piece);
        self.at = end;
    }

    /// Returns the end of the tag that begins at `self.at`: the offset after its closing braces, quoted text skipped.
    fn end_of_tag(&self, close: &str) -> Result<usize, Diagnostic> {
        let bytes = self.text.as_bytes();
        let mut at = self.at + 2;
        let mut quote = None;
        let mut depth = 0_usize;
        while at < bytes.len() {
            let byte = bytes[at];
            match quote {
                Some(_) if byte == b'\\' => at += 1,
                Some(open) if byte == open => quote = None,
                None if matches!(byte, b'"' | b'\'') => quote = Some(byte),
                None if depth == 0 && bytes[at..].starts_with(close.as_bytes()) => return Ok(at + close.len()),
                None if matches!(byte, b'{' | b'[' | b'(') => depth += 1,
                None if matches!(byte, b'}' | b']' | b')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            // What is looked for is ASCII, so the bytes inside a character are passed over.
            at += 1;
        }
        Err(self.scan_error(self.at, self.at + 2, format!("`{close}` is missing")))
    }

    fn scan_expression(&mut self, sites: &mut Vec<Site>) -> Result<(), Diagnostic> {
        let end = self.end_of_tag("}}")?;
        if self.text[self.at..].starts_with("{{-") {
            return Err(self.scan_error(
                self.at,
                self.at + 3,
                "`{{-` is not supported: values are inserted into the parsed YAML, where whitespace does not matter",
            ));
        }
        if self.marks != Marks::Objects {
            self.mark_site(sites, self.at, end);
        }
        self.copy_to(end);
        self.fresh = false;
        Ok(())
    }

    /// Marks a place of the template.
    fn mark_site(&mut self, sites: &mut Vec<Site>, start: usize, end: usize) {
        let mark = format!("{SITE}{}{END}", sites.len());
        self.insert_mark(&mark);
        sites.push(Site { template: self.template, start, end });
    }

    fn scan_block(&mut self, sites: &mut Vec<Site>) -> Result<(), Diagnostic> {
        let start = self.at;
        let end = self.end_of_tag("%}")?;
        let inner = self.text[start + 2..end - 2].trim_start_matches(['-', '+']).trim_start();
        let word = inner.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        match word {
            "autoescape" | "endautoescape" => {
                let message = "`autoescape` is refused: values are inserted into the parsed YAML and need no escaping";
                return Err(self.scan_error(start, end, message));
            }
            "extends" | "block" => {
                return Err(self.scan_error(start, end, format!("`{word}` is refused: use `include` or a macro")));
            }
            _ => {}
        }
        let branches = self.marks == Marks::Branches;
        if branches
            && word == "endif"
            && let Some(false) = self.open.pop()
        {
            // What happens where the condition does not hold is a branch too, though nobody wrote it.
            self.insert_mark("{% else %}");
            self.mark_site(sites, start, end);
        }
        self.copy_to(end);
        match word {
            "if" => self.open.push(false),
            "else" => self.open.last_mut().into_iter().for_each(|has_else| *has_else = true),
            "for" => self.open.push(true),
            "endfor" => drop(self.open.pop()),
            _ => {}
        }
        if branches && matches!(word, "if" | "elif" | "else" | "for" | "macro") {
            self.mark_site(sites, start, end);
        }
        if word == "raw" {
            let Some(length) = self.text[end..].find("endraw") else {
                return Err(self.scan_error(start, end, "`endraw` is missing"));
            };
            self.copy_to(end + length);
            let close = self.text[self.at..].find("%}").map_or(self.text.len(), |length| self.at + length + 2);
            self.copy_to(close);
        }
        // `trim_blocks`: the line break behind a block goes with it.
        self.fresh = self.text[self.at..].starts_with('\n');
        Ok(())
    }

    /// Text up to the next tag or the end of the line.
    fn scan_text(&mut self) -> Result<(), Diagnostic> {
        let rest = &self.text[self.at..];
        let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let line = &rest[..end];
        let bytes = line.as_bytes();
        let tag = memchr::memchr_iter(b'{', bytes).find(|at| matches!(bytes.get(at + 1), Some(b'{' | b'%' | b'#')));
        let piece = &line[..tag.unwrap_or(line.len())];
        if !piece.is_ascii()
            && let Some(at) = piece.find(is_mark)
        {
            let start = self.at + at;
            return Err(self.scan_error(start, start + SLOT.len_utf8(), "a template must not contain this character"));
        }
        let indentation = piece.len() - piece.trim_start().len();
        if self.fresh && indentation < piece.len() {
            self.copy_to(self.at + indentation);
            if self.marks != Marks::Objects || (piece.starts_with("apiVersion:") || piece.starts_with("kind:")) {
                let mark = format!("{LINE}{}.{}{END}", self.template, self.line);
                self.insert_mark(&mark);
            }
            self.fresh = false;
            self.copy_to(self.at + piece.len() - indentation);
        } else {
            self.copy_to(self.at + piece.len());
        }
        if piece.ends_with('\n') {
            self.fresh = true;
        }
        Ok(())
    }

    fn scan_template(&mut self, sites: &mut Vec<Site>) -> Result<(), Diagnostic> {
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            if rest.starts_with("{{") {
                self.scan_expression(sites)?;
            } else if rest.starts_with("{%") {
                self.scan_block(sites)?;
            } else if rest.starts_with("{#") {
                let Some(length) = rest.find("#}") else {
                    return Err(self.scan_error(self.at, self.at + 2, "`#}` is missing"));
                };
                self.copy_to(self.at + length + 2);
                self.fresh = self.text[self.at..].starts_with('\n');
            } else {
                self.scan_text()?;
            }
        }
        Ok(())
    }
}

/// Prepares a source. New sites are added to `sites`; `template` is the number of this template.
pub(in crate::chart) fn prepare_template(
    path: &str,
    text: &str,
    template: usize,
    sites: &mut Vec<Site>,
    marks: Marks,
) -> Result<Prepared, Diagnostic> {
    let mut scan = Scan {
        path,
        text,
        template,
        at: 0,
        out: String::with_capacity(text.len() * 2),
        inserted: Vec::new(),
        total: 0,
        line: 1,
        fresh: true,
        marks,
        open: Vec::new(),
    };
    scan.scan_template(sites)?;
    Ok(Prepared { source: scan.out, inserted: scan.inserted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut sites = Vec::new();
        let prepared = prepare_template("t.yaml", text, 0, &mut sites, Marks::Places).unwrap();
        for (index, site) in sites.iter().enumerate() {
            let mark = format!("{SITE}{index}{END}");
            let at = prepared.source.find(&mark).unwrap() + mark.len();
            assert_eq!(prepared.original_offset(at), site.start);
            assert!(text[site.start..site.end].starts_with("{{") && text[site.start..site.end].ends_with("}}"));
        }
        prepared.source.replace(SITE, "S").replace(LINE, "L").replace(END, ":")
    }

    #[test]
    fn expressions_and_lines_are_marked_and_tags_are_left_alone() {
        assert_eq!(shown("a: {{ x }}\n  b: 1\n"), "L0.1:a: S0:{{ x }}\n  L0.2:b: 1\n");
        assert_eq!(
            shown("{% if a == '}}%}' %}\nk: v\n{% endif %}\n"),
            "{% if a == '}}%}' %}\nL0.2:k: v\n{% endif %}\n"
        );
        assert_eq!(shown("{{ {'a': {'b': 1}} }}"), "S0:{{ {'a': {'b': 1}} }}");
        assert_eq!(shown("{# {{ x }} #}\nü: {{ x -}}\n"), "{# {{ x }} #}\nL0.2:ü: S0:{{ x -}}\n");
        assert_eq!(shown("{% raw %}{{ x }}{% endraw %}{{ y }}"), "{% raw %}{{ x }}{% endraw %}S0:{{ y }}");
    }

    #[test]
    fn what_would_undo_the_safety_is_refused_with_its_place() {
        for (text, column) in [
            ("a: {% autoescape false %}", 4),
            ("a: {%- autoescape none %}", 4),
            ("x: \u{e000}", 4),
            ("{{ x", 1),
            ("{% if", 1),
            ("{# x", 1),
            ("{{- x }}", 1),
            ("{% block x %}", 1),
            ("{% raw %}", 1),
        ] {
            let error = prepare_template("t.yaml", text, 0, &mut Vec::new(), Marks::Places).unwrap_err();
            assert_eq!(error.place.unwrap().column, column, "{text}");
        }
    }
}
