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
pub(crate) fn ranked<'a>(query: &str, tools: impl IntoIterator<Item = &'a Tool>) -> Vec<usize> {
    let wanted: BTreeSet<String> = words(query).into_iter().collect();
    let texts: Vec<BTreeMap<String, f64>> = tools.into_iter().map(weights).collect();
    let count = as_f64(texts.len());
    let lengths: Vec<f64> = texts.iter().map(|text| text.values().sum()).collect();
    let mean = (lengths.iter().sum::<f64>() / count.max(1.0)).max(1.0);
    let rarity: BTreeMap<&str, f64> = wanted
        .iter()
        .map(|word| {
            let having = as_f64(texts.iter().filter(|text| text.contains_key(word)).count());
            (word.as_str(), (1.0 + (count - having + 0.5) / (having + 0.5)).ln())
        })
        .collect();
    let mut scored: Vec<(f64, usize)> = texts
        .iter()
        .zip(&lengths)
        .enumerate()
        .map(|(place, (text, length))| {
            let score = rarity.iter().filter_map(|(word, rarity)| {
                let weight = text.get(*word)?;
                Some(rarity * weight * (K1 + 1.0) / (weight + K1 * (1.0 - B + B * length / mean)))
            });
            (score.sum(), place)
        })
        .filter(|(score, _): &(f64, usize)| *score > 0.0)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    scored.into_iter().map(|(_, place)| place).collect()
}

/// How much each word counts in a tool.
fn weights(tool: &Tool) -> BTreeMap<String, f64> {
    let (shown, _) = tool.shown();
    let mut weights = BTreeMap::new();
    let mut add = |text: &str, weight: f64| {
        for word in words(text) {
            *weights.entry(word).or_insert(0.0) += weight;
        }
    };
    add(&tool.name, IN_NAME);
    add(shown.title.as_deref().unwrap_or_default(), IN_ARGUMENTS);
    add(shown.description.as_deref().unwrap_or_default(), IN_DESCRIPTION);
    for argument in shown.input_schema.arguments() {
        add(argument, IN_ARGUMENTS);
    }
    weights
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
#[path = "search_tests.rs"]
mod tests;
