//! Conversion of tool results into text for a model.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Maximum length of a result text, in bytes: about 6,000 tokens, so that many results fit into a conversation.
const RESULT_LIMIT: usize = 24_000;

/// A tool result, converted into text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResultText {
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
    /// Base64-encoded data of an image or of audio.
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

/// Converts a complete `tools/call` result into text.
///
/// Images and audio become placeholders. Nearly every question can be answered without them, and not every model
/// accepts them.
pub(super) fn read(result: &RawValue) -> ResultText {
    let Ok(read) = serde_json::from_str::<CallResult>(result.get()) else {
        // Pass an invalid result on as raw text, because the model may still be able to use it.
        return ResultText { text: truncate(result.get()), is_error: false };
    };
    let mut texts: Vec<String> = read.content.iter().map(render_block).collect();
    let has_words = read.content.iter().any(|block| block.text.is_some() || block.resource.is_some());
    if let Some(data) = read.structured_content.filter(|_| !has_words) {
        texts.push(data.get().to_owned());
    }
    let text = texts.join("\n");
    let text = if text.is_empty() { "(nothing)".to_owned() } else { truncate(&text) };
    ResultText { text, is_error: read.is_error }
}

fn render_block(block: &Block) -> String {
    if let Some(text) = &block.text {
        return text.clone();
    }
    if let Some(resource) = &block.resource {
        return match (&resource.text, &resource.blob) {
            (Some(text), _) => format!("{}:\n{text}", resource.uri),
            (None, blob) => {
                placeholder("file", resource.mime_type.as_deref(), blob.as_deref(), &resource.uri)
            }
        };
    }
    let uri = block.uri.as_deref().unwrap_or_default();
    match block.kind.as_str() {
        "resource_link" => format!("[a link: {uri}]"),
        kind => placeholder(kind, block.mime_type.as_deref(), block.data.as_deref(), uri),
    }
}

fn placeholder(kind: &str, mime: Option<&str>, base64: Option<&str>, uri: &str) -> String {
    let bytes = base64.map_or(0, |data| data.len() / 4 * 3);
    let of = [kind, mime.unwrap_or_default(), uri].join(" ");
    format!("[not shown: {}, about {bytes} bytes]", of.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Truncates a text to [`RESULT_LIMIT`] bytes at a character boundary.
///
/// A truncated text ends with a note for the model.
fn truncate(text: &str) -> String {
    if text.len() <= RESULT_LIMIT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(RESULT_LIMIT);
    format!("{}\n[cut here: {} bytes in all; ask for less]", &text[..end], text.len())
}

/// Renders a one-line summary of a result, for the caller.
pub(super) fn summary(text: &str) -> String {
    // About two lines of a terminal.
    const LIMIT: usize = 160;
    let line = text.split_whitespace().take(LIMIT).collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LIMIT {
        return line;
    }
    line.chars().take(LIMIT - 1).chain(['…']).collect()
}

/// Renders the arguments of a call for the caller; truncates them if they are long.
pub(super) fn truncate_args(args: &RawValue) -> Value {
    // Enough to recognise a call. The tool itself received the complete arguments.
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

    use super::{RESULT_LIMIT, read, summary, truncate_args};

    fn text(result: serde_json::Value) -> String {
        read(&to_raw_value(&result).expect("JSON")).text
    }

    #[test]
    fn every_content_kind_becomes_text() {
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
    fn long_results_are_truncated_between_characters() {
        let truncate = text(json!({ "content": [{ "type": "text", "text": "é".repeat(RESULT_LIMIT) }] }));
        assert!(
            truncate.ends_with("\n[cut here: 48000 bytes in all; ask for less]")
                && truncate.len() < RESULT_LIMIT + 60
        );
        assert_eq!(summary(&"ab ".repeat(200)).chars().count(), 160);
        assert_eq!(summary("a\n b"), "a b");
        let args = to_raw_value(&json!({ "text": "é".repeat(2_000) })).expect("JSON");
        assert!(truncate_args(&args).as_str().is_some_and(|text| text.ends_with("(4011 bytes in all)")));
    }
}
