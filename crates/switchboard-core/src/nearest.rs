//! Which known word was meant.

/// Longest text that is compared, in bytes. The time grows with the product of both lengths, and no name of a tool, an
/// agent or a setting is longer.
const LONGEST: usize = 256;

/// The words of `known` that look most like `wanted`, best first, at most three.
///
/// Only words that are clearly alike are offered: a wrong suggestion costs more than none. Texts of more than 256 bytes
/// are like none: a caller chooses them, and comparing them would block all others.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    if wanted.len() > LONGEST {
        return Vec::new();
    }
    let wanted = wanted.to_ascii_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .filter(|word| word.len() <= LONGEST)
        .map(|word| {
            let lower = word.to_ascii_lowercase();
            // A letter or two are contained in many words.
            let contained =
                wanted.len().min(lower.len()) > 2 && (lower.contains(&wanted) || wanted.contains(&lower));
            let alike = strsim::jaro_winkler(&wanted, &lower);
            (if contained { alike.max(0.85) } else { alike }, word)
        })
        .filter(|(score, _)| *score >= 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1.eq_ignore_ascii_case(b.1));
    scored.into_iter().take(3).map(|(_, word)| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn typos_find_their_word_and_strangers_find_none() {
        let known = ["codex", "claude", "gemini", "reviewer"];
        assert_eq!(nearest("codx", known), ["codex"]);
        assert_eq!(nearest("Cladue", known), ["claude"]);
        assert_eq!(nearest("review", known), ["reviewer"]);
        assert!(nearest("zzz", known).is_empty());
        assert!(nearest("nobody", ["y", "bo"]).is_empty());
    }

    #[test]
    fn long_texts_are_like_none() {
        let (longest, long) = ("a".repeat(256), "a".repeat(257));
        assert_eq!(nearest(&longest, [longest.as_str(), &long]), [longest.as_str()]);
        assert!(nearest(&long, [long.as_str(), &longest]).is_empty());
    }
}
