//! From bytes to a message of MCP, or to the answer that says why they are none.
//!
//! `rmcp` drops what it cannot read, answers it without its id, or takes it for a method that it does not
//! know. Here such bytes get the answer that JSON-RPC 2.0 (section 5.1) asks for, whichever way they came, and
//! `rmcp` is given messages only.

use std::fmt::{self, Display};

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, CompleteRequestParams, CustomRequest,
    GetMeta, GetPromptRequestParams, InitializeRequestParams, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ServerJsonRpcMessage, ServerResult, SubscribeRequestParams,
    SubscriptionsListenRequestParams, UnsubscribeRequestParams,
};
use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::arguments::validate_arguments;

/// Most messages in one batch: as many as may wait for a session over `/sse`, so that all of them find a place or none.
pub(crate) const MAX_BATCH: usize = 64;

/// Bytes that are no message, with the answer to them.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The id as its sender wrote it, where one could be found.
    id: Option<Box<RawValue>>,
    /// What is wrong.
    error: ErrorData,
}

/// What every message of JSON-RPC has, each part still as it was written.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "as_written")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "as_written")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "as_written")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "as_written")]
    params: Option<&'a RawValue>,
}

impl Refusal {
    /// The answer as one JSON object.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Answer<'a> {
            jsonrpc: &'static str,
            id: Option<&'a RawValue>,
            error: &'a ErrorData,
        }
        let answer = Answer { jsonrpc: "2.0", id: self.id.as_deref(), error: &self.error };
        // An error of ours always serializes; should it not, an empty answer says no less than a crash.
        serde_json::to_vec(&answer).unwrap_or_default()
    }

    /// Whether the message was understood up to its parameters, so that over HTTP it was a good request.
    pub(crate) fn is_about_params(&self) -> bool {
        self.error.code == rmcp::model::ErrorCode::INVALID_PARAMS
    }

    /// A message that is too long to be read.
    pub(crate) fn too_long(limit: usize) -> Self {
        Self::invalid(None, format!("a message has at most {limit} bytes; send a shorter one"))
    }

    /// The refusal of a good message for which now is not the time.
    pub(crate) fn of(message: &ClientJsonRpcMessage, error: ErrorData) -> Self {
        let id = match message {
            ClientJsonRpcMessage::Request(request) => serde_json::value::to_raw_value(&request.id).ok(),
            _ => None,
        };
        Self { id, error }
    }

    fn invalid(id: Option<&RawValue>, problem: impl Display) -> Self {
        Self { id: id.map(ToOwned::to_owned), error: ErrorData::invalid_request(problem.to_string(), None) }
    }
}

/// Reads one message.
pub(crate) fn read(bytes: &[u8]) -> Result<ClientJsonRpcMessage, Refusal> {
    let envelope = envelope(bytes)?;
    let id = envelope.id.filter(|id| is_id(id.get()));
    if envelope.jsonrpc.map(RawValue::get) != Some(r#""2.0""#) {
        return Err(Refusal::invalid(envelope.id, r#"`jsonrpc` has to be "2.0""#));
    }
    // An answer of the client's may lack an id: that is how it says that it could not read ours.
    if envelope.method.is_some() && envelope.id.is_some() && id.is_none() {
        let problem =
            "`id` has to be a string or a whole number of at most 64 bits, written without a fraction";
        return Err(Refusal::invalid(envelope.id, problem));
    }
    // `null` passes for none, as it does in `rmcp`.
    if envelope.method.is_some()
        && envelope.params.is_some_and(|params| !matches!(params.get().as_bytes(), [b'{', ..] | b"null"))
    {
        return Err(Refusal::invalid(envelope.id, "`params` has to be an object"));
    }
    let message: ClientJsonRpcMessage = serde_json::from_slice(bytes).map_err(|error| {
        Refusal::invalid(envelope.id, format!("this is no request, notification or answer: {error}"))
    })?;
    // A method that is known, and still nobody's: its parameters did not fit.
    if let ClientJsonRpcMessage::Request(request) = &message
        && let ClientRequest::CustomRequest(custom) = &request.request
    {
        let version = request.request.get_meta().protocol_version();
        let is_modern = version.is_some_and(|version| !version.has_initialize());
        if let Some(problem) = params_error(custom, is_modern) {
            return Err(Refusal::of(&message, ErrorData::invalid_params(problem, None)));
        }
    }
    Ok(message)
}

/// Takes a batch apart; `None` for what is none. For sessions that may send any: see [`allows_batches`].
///
/// What is in it is still as it was written, and each part may turn out to be no message.
pub(crate) fn batch(bytes: &[u8]) -> Option<Result<Vec<&RawValue>, Refusal>> {
    if bytes.trim_ascii_start().first() != Some(&b'[') {
        return None;
    }
    let BatchParts { parts, count } = match serde_json::from_slice::<BatchParts<'_>>(bytes) {
        Ok(parts) => parts,
        Err(error) => return Some(Err(parse_error(&error))),
    };
    let is_initialize = |part: &&RawValue| {
        envelope(part.get().as_bytes())
            .is_ok_and(|envelope| envelope.method.is_some_and(|method| method.get() == r#""initialize""#))
    };
    let problem = if count > MAX_BATCH {
        format!("a batch has at most {MAX_BATCH} messages and this one has {count}; send several")
    } else if count == 0 {
        "the batch is empty; send at least one message".to_owned()
    } else if parts.iter().any(is_initialize) {
        "`initialize` cannot be part of a batch; send it on its own".to_owned()
    } else {
        return Some(Ok(parts));
    };
    Some(Err(Refusal::invalid(None, problem)))
}

/// The protocol version of a session, if this message is the answer to `initialize`.
pub(crate) fn negotiated_version(message: &ServerJsonRpcMessage) -> Option<&ProtocolVersion> {
    let ServerJsonRpcMessage::Response(response) = message else { return None };
    let ServerResult::InitializeResult(result) = &response.result else { return None };
    Some(&result.protocol_version)
}

/// Whether a client of this version may send batches: only 2025-03-26 has them.
pub(crate) fn allows_batches(version: &ProtocolVersion) -> bool {
    *version == ProtocolVersion::V_2025_03_26
}

/// Whether a message belongs to no session: every request of 2026-07-28 stands for itself.
///
/// `named` is the version that the transport was told beside the message. The rule is the one by which
/// `rmcp` decides.
pub(crate) fn is_stateless(message: Option<&ClientJsonRpcMessage>, named: Option<&str>) -> bool {
    let request = match message {
        Some(ClientJsonRpcMessage::Request(request)) => Some(&request.request),
        _ => None,
    };
    if matches!(request, Some(ClientRequest::InitializeRequest(_))) {
        return false;
    }
    let modern = ProtocolVersion::V_2026_07_28;
    let meta = request.map(GetMeta::get_meta);
    let is_whole = meta.is_some_and(|meta| meta.missing_required_keys(&modern).is_empty());
    match meta.and_then(rmcp::model::RequestMetaObject::protocol_version) {
        Some(version) => is_whole || !version.has_initialize(),
        None => is_whole || named.is_some_and(|version| version >= modern.as_str()),
    }
}

/// Whether a message can be the first that `rmcp` is given: it ends a session that begins otherwise.
pub(crate) fn can_open(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(_))
}

/// Whether what follows this message may be anything: the session has begun, in one era or the other.
pub(crate) fn opens_session(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::InitializeRequest(_) => true,
        // Only a look: both eras are still possible after it.
        ClientRequest::DiscoverRequest(_) => false,
        request => {
            let meta = request.get_meta();
            meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
                && meta
                    .protocol_version()
                    .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
        }
    }
}

/// Whether an id comes back exactly as it was written: a string, or an integer in its shortest form.
pub(crate) fn is_id(written: &str) -> bool {
    written.starts_with('"') && serde_json::from_str::<String>(written).is_ok()
        || written.parse::<i64>().is_ok_and(|number| number.to_string() == written)
}

fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Refusal> {
    match bytes.trim_ascii_start().first() {
        // An array would pass for an object whose fields stand in order.
        Some(b'[') => match serde_json::from_slice::<IgnoredAny>(bytes) {
            Ok(_) => Err(Refusal::invalid(
                None,
                "batches exist in the revision 2025-03-26 only; send each message on its own",
            )),
            Err(error) => Err(parse_error(&error)),
        },
        _ => serde_json::from_slice(bytes).map_err(|error| parse_error(&error)),
    }
}

fn parse_error(error: &serde_json::Error) -> Refusal {
    match error.classify() {
        Category::Data => Refusal::invalid(None, format!("this is no JSON-RPC message: {error}")),
        Category::Syntax | Category::Eof | Category::Io => Refusal {
            id: None,
            error: ErrorData::parse_error(format!("this is not one JSON object: {error}"), None),
        },
    }
}

/// The parts of a batch. Of one that has too many no more than that are kept.
struct BatchParts<'a> {
    parts: Vec<&'a RawValue>,
    count: usize,
}

impl<'de> Deserialize<'de> for BatchParts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counted;
        impl<'de> Visitor<'de> for Counted {
            type Value = BatchParts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Self::Value, A::Error> {
                let (mut parts, mut count) = (Vec::new(), 0);
                while let Some(part) = given.next_element()? {
                    count += 1;
                    if parts.len() < MAX_BATCH {
                        parts.push(part);
                    }
                }
                Ok(BatchParts { parts, count })
            }
        }
        deserializer.deserialize_seq(Counted)
    }
}

/// The methods that 2026-07-28 no longer has.
const REMOVED_METHODS: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// What is wrong with the parameters of a method that MCP knows; `None` for a method that it does not know.
fn params_error(request: &CustomRequest, is_modern: bool) -> Option<String> {
    let params = request.params.as_ref();
    if is_modern && REMOVED_METHODS.contains(&request.method.as_str()) {
        return None;
    }
    // What they have to have and what they may have, by the kinds of values that can be told in a word.
    let (required, optional, problem): (&[_], &[_], _) = match request.method.as_str() {
        "initialize" => (
            &[("protocolVersion", "string"), ("capabilities", "object"), ("clientInfo", "object")],
            &[],
            decode_error::<InitializeRequestParams>(params),
        ),
        "tools/call" => {
            (&[("name", "string")], &[("arguments", "object")], decode_error::<CallToolRequestParams>(params))
        }
        "prompts/get" => (
            &[("name", "string")],
            &[("arguments", "object")],
            decode_error::<GetPromptRequestParams>(params),
        ),
        "resources/read" => (&[("uri", "string")], &[], decode_error::<ReadResourceRequestParams>(params)),
        "resources/subscribe" => (&[("uri", "string")], &[], decode_error::<SubscribeRequestParams>(params)),
        "resources/unsubscribe" => {
            (&[("uri", "string")], &[], decode_error::<UnsubscribeRequestParams>(params))
        }
        "subscriptions/listen" => {
            (&[("notifications", "object")], &[], decode_error::<SubscriptionsListenRequestParams>(params))
        }
        "completion/complete" => {
            (&[("ref", "object"), ("argument", "object")], &[], decode_error::<CompleteRequestParams>(params))
        }
        "logging/setLevel" => {
            (&[], &[], "`level` has to be one of the levels of syslog, such as \"info\"".to_owned())
        }
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            (&[], &[("cursor", "string")], decode_error::<PaginatedRequestParams>(params))
        }
        "ping" | "server/discover" => (&[], &[], "expected an object".to_owned()),
        _ => return None,
    };
    let problem = first_mismatch(required, optional, params).unwrap_or(problem);
    Some(format!("the params of `{}` do not fit: {problem}", request.method))
}

/// What is missing or of the wrong kind, where that is all there is to say.
fn first_mismatch(
    required: &[(&str, &str)],
    optional: &[(&str, &str)],
    params: Option<&Value>,
) -> Option<String> {
    let properties: Map<String, Value> = required
        .iter()
        .chain(optional)
        .map(|(name, kind)| ((*name).to_owned(), json!({ "type": kind })))
        .collect();
    let required: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    let schema = Map::from_iter([
        ("properties".to_owned(), Value::Object(properties)),
        ("required".to_owned(), json!(required)),
    ]);
    let mut given = params.and_then(Value::as_object).cloned().unwrap_or_default();
    validate_arguments(&schema, &mut given).err().map(|mismatch| mismatch.problem)
}

fn decode_error<T: DeserializeOwned>(params: Option<&Value>) -> String {
    match serde_json::from_value::<T>(params.cloned().unwrap_or_default()) {
        Err(error) => error.to_string(),
        Ok(_) => "they have a field that does not belong there".to_owned(),
    }
}

/// Keeps a value as it was written, and tells `null` from nothing at all.
fn as_written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
