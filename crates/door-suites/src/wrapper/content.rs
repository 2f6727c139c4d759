//! The result of a tool as a text that a model reads.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// How much of one result a model is given: some 6,000 tokens, of which many fit into a conversation.
const RESULT_LIMIT: usize = 24_000;

/// A result as a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) text: String,
    pub(super) is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    #[serde(default)]
    content: Vec<Block>,
    structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    #[serde(rename = "type", default)]
    kind: String,
    text: Option<String>,
    /// Base64.
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    resource: Option<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    #[serde(default)]
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// Reads a whole `tools/call` result.
///
/// Images and sounds become notes: what the question was can nearly always be answered without, and not every model
/// takes them.
pub(super) fn read(result: &RawValue) -> Read {
    let Ok(read) = serde_json::from_str::<CallResult>(result.get()) else {
        // Not what the protocol has, but a model may still make something of it.
        return Read { text: cut(result.get()), is_error: false };
    };
    let mut texts: Vec<String> = read.content.iter().map(note).collect();
    let has_words = read.content.iter().any(|block| block.text.is_some() || block.resource.is_some());
    if let Some(data) = read.structured_content.filter(|_| !has_words) {
        texts.push(data.get().to_owned());
    }
    let text = texts.join("\n");
    let text = if text.is_empty() { "(nothing)".to_owned() } else { cut(&text) };
    Read { text, is_error: read.is_error }
}

fn note(block: &Block) -> String {
    if let Some(text) = &block.text {
        return text.clone();
    }
    if let Some(resource) = &block.resource {
        return match (&resource.text, &resource.blob) {
            (Some(text), _) => format!("{}:\n{text}", resource.uri),
            (None, blob) => not_shown("file", resource.mime_type.as_deref(), blob.as_deref(), &resource.uri),
        };
    }
    let uri = block.uri.as_deref().unwrap_or_default();
    match block.kind.as_str() {
        "resource_link" => format!("[a link: {uri}]"),
        kind => not_shown(kind, block.mime_type.as_deref(), block.data.as_deref(), uri),
    }
}

fn not_shown(kind: &str, mime: Option<&str>, base64: Option<&str>, uri: &str) -> String {
    let bytes = base64.map_or(0, |data| data.len() / 4 * 3);
    let of = [kind, mime.unwrap_or_default(), uri].join(" ");
    format!("[not shown: {}, about {bytes} bytes]", of.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// No more than a model is given, whole characters.
fn cut(text: &str) -> String {
    if text.len() <= RESULT_LIMIT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(RESULT_LIMIT);
    format!("{}\n[cut here: {} bytes in all; ask for less]", &text[..end], text.len())
}

/// One line about a result, for whoever asked.
pub(super) fn summary(text: &str) -> String {
    const LIMIT: usize = 160;
    let line = text.split_whitespace().take(LIMIT).collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LIMIT {
        return line;
    }
    line.chars().take(LIMIT - 1).chain(['…']).collect()
}

/// The arguments of a call as whoever asked is told of them: as they were, unless they are long.
pub(super) fn shown_args(args: &RawValue) -> Value {
    const LIMIT: usize = 2_000;
    let text = args.get();
    if text.len() <= LIMIT {
        return serde_json::from_str(text).unwrap_or_default();
    }
    let end = text.floor_char_boundary(LIMIT);
    Value::String(format!("{}… ({} bytes in all)", &text[..end], text.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::{RESULT_LIMIT, read, shown_args, summary};

    fn text(result: serde_json::Value) -> String {
        read(&to_raw_value(&result).expect("JSON")).text
    }

    #[test]
    fn every_kind_of_content_becomes_words() {
        let result = json!({ "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "data": "QUJDRA==", "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": "QUJD", "mimeType": "x/y" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c" },
            { "type": "hologram" },
        ], "structuredContent": { "left": "out" } });
        let words = "one\n[not shown: image image/png, about 6 bytes]\nfile:///a:\ntwo\n\
                     [not shown: file x/y file:///b, about 3 bytes]\n[a link: file:///c]\n[not shown: hologram, about 0 bytes]";
        assert_eq!(text(result), words);
        assert_eq!(text(json!({ "content": [], "structuredContent": { "a": 1 } })), r#"{"a":1}"#);
        assert_eq!(text(json!({ "content": [] })), "(nothing)");
        assert_eq!(text(json!([1])), "[1]");
    }

    #[test]
    fn long_results_are_cut_between_characters() {
        let cut = text(json!({ "content": [{ "type": "text", "text": "é".repeat(RESULT_LIMIT) }] }));
        assert!(
            cut.ends_with("\n[cut here: 48000 bytes in all; ask for less]") && cut.len() < RESULT_LIMIT + 60
        );
        assert_eq!(summary(&"ab ".repeat(200)).chars().count(), 160);
        assert_eq!(summary("a\n b"), "a b");
        let args = to_raw_value(&json!({ "text": "é".repeat(2_000) })).expect("JSON");
        assert!(shown_args(&args).as_str().is_some_and(|text| text.ends_with("(4011 bytes in all)")));
    }
}
