//! Pass-through of resources, prompts, completion and logging for flat children.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use switchboard_core::json::{RawObject, to_raw};
use switchboard_core::sanitize_description;

use crate::child::{ChildError, ListKind};
use crate::flat_tools::sanitize_item;
use crate::host::{Caller, RpcError};
use crate::pending_catalogues::LIST_TIMEOUT;
use crate::suite::Suite;

/// JSON-RPC error code for invalid parameters.
const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC error code for an unknown method.
const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC error code for an internal error.
const INTERNAL_ERROR: i64 = -32603;

/// Routing table that maps each resource or prompt to the child that owns it.
#[derive(Default)]
pub(crate) struct Passthrough {
    owners: Mutex<Owners>,
}

/// Owning child of each listed resource, template or prompt.
#[derive(Default)]
struct Owners {
    is_listed: HashSet<ListKind>,
    by_key: HashMap<(ListKind, String), String>,
}

impl Passthrough {
    /// Lists the items of all flat children, sorted by child name.
    ///
    /// If two items have the same key, only the first is listed, and its child receives the requests.
    pub(crate) async fn list(
        &self,
        flat: &[Arc<Suite>],
        list_kind: ListKind,
        caller: &Caller,
    ) -> Vec<Box<RawValue>> {
        let lists = join_all(flat.iter().map(|suite| list_one(suite, list_kind, caller))).await;
        let mut owners = self.owners.lock();
        owners.by_key.retain(|(kind, _), _| *kind != list_kind);
        owners.is_listed.insert(list_kind);
        let mut listed = Vec::new();
        for (suite, items) in flat.iter().zip(lists) {
            for item in items {
                let Some(key) = RawObject::parse(&item).and_then(|object| object.text(key_of(list_kind)))
                else {
                    continue;
                };
                // Skip an item whose key contains hidden text: the key could not be used in a request either.
                if !sanitize_description(&key).flags.is_empty() {
                    continue;
                }
                let owner = owners.by_key.entry((list_kind, key)).or_insert_with(|| suite.spec.name.clone());
                if *owner == suite.spec.name {
                    listed.push(sanitize_item(&item, key_of(list_kind)));
                }
            }
        }
        listed
    }

    /// Forwards a request to the child that owns the requested item. Returns `None` if no child owns it.
    pub(crate) async fn request(
        &self,
        flat: &[Arc<Suite>],
        method: &str,
        params: Option<Box<RawValue>>,
        caller: &Caller,
    ) -> Option<Result<Box<RawValue>, RpcError>> {
        if flat.is_empty() {
            return None;
        }
        let about = match method {
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                text_of(params.as_deref(), &["uri"]).map(|uri| (ListKind::Resources, uri))
            }
            "prompts/get" => text_of(params.as_deref(), &["name"]).map(|name| (ListKind::Prompts, name)),
            "completion/complete" => text_of(params.as_deref(), &["ref", "name"])
                .map(|name| (ListKind::Prompts, name))
                .or_else(|| {
                    text_of(params.as_deref(), &["ref", "uri"]).map(|uri| (ListKind::ResourceTemplates, uri))
                }),
            _ => return None,
        };
        let Some((what, key)) = about else {
            let message = format!("{method}: the parameters name no tool, prompt or resource");
            return Some(Err(RpcError { code: INVALID_PARAMS, message, data: None }));
        };
        let suite = self.owner(flat, what, &key, caller).await?;
        Some(forward(suite, method, params, caller).await)
    }

    /// Finds the owning child: by the key of a listed item, else by URI template.
    ///
    /// If neither matches, the only child with the capability is chosen, because a child need not list everything that
    /// it can read.
    async fn owner<'a>(
        &self,
        flat: &'a [Arc<Suite>],
        list_kind: ListKind,
        key: &str,
        caller: &Caller,
    ) -> Option<&'a Arc<Suite>> {
        let named = |name: &str| flat.iter().find(|suite| suite.spec.name == name);
        for kind in [list_kind, ListKind::ResourceTemplates] {
            if kind == ListKind::ResourceTemplates && list_kind == ListKind::Prompts {
                continue;
            }
            if !self.owners.lock().is_listed.contains(&kind) {
                self.list(flat, kind, caller).await;
            }
            let owners = self.owners.lock();
            if let Some(owner) = owners.by_key.get(&(kind, key.to_owned())) {
                return named(owner);
            }
            if kind == ListKind::ResourceTemplates
                && let Some(owner) = owners.by_template(key)
            {
                return named(&owner);
            }
        }
        let mut able = flat.iter().filter(|suite| has(suite, list_kind));
        able.next().filter(|_| able.next().is_none())
    }

    /// Clears the routing table, so that the next lookup lists the items again.
    pub(crate) fn clear(&self) {
        *self.owners.lock() = Owners::default();
    }
}

impl Owners {
    /// Returns the child whose URI template matches. Prefers the longest fixed prefix, then the first child by name.
    fn by_template(&self, uri: &str) -> Option<String> {
        let templates = self.by_key.iter().filter(|((kind, _), _)| *kind == ListKind::ResourceTemplates);
        let fitting = templates.filter_map(|((_, template), owner)| {
            let (start, _) = template.split_once('{')?;
            let end = template.rsplit_once('}').map_or("", |(_, end)| end);
            let fits = uri.len() >= start.len() + end.len() && uri.starts_with(start) && uri.ends_with(end);
            fits.then_some((start.len(), owner))
        });
        fitting.max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1))).map(|(_, owner)| owner.clone())
    }
}

async fn list_one(suite: &Arc<Suite>, kind: ListKind, caller: &Caller) -> Vec<Box<RawValue>> {
    if suite.check_trust().is_err() {
        return Vec::new();
    }
    suite.subscribe();
    let Ok(opened) = tokio::time::timeout(LIST_TIMEOUT, suite.child.open(caller)).await else {
        announce_later(suite, kind, caller);
        return Vec::new();
    };
    let listed = match opened {
        Ok(_) if !has(suite, kind) => return Vec::new(),
        Ok(_) => suite.child.list(kind, caller).await,
        Err(error) => Err(error),
    };
    listed
        .inspect_err(|error| tracing::debug!(child = suite.spec.name, %error, ?kind, "nothing can be listed"))
        .unwrap_or_default()
}

/// Announces a slow child's items to hosts as soon as the child runs.
///
/// A listing therefore does not have to wait for the child.
fn announce_later(suite: &Arc<Suite>, kind: ListKind, caller: &Caller) {
    let (suite, caller) = (suite.clone(), Caller { host: caller.host.clone(), ..Caller::default() });
    tokio::spawn(async move {
        if suite.child.open(&caller).await.is_ok() && has(&suite, kind) {
            suite.list_changed(kind);
        }
    });
}

/// Returns true if the child is running and declares the capability.
fn has(suite: &Suite, kind: ListKind) -> bool {
    let capability = match kind {
        ListKind::Tools => "tools",
        ListKind::Resources | ListKind::ResourceTemplates => "resources",
        ListKind::Prompts => "prompts",
    };
    suite.child.initialized().is_some_and(|opened| opened.capabilities.get(capability).is_some())
}

async fn forward(
    suite: &Arc<Suite>,
    method: &str,
    params: Option<Box<RawValue>>,
    caller: &Caller,
) -> Result<Box<RawValue>, RpcError> {
    let failed = |message: String| RpcError { code: INTERNAL_ERROR, message, data: None };
    suite.check_trust().map_err(failed)?;
    suite.subscribe();
    suite.child.request(method, params, caller).await.map_err(|error| match error {
        ChildError::Rpc(error) => error,
        error => failed(error.to_string()),
    })
}

/// Sets the log level of every running child that declares logging.
///
/// Children that do not implement levels are ignored. An error is returned only if no child accepts the level.
pub(crate) async fn set_level(
    running: &[Arc<Suite>],
    params: Option<Box<RawValue>>,
    caller: &Caller,
) -> Result<Box<RawValue>, RpcError> {
    let responses = join_all(running.iter().map(|suite| async {
        suite.child.initialized()?.capabilities.get("logging")?;
        Some(forward(suite, "logging/setLevel", params.clone(), caller).await)
    }));
    // Ignore "method not found": some servers declare logging but do not implement levels.
    let answers = responses.await.into_iter().flatten();
    let mut answers =
        answers.filter(|answer| !matches!(answer, Err(error) if error.code == METHOD_NOT_FOUND));
    match answers.next() {
        Some(first) => answers.find(Result::is_ok).unwrap_or(first),
        None => Ok(to_raw(&serde_json::json!({}))),
    }
}

fn key_of(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Resources => "uri",
        ListKind::ResourceTemplates => "uriTemplate",
        ListKind::Tools | ListKind::Prompts => "name",
    }
}

/// Returns the string at a path inside the parameters.
fn text_of(params: Option<&RawValue>, path: &[&str]) -> Option<String> {
    let value: Value = serde_json::from_str(params?.get()).ok()?;
    path.iter().try_fold(&value, |value, key| value.get(key))?.as_str().map(str::to_owned)
}
