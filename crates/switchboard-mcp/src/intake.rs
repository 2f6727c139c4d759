//! Parsing and validation of JSON-RPC messages, with an error answer for each invalid message.
//!
//! `rmcp` drops messages that it cannot parse, answers them without their id, or treats them as an unknown method. This
//! module returns the error that JSON-RPC 2.0 (section 5.1) requires, on all transports, and `rmcp` receives only valid
//! messages.

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
use switchboard_core::describe_json_error;
use switchboard_core::json::deserialize_present;

use crate::arguments::validate_arguments;

/// Maximum number of messages in a batch. It equals the queue capacity of a session over `/sse`, so that either all of
/// them fit or none.
pub(crate) const MAX_BATCH: usize = 64;

/// Error answer to an invalid message.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Id as the sender wrote it, if there is one.
    id: Option<Box<RawValue>>,
    /// JSON-RPC error.
    error: ErrorData,
}

/// Fields of a JSON-RPC message, each as raw JSON.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    params: Option<&'a RawValue>,
}

impl Refusal {
    /// Serializes the error answer.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Answer<'a> {
            jsonrpc: &'static str,
            id: Option<&'a RawValue>,
            error: &'a ErrorData,
        }
        let answer = Answer { jsonrpc: "2.0", id: self.id.as_deref(), error: &self.error };
        // Serializing our errors cannot fail; if it did, an empty answer would be better than a panic.
        serde_json::to_vec(&answer).unwrap_or_default()
    }

    /// Returns true if only the params are invalid, so that the HTTP request itself was valid.
    pub(crate) fn is_about_params(&self) -> bool {
        self.error.code == rmcp::model::ErrorCode::INVALID_PARAMS
    }

    /// Rejects a message that exceeds the size limit.
    pub(crate) fn too_long(limit: usize) -> Self {
        Self::invalid(None, format!("a message has at most {limit} bytes; send a shorter one"))
    }

    /// Rejects a message that was parsed, with the given error.
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

/// Parses and validates one message.
pub(crate) fn read(bytes: &[u8]) -> Result<ClientJsonRpcMessage, Refusal> {
    let envelope = envelope(bytes)?;
    let id = envelope.id.filter(|id| is_id(id.get()));
    if envelope.jsonrpc.map(RawValue::get) != Some(r#""2.0""#) {
        return Err(Refusal::invalid(envelope.id, r#"`jsonrpc` must be "2.0""#));
    }
    // An error answer from the client may lack an id: JSON-RPC requires that if the client could not parse our request.
    if envelope.method.is_some() && envelope.id.is_some() && id.is_none() {
        let problem = "`id` must be a string or an integer of at most 64 bits, without a fraction";
        return Err(Refusal::invalid(envelope.id, problem));
    }
    // A value of `null` counts as missing, as in `rmcp`.
    if envelope.method.is_some()
        && envelope.params.is_some_and(|params| !matches!(params.get().as_bytes(), [b'{', ..] | b"null"))
    {
        return Err(Refusal::invalid(envelope.id, "`params` must be an object"));
    }
    let message: ClientJsonRpcMessage = serde_json::from_slice(bytes).map_err(|error| {
        let problem = describe_json_error(&error);
        Refusal::invalid(envelope.id, format!("this is not a request, notification or response: {problem}"))
    })?;
    // A known method was parsed as a custom request, so its params are invalid.
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

/// Splits a batch into its messages; returns `None` if the input is not a batch. Only for sessions with batches: see
/// [`allows_batches`].
///
/// The messages are raw JSON, and each may turn out to be invalid.
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

/// Returns the negotiated protocol version if this message is the result of `initialize`.
pub(crate) fn negotiated_version(message: &ServerJsonRpcMessage) -> Option<&ProtocolVersion> {
    let ServerJsonRpcMessage::Response(response) = message else { return None };
    let ServerResult::InitializeResult(result) = &response.result else { return None };
    Some(&result.protocol_version)
}

/// Returns true if clients of this version may send batches. Only 2025-03-26 has them.
pub(crate) fn allows_batches(version: &ProtocolVersion) -> bool {
    *version == ProtocolVersion::V_2025_03_26
}

/// Returns true if a message belongs to no session: as of 2026-07-28, requests are stateless.
///
/// `named` is the version that the transport received outside the message. The rule is the same as in `rmcp`.
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

/// Returns true if `rmcp` accepts this message as the first one. It ends the session after any other.
pub(crate) fn can_open(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(_))
}

/// Returns true if any message may follow this one, because the session is open in either protocol era.
pub(crate) fn opens_session(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::InitializeRequest(_) => true,
        // `server/discover` does not open a session: after it, both protocol eras are still possible.
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

/// Returns true if an id round-trips unchanged: a string, or an integer in its shortest form.
pub(crate) fn is_id(written: &str) -> bool {
    written.starts_with('"') && serde_json::from_str::<String>(written).is_ok()
        || written.parse::<i64>().is_ok_and(|number| number.to_string() == written)
}

fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Refusal> {
    match bytes.trim_ascii_start().first() {
        // Only objects are parsed, because serde would deserialize an array as a struct, by field order.
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
    let problem = describe_json_error(error);
    match error.classify() {
        Category::Data => Refusal::invalid(None, format!("this is not a JSON-RPC message: {problem}")),
        Category::Syntax | Category::Eof | Category::Io => Refusal {
            id: None,
            error: ErrorData::parse_error(format!("this is not one JSON object: {problem}"), None),
        },
    }
}

/// Messages of a batch, truncated to [`MAX_BATCH`], and their total count.
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

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let (mut parts, mut count) = (Vec::new(), 0);
                while let Some(part) = elements.next_element()? {
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

/// Methods that 2026-07-28 removed.
const REMOVED_METHODS: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Describes the invalid params of a known method; `None` for an unknown method.
fn params_error(request: &CustomRequest, is_modern: bool) -> Option<String> {
    let params = request.params.as_ref();
    if is_modern && REMOVED_METHODS.contains(&request.method.as_str()) {
        return None;
    }
    // Required and optional params with their JSON types, and the error of serde as a fallback.
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
        "logging/setLevel" => (&[], &[], "`level` must be a syslog level, such as \"info\"".to_owned()),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            (&[], &[("cursor", "string")], decode_error::<PaginatedRequestParams>(params))
        }
        "ping" | "server/discover" => (&[], &[], "expected an object".to_owned()),
        _ => return None,
    };
    let problem = first_mismatch(required, optional, params).unwrap_or(problem);
    Some(format!("invalid params of `{}`: {problem}", request.method))
}

/// Describes the first param that is missing or has the wrong type.
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
    let mut arguments = params.and_then(Value::as_object).cloned().unwrap_or_default();
    validate_arguments(&schema, &mut arguments).err().map(|mismatch| mismatch.problem)
}

fn decode_error<T: DeserializeOwned>(params: Option<&Value>) -> String {
    match serde_json::from_value::<T>(params.cloned().unwrap_or_default()) {
        Err(error) => describe_json_error(&error),
        Ok(_) => "they contain an unknown field".to_owned(),
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
