//! Resources, prompts, completion and logging of children that are listed with all they have: whose each is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use switchboard_core::sanitize_description;

use crate::child::{ChildError, ListKind};
use crate::flat_tools::harmless;
use crate::host::{Caller, RpcError};
use crate::pending_catalogues::PATIENCE;
use crate::raw::{Object, raw};
use crate::suite::Suite;

/// The code of JSON-RPC for parameters that do not fit.
const INVALID_PARAMS: i64 = -32602;
/// The code of JSON-RPC for a method that there is not.
const METHOD_NOT_FOUND: i64 = -32601;
/// The code of JSON-RPC for a failure on our side.
const INTERNAL_ERROR: i64 = -32603;

/// Who has what, as it was listed last.
#[derive(Default)]
pub(crate) struct Passthrough {
    owners: Mutex<Owners>,
}

/// The name of the child that has each of the listed things.
#[derive(Default)]
struct Owners {
    is_listed: HashSet<ListKind>,
    by_key: HashMap<(ListKind, String), String>,
}

impl Passthrough {
    /// What the children list, by the order of their names. Of two things with one name the first is listed, and
    /// requests go to its child.
    pub(crate) async fn list(
        &self,
        flat: &[Arc<Suite>],
        what: ListKind,
        caller: &Caller,
    ) -> Vec<Box<RawValue>> {
        let lists = join_all(flat.iter().map(|suite| list_one(suite, what, caller))).await;
        let mut owners = self.owners.lock();
        owners.by_key.retain(|(kind, _), _| *kind != what);
        owners.is_listed.insert(what);
        let mut listed = Vec::new();
        for (suite, items) in flat.iter().zip(lists) {
            for item in items {
                let Some(key) = Object::parse(&item).and_then(|object| object.text(key_of(what))) else {
                    continue;
                };
                // A name that cannot be shown as it is cannot be called either.
                if !sanitize_description(&key).flags.is_empty() {
                    continue;
                }
                let owner = owners.by_key.entry((what, key)).or_insert_with(|| suite.spec.name.clone());
                if *owner == suite.spec.name {
                    listed.push(harmless(&item, key_of(what)));
                }
            }
        }
        listed
    }

    /// Passes a request on to whom it is about. `None`: to nobody here.
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
            let message = format!("{method}: the parameters do not say what it is about");
            return Some(Err(RpcError { code: INVALID_PARAMS, message, data: None }));
        };
        let suite = self.owner(flat, what, &key, caller).await?;
        Some(ask(suite, method, params, caller).await)
    }

    /// Whose something is: as listed; by the templates; or, where only one child has such things at all, that one's,
    /// because not everything that can be read is listed.
    async fn owner<'a>(
        &self,
        flat: &'a [Arc<Suite>],
        what: ListKind,
        key: &str,
        caller: &Caller,
    ) -> Option<&'a Arc<Suite>> {
        let named = |name: &str| flat.iter().find(|suite| suite.spec.name == name);
        for kind in [what, ListKind::ResourceTemplates] {
            if kind == ListKind::ResourceTemplates && what == ListKind::Prompts {
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
        let mut able = flat.iter().filter(|suite| has(suite, what));
        able.next().filter(|_| able.next().is_none())
    }

    /// Lists anew before anything is looked up again.
    pub(crate) fn forget(&self) {
        *self.owners.lock() = Owners::default();
    }
}

impl Owners {
    /// The child whose template fits an address: the one with the longest fixed beginning, then the first by name.
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

async fn list_one(suite: &Arc<Suite>, what: ListKind, caller: &Caller) -> Vec<Box<RawValue>> {
    if suite.check_trust().is_err() {
        return Vec::new();
    }
    suite.listen();
    let Ok(opened) = tokio::time::timeout(PATIENCE, suite.child.open(caller)).await else {
        announce_later(suite, what, caller);
        return Vec::new();
    };
    let listed = match opened {
        Ok(_) if !has(suite, what) => return Vec::new(),
        Ok(_) => suite.child.list(what, caller).await,
        Err(error) => Err(error),
    };
    listed
        .inspect_err(
            |error| tracing::debug!(child = suite.spec.name, %error, ?what, "nothing could be listed"),
        )
        .unwrap_or_default()
}

/// Tells hosts of what a child has once it runs: others are not kept waiting for it.
fn announce_later(suite: &Arc<Suite>, what: ListKind, caller: &Caller) {
    let (suite, caller) = (suite.clone(), Caller { host: caller.host.clone(), ..Caller::default() });
    tokio::spawn(async move {
        if suite.child.open(&caller).await.is_ok() && has(&suite, what) {
            suite.list_changed(what);
        }
    });
}

/// Whether a running child says that it has such things.
fn has(suite: &Suite, what: ListKind) -> bool {
    let capability = match what {
        ListKind::Tools => "tools",
        ListKind::Resources | ListKind::ResourceTemplates => "resources",
        ListKind::Prompts => "prompts",
    };
    suite.child.initialized().is_some_and(|opened| opened.capabilities.get(capability).is_some())
}

async fn ask(
    suite: &Arc<Suite>,
    method: &str,
    params: Option<Box<RawValue>>,
    caller: &Caller,
) -> Result<Box<RawValue>, RpcError> {
    let failed = |message: String| RpcError { code: INTERNAL_ERROR, message, data: None };
    suite.check_trust().map_err(failed)?;
    suite.listen();
    suite.child.request(method, params, caller).await.map_err(|error| match error {
        ChildError::Rpc(error) => error,
        error => failed(error.to_string()),
    })
}

/// Tells every one of these children that logs how much it should say. One that fails to take it is no reason to
/// fail.
pub(crate) async fn set_level(
    running: &[Arc<Suite>],
    params: Option<Box<RawValue>>,
    caller: &Caller,
) -> Result<Box<RawValue>, RpcError> {
    let told = join_all(running.iter().map(|suite| async {
        suite.child.initialized()?.capabilities.get("logging")?;
        Some(ask(suite, "logging/setLevel", params.clone(), caller).await)
    }));
    // Some say that they log, and know no levels.
    let answers = told.await.into_iter().flatten();
    let mut answers =
        answers.filter(|answer| !matches!(answer, Err(error) if error.code == METHOD_NOT_FOUND));
    match answers.next() {
        Some(first) => answers.find(Result::is_ok).unwrap_or(first),
        None => Ok(raw(&serde_json::json!({}))),
    }
}

fn key_of(what: ListKind) -> &'static str {
    match what {
        ListKind::Resources => "uri",
        ListKind::ResourceTemplates => "uriTemplate",
        ListKind::Tools | ListKind::Prompts => "name",
    }
}

/// A text within the parameters.
fn text_of(params: Option<&RawValue>, path: &[&str]) -> Option<String> {
    let value: Value = serde_json::from_str(params?.get()).ok()?;
    path.iter().try_fold(&value, |value, key| value.get(key))?.as_str().map(str::to_owned)
}
