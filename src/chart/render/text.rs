//! Output of a template, for the careful path: YAML with tokens, each line and each value with its origin.

use serde_json::Value as Json;

use super::filters::NoData;
use super::template::{END, LINE, SITE, SLOT, is_mark};

/// Output of a template, its marks taken out.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// YAML with tokens.
    pub(super) clean: String,
    /// Lines of `clean` (from 1) with their origins: the index of the template, and the line there.
    pub(super) lines: Vec<(usize, usize, usize)>,
    /// The value behind each token, and the site of the expression that printed it, if it is known.
    pub(super) slots: Vec<(Result<Json, NoData>, Option<usize>)>,
}

impl Text {
    /// Returns the template and line that a line of the clean text comes from.
    pub(super) fn line_origin(&self, line: usize) -> Option<(usize, usize)> {
        let index = self.lines.partition_point(|&(clean, ..)| clean <= line);
        let &(_, template, line) = self.lines.get(index.checked_sub(1)?)?;
        Some((template, line))
    }
}

/// Takes the marks out of the engine's output and notes what they say; `None` if one of them is damaged.
pub(super) fn clean_output(output: &str, slots: Vec<Result<Json, NoData>>) -> Option<Text> {
    let mut text = Text { clean: String::with_capacity(output.len()), ..Text::default() };
    text.slots = slots.into_iter().map(|value| (value, None)).collect();
    let mut line = 1;
    let mut pending = None;
    let mut rest = output;
    while let Some(at) = rest.find(is_mark) {
        let (before, marked) = rest.split_at(at);
        if !before.is_empty() {
            pending = None;
        }
        line += before.bytes().filter(|&byte| byte == b'\n').count();
        text.clean.push_str(before);
        let kind = marked.chars().next()?;
        let end = marked.find(END)?;
        let content = marked.get(kind.len_utf8()..end)?;
        rest = &marked[end + END.len_utf8()..];
        match kind {
            SITE => pending = Some(content.parse().ok()?),
            SLOT => {
                let slot: usize = content.parse().ok()?;
                let entry = text.slots.get_mut(slot)?;
                if pending.is_some() {
                    entry.1 = pending.take();
                }
                text.clean.push_str(&marked[..end + END.len_utf8()]);
            }
            LINE => {
                let (template, of_template) = content.split_once('.')?;
                if text.lines.last().is_none_or(|last| last.0 < line) {
                    text.lines.push((line, template.parse().ok()?, of_template.parse().ok()?));
                }
            }
            _ => return None,
        }
    }
    text.clean.push_str(rest);
    Some(text)
}
