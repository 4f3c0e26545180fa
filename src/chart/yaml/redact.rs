//! Hides what looks like a secret on a line that is shown although no schema says what is secret on it.

use crate::chart::diagnostic::Place;

/// Masks everything after a key that sounds like a secret, on a line that cannot be read and so has no schema.
pub(crate) fn hide_behind_secret_key(place: &mut Place) {
    let Some(word) = first_secret_word(&place.text) else { return };
    let Some(colon) = place.text[word..].find([':', '=']).map(|at| word + at) else { return };
    let (start, end) = (place.start, place.start + place.width);
    let mut masked = String::with_capacity(place.text.len());
    let (mut new_start, mut new_end) = (None, None);
    for (at, c) in place.text.char_indices() {
        if at >= start {
            new_start.get_or_insert(masked.len());
        }
        if at >= end {
            new_end.get_or_insert(masked.len());
        }
        masked.push(if at <= colon || c.is_whitespace() { c } else { '*' });
    }
    place.start = new_start.unwrap_or(masked.len());
    place.width = new_end.unwrap_or(masked.len()) - place.start;
    place.text = masked;
}

/// Returns the offset of the first word that sounds like the key of a secret; for places where no schema says so.
fn first_secret_word(line: &str) -> Option<usize> {
    let line = line.to_ascii_lowercase();
    ["secret", "passw", "token", "key", "credential", "auth"].iter().filter_map(|word| line.find(word)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str, start: usize, end: usize) -> (String, String) {
        let mut place = Place::in_text("f", text, start, end);
        hide_behind_secret_key(&mut place);
        let marked = place.text[place.start..place.start + place.width].to_owned();
        (place.text, marked)
    }

    #[test]
    fn what_follows_a_key_that_sounds_secret_is_hidden_and_the_caret_stays() {
        assert_eq!(hidden("a: b", 3, 4), ("a: b".to_owned(), "b".to_owned()));
        assert_eq!(hidden("Password: größe x", 0, 8), ("Password: ***** *".to_owned(), "Password".to_owned()));
        assert_eq!(hidden("apiToken: größe x", 10, 17), ("apiToken: ***** *".to_owned(), "*****".to_owned()));
        assert_eq!(hidden("{a: 1, token: ü, b: 2}", 1, 22).0, "{a: 1, token: ** ** **");
        assert_eq!(hidden("a.token=ü,b", 8, 12), ("a.token=***".to_owned(), "***".to_owned()));
    }
}
