//! The block with an example on a page of `docs/explain`, for the tests here and those of the command line.

use std::path::{Path, PathBuf};

pub(crate) const HEADING: &str = "\n## What it looks like\n\n```text\n";
const END: &str = "\n```\n";

/// A page around its example.
pub(crate) struct Block {
    path: PathBuf,
    before: String,
    shown: Option<String>,
    after: String,
}

impl Block {
    /// The block of a page as it is on disk.
    pub(crate) fn read_page_block(id: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/explain/{id}.md"));
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, shown, after) = match text.split_once(HEADING) {
            Some((before, rest)) => {
                let (shown, after) = rest.split_once(END).unwrap();
                (before, Some(shown.to_owned()), after)
            }
            None => {
                let (before, after) = text.split_at(text.find("\n## ").unwrap());
                (before, None, after)
            }
        };
        Self { path, before: before.to_owned(), shown, after: after.to_owned() }
    }

    /// Returns whether it shows a whole run of the program, with its command.
    pub(crate) fn is_run(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.starts_with("$ "))
    }

    /// Asserts that it shows just this, or with `UPDATE_EXAMPLES` set makes it so.
    pub(crate) fn assert_shows(&self, now: Option<&str>) {
        let Self { path, before, shown, after } = self;
        if shown.as_deref() == now {
            return;
        }
        let write = std::env::var_os("UPDATE_EXAMPLES").is_some();
        assert!(write, "{} has the example\n{shown:?}\nand not\n{now:?}", path.display());
        let example = now.map_or_else(String::new, |now| format!("{HEADING}{now}{END}"));
        std::fs::write(path, format!("{before}{example}{after}")).unwrap();
    }
}
