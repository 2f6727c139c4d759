//! Calls of a suite's tools: limits, pins, cache and the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use switchboard_core::json::to_raw;
use switchboard_core::label_inline;
use tracing::Instrument;

use super::Suite;
use crate::arguments::Call;
use crate::cache::ResultCache;
use crate::call_outcome::{CallOutcome, check_arguments, is_error};
use crate::catalogue::Catalogue;
use crate::host::Caller;
use crate::metrics::Outcome;
use crate::paths::SuitePaths;
use crate::pins::Pins;
use crate::tool::Tool;

/// Maximum size of a result that is passed through, in bytes.
///
/// A larger result would exceed a model's context many times over, and each copy takes memory.
const MAX_RESULT: usize = 32 * 1024 * 1024;

/// JSON-RPC error code for an unknown method.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// Arguments of a tool call.
pub(crate) enum CallArguments<'a> {
    /// Arguments of a suite's tool, which are validated before the child receives them.
    Suite(&'a Call<'a>),
    /// Arguments of a flat tool, which the child validates.
    Flat(Option<&'a RawValue>),
}

impl Suite {
    /// Calls a tool of the child, after all checks.
    pub(crate) async fn call(
        self: &Arc<Self>,
        subtool: &str,
        call_arguments: CallArguments<'_>,
        caller: &Caller,
    ) -> CallOutcome {
        let span = tracing::info_span!("suite_call", suite = self.spec.name, tool = subtool);
        self.try_call(subtool, call_arguments, caller)
            .instrument(span)
            .await
            .unwrap_or_else(|refused| refused)
    }

    async fn try_call(
        self: &Arc<Self>,
        subtool: &str,
        call_arguments: CallArguments<'_>,
        caller: &Caller,
    ) -> Result<CallOutcome, CallOutcome> {
        self.check_trust().map_err(|text| CallOutcome::refused(&text, false))?;
        let mut catalogue = self.current(caller).await.map_err(|error| CallOutcome::failed(error, false))?;
        if catalogue.get(subtool).is_none()
            && let Some(renewed) = self.renew(&catalogue, caller).await
        {
            catalogue = renewed;
        }
        let Some(tool) = self.get_offered(&catalogue, subtool) else {
            return Err(CallOutcome::refused(&self.refuse_unknown(subtool, &catalogue).await, false));
        };
        self.check_pin(tool, &catalogue).await.map_err(|text| CallOutcome::refused(&text, true))?;
        self.pin_first_use(&tool.name, &catalogue).await;
        let arguments = match call_arguments {
            CallArguments::Suite(call) => {
                check_arguments(tool, call).map_err(|text| CallOutcome::refused(&text, true))?
            }
            CallArguments::Flat(arguments) => {
                arguments.map_or_else(|| to_raw(&serde_json::json!({})), ToOwned::to_owned)
            }
        };
        if let Some(wait) = self.rate_limit.as_ref().and_then(|limit| limit.acquire().err()) {
            let text = format!(
                "{} accepts no calls for {} ms (its rate limit). Try again then.",
                self.spec.name,
                wait.as_millis().max(1)
            );
            return Err(CallOutcome::refused(&text, true));
        }
        // A resumed call carries input of the client, so it must not be answered from the cache.
        let is_first = caller.request_state.is_none() && caller.input_responses.is_none();
        let results = self.results.as_ref().filter(|_| tool.hints.is_read_only() && is_first);
        let key = results
            .and_then(|_| serde_json::from_str(arguments.get()).ok())
            .map(|value| ResultCache::key(subtool, &value));
        if let Some(known) = results.zip(key.as_ref()).and_then(|(results, key)| results.get(key)) {
            return Ok(CallOutcome { result: Ok(known), outcome: Outcome::Cached, is_known: true });
        }
        let params = caller.call_params(subtool, &arguments);
        let result = self.child.request("tools/call", params, caller).await;
        if let Some(results) = self.results.as_ref().filter(|_| !tool.hints.is_read_only()) {
            results.clear();
        }
        let result = result.map_err(|error| CallOutcome::failed(error, true))?;
        if result.get().len() > MAX_RESULT {
            let text = format!(
                "The result of {subtool} has {} bytes, more than the limit of {MAX_RESULT}. Ask it for less.",
                result.get().len()
            );
            return Err(CallOutcome { outcome: Outcome::Error, ..CallOutcome::refused(&text, true) });
        }
        let outcome = if is_error(&result) { Outcome::Failed } else { Outcome::Ok };
        if let (Some(results), Some(key), Outcome::Ok) = (results, key, outcome) {
            results.insert(key, &result);
        }
        Ok(CallOutcome { result: Ok(result), outcome, is_known: true })
    }

    /// Checks that a tool still matches its approved pin.
    ///
    /// A blocked tool is compared again, because another process may just have approved the tool.
    async fn check_pin(&self, tool: &Tool, catalogue: &Arc<Catalogue>) -> Result<(), String> {
        if !self.state.lock().blocked.contains_key(&tool.name) {
            return Ok(());
        }
        let blocked = self.compare_in_background(catalogue).await;
        let reason = blocked.get(&tool.name).cloned();
        self.state.lock().blocked = blocked;
        let Some(reason) = reason else { return Ok(()) };
        // Do not show the tool's new text to the model, because a person has to review the text first.
        let name = &self.spec.name;
        Err(format!(
            "{} of {name} is blocked: {reason}. A person sees the change with `switchboard suite pins list {name}` and \
             allows it with `switchboard suite pins approve {name}`.",
            label_inline(&tool.name)
        ))
    }

    /// Compares the tools with the pins on a blocking thread.
    ///
    /// There may be thousands of tools, and the pin file has to be locked.
    pub(super) async fn compare_in_background(
        &self,
        catalogue: &Arc<Catalogue>,
    ) -> Arc<BTreeMap<String, String>> {
        let (paths, name, kept) = (self.shared.paths.clone(), self.spec.name.clone(), catalogue.clone());
        let compared = tokio::task::spawn_blocking(move || compare_with_pins(&paths, &name, &kept)).await;
        let failed = |error: &dyn std::fmt::Display| {
            let reason = format!("the pins of {} cannot be compared: {error}", self.spec.name);
            catalogue.tools.iter().map(|tool| (tool.name.clone(), reason.clone())).collect()
        };
        Arc::new(compared.unwrap_or_else(|error| failed(&error)))
    }

    /// Pins a tool at its first use, if the tool appeared after the child's first listing. Done once per catalogue.
    async fn pin_first_use(&self, tool: &str, catalogue: &Arc<Catalogue>) {
        if !self.state.lock().used.insert(tool.to_owned()) {
            return;
        }
        let (paths, name, kept) = (self.shared.paths.clone(), self.spec.name.clone(), catalogue.clone());
        let used = tool.to_owned();
        let pinned = tokio::task::spawn_blocking(move || {
            let mut pins = Pins::load(&paths, &name)?;
            pins.check(&kept.raws())?;
            pins.pin_new(&used)
        });
        let problem = match pinned.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(child = self.spec.name, tool, problem, "the tool is not pinned");
    }
}

/// Returns the tools that no longer match their pins, each with the reason.
///
/// If the pins cannot be read, every tool is blocked, because it is unknown which tools were approved.
pub(super) fn compare_with_pins(
    paths: &SuitePaths,
    child: &str,
    catalogue: &Catalogue,
) -> BTreeMap<String, String> {
    let pins = Pins::load(paths, child);
    match pins.and_then(|mut pins| pins.check(&catalogue.raws())) {
        Ok(changed) => {
            let reason = || "it differs from the tool that was approved".to_owned();
            changed.into_iter().map(|tool| (tool, reason())).collect()
        }
        Err(error) => {
            let reason = format!("the pins of {child} cannot be read: {error}");
            catalogue.tools.iter().map(|tool| (tool.name.clone(), reason.clone())).collect()
        }
    }
}
