//! Translation of current events into events of the legacy dialect.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::PROVIDER;
use crate::wire::{EventLine, format_raw_event};

type Data = Map<String, Value>;

/// Decisions that `approve_execution` accepts.
const DECISIONS: [&str; 3] = ["accept", "decline", "cancel"];

/// Translates complete lines into the legacy dialect. Every event with a `job_id` also gets a `swarm_id`.
pub(crate) fn translate_lines(lines: &[u8]) -> Vec<u8> {
    let mut translated = Vec::with_capacity(lines.len() + lines.len() / 8);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match parse(line) {
            Some((line, data)) => translate(&line, data, &mut translated),
            None => translated.extend_from_slice(line),
        }
    }
    translated
}

fn parse(line: &[u8]) -> Option<(EventLine<'_>, Data)> {
    let line: EventLine<'_> = serde_json::from_slice(line).ok()?;
    let data = serde_json::from_str(line.data.get()).ok()?;
    Some((line, data))
}

fn translate(line: &EventLine<'_>, mut data: Data, out: &mut Vec<u8>) {
    let mut write = |event: &str, data: &Data| {
        out.extend(format_raw_event(line.seq, &line.timestamp, event, data));
    };
    if let Some(job) = data.get("job_id").cloned() {
        data.entry("swarm_id").or_insert(job);
    }
    match line.event.as_str() {
        "job_launched" => write("swarm_launched", &swarm(&data)),
        "job_status" => write("swarm_status", &swarm(&data)),
        "job_terminated" => write("swarm_terminated", &data),
        "jobs_list" => write("swarm_list", &swarms(&data)),
        "approval_required" => write("exec_approval_required", &question(data)),
        "approval_resolved" => {
            let is_approved = matches!(text(&data, "decision"), "accept" | "accept_for_session");
            copy(&mut data, "approval_id", "call_id");
            data.insert("approved".to_owned(), is_approved.into());
            write("exec_approval_resolved", &data);
        }
        "approvals_list" => write("approvals_list", &questions(&data, line.seq)),
        "queue_list" => {
            let items = queue(&data);
            write("queue_list", &object(json!({ "request_id": data.get("request_id"), "items": items })));
            // Legacy clients read the queue from this event.
            write("queue_updated", &object(json!({ "items": items })));
        }
        "command_started" | "command_completed" => {
            copy(&mut data, "item_id", "call_id");
            write(&line.event, &data);
        }
        "agent_error" => {
            copy(&mut data, "error", "message");
            write("agent_error", &data);
        }
        event => write(event, &data),
    }
}

/// Returns a job without its nodes, because legacy clients print every field on one line.
fn swarm(job: &Data) -> Data {
    let mut swarm = Data::new();
    for key in ["request_id", "swarm_id", "job_id", "status", "launched_at", "total_tokens"] {
        swarm.extend(job.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    let nodes = job.get("nodes").and_then(Value::as_array).map_or(0, Vec::len);
    swarm.insert("node_count".to_owned(), nodes.into());
    for key in ["provider", "provider_id"] {
        swarm.insert(key.to_owned(), PROVIDER.into());
    }
    swarm.insert("agent_runtime".to_owned(), text(job, "agent").into());
    swarm
}

/// Returns the running jobs.
///
/// The legacy router forgets terminated swarms, and its clients show and terminate every swarm in this list.
fn swarms(list: &Data) -> Data {
    let jobs = list.get("jobs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    let swarms: BTreeMap<&str, Data> = jobs
        .filter(|job| text(job, "status") != "terminated")
        .map(|job| {
            let mut listed = job.clone();
            copy(&mut listed, "job_id", "swarm_id");
            listed.extend(swarm(job));
            (text(job, "job_id"), listed)
        })
        .collect();
    object(json!({ "request_id": list.get("request_id"), "swarms": swarms }))
}

fn question(mut ask: Data) -> Data {
    copy(&mut ask, "job_id", "swarm_id");
    copy(&mut ask, "approval_id", "call_id");
    ask.insert("available_decisions".to_owned(), json!(DECISIONS));
    ask
}

/// Groups approvals by job and node.
///
/// The legacy router numbers the versions of this list; here, the log position is the version number.
fn questions(list: &Data, seq: u64) -> Data {
    let mut swarms: BTreeMap<String, BTreeMap<String, Vec<Data>>> = BTreeMap::new();
    for ask in list.get("approvals").and_then(Value::as_array).into_iter().flatten() {
        let Some(ask) = ask.as_object() else { continue };
        let node = ask.get("node_id").map(Value::to_string).unwrap_or_default();
        let nodes = swarms.entry(text(ask, "job_id").to_owned()).or_default();
        let mut ask = question(ask.clone());
        ask.insert("approval_status".to_owned(), "pending".into());
        nodes.entry(node).or_default().push(ask);
    }
    let request_id = list.get("request_id");
    object(json!({ "request_id": request_id, "approvals_version": seq, "approvals": swarms }))
}

fn queue(list: &Data) -> Vec<Data> {
    let queued = list.get("queue").and_then(Value::as_array).into_iter().flatten();
    queued
        .filter_map(Value::as_object)
        .map(|queued| {
            object(json!({
                "queue_id": queued.get("injection_id"),
                "request_id": queued.get("request_id"),
                "source_swarm_id": null,
                "target_swarm_id": queued.get("job_id"),
                "selector": "nodes",
                "nodes": [queued.get("node_id")],
                "content": queued.get("title"),
            }))
        })
        .collect()
}

fn copy(data: &mut Data, from: &str, to: &str) {
    if let Some(value) = data.get(from).cloned() {
        data.entry(to).or_insert(value);
    }
}

fn text<'d>(data: &'d Data, key: &str) -> &'d str {
    data.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn object(value: impl Serialize) -> Data {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => Data::new(),
    }
}
