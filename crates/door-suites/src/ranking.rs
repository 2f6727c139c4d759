//! Finds tools by words: those in their names count most, then those of their arguments and descriptions.

use std::collections::{BTreeMap, BTreeSet};

use crate::tool::Tool;

const IN_NAME: f64 = 4.0;
const IN_ARGUMENTS: f64 = 1.5;
const IN_DESCRIPTION: f64 = 1.0;

/// The usual constants of BM25: how soon repeated words stop to count, and how much long texts are held back.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The places of the tools that fit the query, best first. Equal ones stay in their order.
///
/// The time grows with the text of the tools and, separately, with the query: only words of a tool are looked up.
pub(crate) fn ranked<'a>(query: &str, tools: impl IntoIterator<Item = &'a Tool>) -> Vec<usize> {
    let wanted: BTreeSet<String> = words(query).into_iter().collect();
    let texts: Vec<Text> = tools.into_iter().map(|tool| weigh(tool, &wanted)).collect();
    let count = as_f64(texts.len());
    let mean = (texts.iter().map(|text| text.length).sum::<f64>() / count.max(1.0)).max(1.0);
    let mut having: BTreeMap<&str, usize> = BTreeMap::new();
    for word in texts.iter().flat_map(|text| text.weights.keys()) {
        *having.entry(word).or_default() += 1;
    }
    let rarity = |word: &str| {
        let having = as_f64(having.get(word).copied().unwrap_or_default());
        (1.0 + (count - having + 0.5) / (having + 0.5)).ln()
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

/// Text of a tool as a query sees it.
struct Text {
    /// How much each word of the query counts in it.
    weights: BTreeMap<String, f64>,
    /// How much all its words count together.
    length: f64,
}

fn weigh(tool: &Tool, wanted: &BTreeSet<String>) -> Text {
    let (shown, _) = tool.shown();
    let mut text = Text { weights: BTreeMap::new(), length: 0.0 };
    let mut add = |part: &str, weight: f64| {
        for word in words(part) {
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

/// The words of a text in small letters: `readTextFile`, `read_text_file` and "read text files" have the same.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for piece in text.split(|c: char| !c.is_alphanumeric()) {
        let mut word = String::new();
        let mut was_small = false;
        for c in piece.chars() {
            if c.is_uppercase() && was_small {
                words.push(std::mem::take(&mut word));
            }
            was_small = c.is_lowercase() || c.is_numeric();
            word.extend(c.to_lowercase());
        }
        words.push(word);
    }
    words.into_iter().filter(|word| !word.is_empty()).map(|word| stem(&word)).collect()
}

/// Takes the ending of a plural off, which is all the grammar that names of tools need.
fn stem(word: &str) -> String {
    match word.strip_suffix("ies") {
        Some(front) if front.len() > 1 => format!("{front}y"),
        _ if word.len() > 3 && !word.ends_with("ss") => word.strip_suffix('s').unwrap_or(word).to_owned(),
        _ => word.to_owned(),
    }
}

/// Counts of tools are small; nothing is lost.
fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
#[path = "ranking_tests.rs"]
mod tests;
