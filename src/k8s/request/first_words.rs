//! The first words of a text that a stranger sent: without tags, scripts, and what may be a secret.

/// Number of bytes that are looked at.
const LOOKED_AT: usize = 16 << 10;
/// Number of characters that are shown.
const SHOWN: usize = 80;
/// A word of more characters is a key, a token or encoded data rather than a word.
const WORD: usize = 24;
/// Elements of HTML whose content is not for readers.
const HIDDEN: [&str; 4] = ["script", "style", "svg", "template"];
/// Parts of names of secrets.
const SECRETS: [&str; 9] = ["token", "secret", "password", "passwd", "pwd", "key", "bearer", "session", "csrf"];

/// The first words of a body.
pub(crate) fn first_words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(LOOKED_AT)]);
    let text = without_tags(&text);
    let mut shown = String::new();
    let mut hides_next = false;
    for word in text.split_whitespace() {
        let lower = word.to_ascii_lowercase();
        let names_secret = SECRETS.iter().any(|name| lower.contains(name));
        let is_secret = hides_next || word.chars().count() > WORD || names_secret && word.contains(['=', ':']);
        // `Password: x`, `Bearer x`, `token = x`.
        hides_next = names_secret && (lower.ends_with([':', '=']) || lower == "bearer") || hides_next && word == "=";
        if !shown.is_empty() {
            shown.push(' ');
        }
        match word.find(['=', ':']).filter(|_| names_secret) {
            Some(at) if is_secret => {
                shown.push_str(&word[..=at]);
                if at + 1 < word.len() {
                    shown.push('…');
                }
            }
            _ if is_secret => shown.push('…'),
            _ => shown.push_str(word),
        }
        if shown.chars().count() > SHOWN {
            let end = shown.char_indices().nth(SHOWN).map_or(shown.len(), |(at, _)| at);
            shown.truncate(end);
            shown.push('…');
            break;
        }
    }
    shown
}

/// A text without the tags of HTML, its comments, and the content of elements that are not for readers.
fn without_tags(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        plain.push_str(&rest[..at]);
        let tag = &rest[at..];
        if !tag[1..].starts_with(|next: char| next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?')) {
            plain.push('<');
            rest = &tag[1..];
            continue;
        }
        // A tag stands between words.
        plain.push(' ');
        let end = if tag.starts_with("<!--") { tag.find("-->").map(|at| at + 3) } else { end_of_tag(tag) };
        let Some(end) = end else { return plain };
        rest = &tag[end..];
        let name = tag[1..].split(|next: char| !next.is_ascii_alphanumeric()).next().unwrap_or_default();
        if let Some(hidden) = HIDDEN.iter().find(|hidden| name.eq_ignore_ascii_case(hidden)) {
            let close = format!("</{hidden}");
            let lower = rest.to_ascii_lowercase();
            let Some(at) = lower.find(&close) else { return plain };
            rest = &rest[at..];
        }
    }
    plain.push_str(rest);
    plain
}

/// Returns where a tag ends; `>` in a quoted attribute does not end it.
fn end_of_tag(tag: &str) -> Option<usize> {
    let mut quote = None;
    for (at, character) in tag.char_indices() {
        match (quote, character) {
            (None, '"' | '\'') => quote = Some(character),
            (None, '>') => return Some(at + 1),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shown_without_tags() {
        for (text, words) in [
            ("<html><head><title>Sign in</title></head><p>Now.</p>", "Sign in Now."),
            ("<SCRIPT>a<b</SCRIPT>x", "x"),
            ("<!-- <b>hidden</b> -->x < y", "x < y"),
            ("<input value='>SECRET'>x", "x"),
            ("<style>SECRET", ""),
            ("<p unclosed SECRET", ""),
        ] {
            assert_eq!(first_words(text.as_bytes()), words, "{text}");
        }
        assert!(first_words("word ".repeat(100).as_bytes()).chars().count() <= SHOWN + 1);
    }

    #[test]
    fn secrets_are_not_shown() {
        for text in [
            "Bearer SECRET",
            "token=SECRET",
            "access_token: SECRET",
            "Password = SECRET",
            "SECRETabcdefghijklmnopqrstuvwxyz0123456789",
        ] {
            let words = first_words(text.as_bytes());
            assert!(!words.contains("SECRET"), "{words}");
        }
    }
}
