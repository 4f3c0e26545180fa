//! "Did you mean": the known word nearest to one that is not known.

/// Returns the number of letters to add, leave out, change or swap with their neighbour to make one word of the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

fn fold_word(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Returns the candidate that was probably meant, if one is near enough.
pub fn find_nearest_word<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    const LONGEST: usize = 64;
    if word.chars().count() > LONGEST {
        return None;
    }
    let wanted = fold_word(word);
    let limit = (wanted.chars().count() / 3).clamp(1, 3);
    let rated = candidates.into_iter().filter(|candidate| candidate.chars().count() <= LONGEST).map(|candidate| {
        let known = fold_word(candidate);
        // `replica` for `replicaCount`, or the other way round.
        let starts = wanted.len() >= 3 && (known.starts_with(&wanted) || wanted.starts_with(&known));
        let away = edit_distance(&wanted, &known);
        (if starts { away.min(1) } else { away }, candidate)
    });
    rated.filter(|&(distance, _)| distance <= limit).min().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_cases_and_separators_are_seen_through_and_strangers_are_not() {
        let known = ["replicas", "image", "imageTag", "storageClass", "nodes"];
        for (word, expected) in [
            ("replcias", Some("replicas")),
            ("replica", Some("replicas")),
            ("image_tag", Some("imageTag")),
            ("storageclass", Some("storageClass")),
            ("nods", Some("nodes")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(find_nearest_word(word, known), expected, "{word}");
        }
    }
}
