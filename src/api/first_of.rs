//! The first of many in a sentence.

use std::fmt::Display;

/// Returns the first `most` of some items and the number of the others, as `a, b and 3 more`; where `between` begins
/// with a semicolon, as `a; b; and 3 more`.
pub fn first_of<T: Display>(items: impl IntoIterator<Item = T>, most: usize, between: &str) -> String {
    let mut items = items.into_iter();
    let first: Vec<String> = items.by_ref().take(most).map(|item| item.to_string()).collect();
    let first = first.join(between);
    match items.count() {
        0 => first,
        more if between.starts_with(';') => format!("{first}; and {more} more"),
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_counted_and_few_are_not() {
        assert_eq!(first_of(["a", "b"], 2, ", "), "a, b");
        assert_eq!(first_of(["a", "b", "c"], 2, ", "), "a, b and 1 more");
        assert_eq!(first_of([1, 2, 3, 4], 2, "; "), "1; 2; and 2 more");
        assert_eq!(first_of([""; 0], 2, ", "), "");
    }
}
