//! Suggestions for misspelled names ("did you mean").

/// Maximum length of compared texts in bytes.
///
/// The time grows with the product of both lengths, and no name of a tool, an agent or a setting is longer.
const LONGEST: usize = 256;

/// Returns up to three names of `known` that are most similar to `wanted`, best first.
///
/// Only clearly similar names are returned, because a wrong suggestion costs more than none. Texts of more than 256
/// bytes match nothing: a caller chooses them, and comparing them would block all other requests.
pub fn suggest_similar<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    suggest_from(wanted, &mut known.into_iter())
}

/// Implements [`suggest_similar`] without type parameters, so that it is compiled once and not for each iterator.
fn suggest_from(wanted: &str, known: &mut dyn Iterator<Item = &str>) -> Vec<String> {
    if wanted.len() > LONGEST {
        return Vec::new();
    }
    let wanted = wanted.to_ascii_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .filter(|name| name.len() <= LONGEST)
        .map(|name| {
            let lower = name.to_ascii_lowercase();
            // Texts of one or two letters are not compared this way, because many names contain them.
            let contained =
                wanted.len().min(lower.len()) > 2 && (lower.contains(&wanted) || wanted.contains(&lower));
            let similarity = strsim::jaro_winkler(&wanted, &lower);
            (if contained { similarity.max(0.85) } else { similarity }, name)
        })
        .filter(|(score, _)| *score >= 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1.eq_ignore_ascii_case(b.1));
    scored.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::suggest_similar;

    #[test]
    fn typos_find_names_strangers_find_none() {
        let known = ["codex", "claude", "gemini", "reviewer"];
        assert_eq!(suggest_similar("codx", known), ["codex"]);
        assert_eq!(suggest_similar("Cladue", known), ["claude"]);
        assert_eq!(suggest_similar("review", known), ["reviewer"]);
        assert!(suggest_similar("zzz", known).is_empty());
        assert!(suggest_similar("nobody", ["y", "bo"]).is_empty());
    }

    #[test]
    fn long_texts_match_nothing() {
        let (longest, long) = ("a".repeat(256), "a".repeat(257));
        assert_eq!(suggest_similar(&longest, [longest.as_str(), &long]), [longest.as_str()]);
        assert!(suggest_similar(&long, [long.as_str(), &longest]).is_empty());
    }
}
