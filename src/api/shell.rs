//! Words of the commands that are shown to users.

use std::borrow::Cow;
use std::path::Path;

use super::util::text::visible_cell;

/// A text as one word of a POSIX shell: in quotes, unless every character stands for itself.
pub fn quote_word(text: &str) -> Cow<'_, str> {
    if is_plain(text) { Cow::Borrowed(text) } else { Cow::Owned(quote_always(text)) }
}

/// Returns whether a text is one word of a POSIX shell without quotes: every character stands for itself.
pub fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c))
}

/// A text as one word of a POSIX shell, in quotes.
pub fn quote_always(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A word that others chose, such as the name of their object, for a command that a user sees: escaped and quoted.
pub fn foreign_word(text: &str) -> String {
    quote_word(&visible_cell(text)).into_owned()
}

/// The flag by which this program and kubectl read a kubeconfig, a space before it.
pub fn kubeconfig_flag(file: &Path) -> String {
    format!(" --kubeconfig {}", quote_word(&file.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_something_else() {
        for plain in ["kubernetes-admin@kubernetes", "/home/ann/.kube/config", "arn:aws:eks:eu-1:1:cluster/west"] {
            assert_eq!(quote_word(plain), plain);
        }
        assert_eq!(quote_word("/home/ann/my configs/west"), "'/home/ann/my configs/west'");
        assert_eq!(quote_word("ann's $HOME"), r"'ann'\''s $HOME'");
        assert_eq!(quote_word(""), "''");
        assert_eq!(foreign_word("west"), "west");
        assert_eq!(foreign_word("west;\nreboot`\u{1b}"), r"'west;\nreboot`\u{1b}'");
    }
}
