//! Ranking of tools for a query with BM25.
//!
//! Words in a tool's name weigh most, then words in its arguments and its description.

use std::collections::{BTreeMap, BTreeSet};

use crate::tool::Tool;

/// Weight of a word in a tool's name. Names are chosen to be found, whereas descriptions also mention other things.
const IN_NAME: f64 = 4.0;
const IN_ARGUMENTS: f64 = 1.5;
const IN_DESCRIPTION: f64 = 1.0;

/// BM25 term saturation (k1). Both `K1` and the length normalization `B` have their usual values.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Returns the indices of matching tools, best match first. Tools of equal rank keep their order.
///
/// The time is linear in the length of the tools' text plus the length of the query, because the words of the query are
/// a set.
pub(crate) fn rank_tools<'a>(query: &str, tools: impl IntoIterator<Item = &'a Tool>) -> Vec<usize> {
    let wanted: BTreeSet<String> = tokenize(query).into_iter().collect();
    let texts: Vec<WeightedText> = tools.into_iter().map(|tool| weigh_tool(tool, &wanted)).collect();
    let count = as_f64(texts.len());
    let mean = (texts.iter().map(|text| text.length).sum::<f64>() / count.max(1.0)).max(1.0);
    let mut document_frequency: BTreeMap<&str, usize> = BTreeMap::new();
    for word in texts.iter().flat_map(|text| text.weights.keys()) {
        *document_frequency.entry(word).or_default() += 1;
    }
    let rarity = |word: &str| {
        let document_frequency = as_f64(document_frequency.get(word).copied().unwrap_or_default());
        (1.0 + (count - document_frequency + 0.5) / (document_frequency + 0.5)).ln()
    };
    let mut scored: Vec<(f64, usize)> = texts
        .iter()
        .enumerate()
        .map(|(position, text)| {
            let score = text.weights.iter().map(|(word, weight)| {
                let held_back = K1 * (1.0 - B + B * text.length / mean);
                rarity(word) * weight * (K1 + 1.0) / (weight + held_back)
            });
            (score.sum(), position)
        })
        .filter(|(score, _): &(f64, usize)| *score > 0.0)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    scored.into_iter().map(|(_, position)| position).collect()
}

/// Weighted words of one tool's text, restricted to the words of the query.
struct WeightedText {
    /// Weight of each query word that occurs in the text.
    weights: BTreeMap<String, f64>,
    /// Total weight of all words in the text.
    length: f64,
}

fn weigh_tool(tool: &Tool, wanted: &BTreeSet<String>) -> WeightedText {
    let (shown, _) = tool.display();
    let mut text = WeightedText { weights: BTreeMap::new(), length: 0.0 };
    let mut add = |part: &str, weight: f64| {
        for word in tokenize(part) {
            text.length += weight;
            if wanted.contains(&word) {
                *text.weights.entry(word).or_insert(0.0) += weight;
            }
        }
    };
    add(&tool.name, IN_NAME);
    add(shown.title.as_deref().unwrap_or_default(), IN_ARGUMENTS);
    add(shown.description.as_deref().unwrap_or_default(), IN_DESCRIPTION);
    for argument in shown.input_schema.arguments() {
        add(argument, IN_ARGUMENTS);
    }
    text
}

/// Splits a text into lower-case words. `readTextFile`, `read_text_file` and "read text files" give the same tokens.
fn tokenize(text: &str) -> Vec<String> {
    let mut tokenize = Vec::new();
    for piece in text.split(|c: char| !c.is_alphanumeric()) {
        let mut word = String::new();
        let mut was_small = false;
        for c in piece.chars() {
            if c.is_uppercase() && was_small {
                tokenize.push(std::mem::take(&mut word));
            }
            was_small = c.is_lowercase() || c.is_numeric();
            word.extend(c.to_lowercase());
        }
        tokenize.push(word);
    }
    tokenize.into_iter().filter(|word| !word.is_empty()).map(|word| stem(&word)).collect()
}

/// Strips plural endings. Tool names need no further stemming.
fn stem(word: &str) -> String {
    match word.strip_suffix("ies") {
        Some(front) if front.len() > 1 => format!("{front}y"),
        _ if word.len() > 3 && !word.ends_with("ss") => word.strip_suffix('s').unwrap_or(word).to_owned(),
        _ => word.to_owned(),
    }
}

/// Converts a count to `f64`. The conversion is lossless, because counts of tools are small.
fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
#[path = "ranking_tests.rs"]
mod tests;
