//! One child with all that stands between it and a model: trust, pins, rules, its catalogue, limits.

mod renewal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use switchboard_core::label_inline;
use switchboard_sys::clock::{Clock, ago};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tracing::Instrument;

use crate::arguments::{Call, Question};
use crate::blocking::run_blocking;
use crate::cache::ResultCache;
use crate::call_outcome::{CallOutcome, checked, is_error, told};
use crate::catalogue::{Catalogue, Shelf};
use crate::child::{Child, ChildError, ChildEvent, InitializeResult, ListKind, Listing};
use crate::expose::Exposed;
use crate::host::Caller;
use crate::introspect::{self, Offered};
use crate::metrics::Outcome;
use crate::paths::SuitePaths;
use crate::pins::Pins;
use crate::rate_limit::RateLimiter;
use crate::raw::raw;
use crate::rules::Rules;
use crate::spec::{ChildSpec, Expose};
use crate::suites::SuitesEvent;
use crate::tool::Tool;
use crate::trust::{TrustState, TrustStore};

/// The largest result that is passed on. What is larger would fill a model's context many times over, and every
/// copy of it our memory.
const MAX_RESULT: usize = 32 * 1024 * 1024;

/// The code of JSON-RPC for a method that there is not.
const METHOD_NOT_FOUND: i64 = -32601;

/// What all suites of a workspace share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) paths: Arc<SuitePaths>,
    pub(crate) shelf: Shelf,
    pub(crate) clock: Clock,
    pub(crate) events: broadcast::Sender<SuitesEvent>,
    /// How much of their protocol's log children are to tell, where a client said so: the parameters of its request.
    pub(crate) level: Arc<Mutex<Option<Box<RawValue>>>>,
    /// Goes up when what a flat child lists has changed, so that the list for hosts is made anew.
    pub(crate) changes: Arc<AtomicU64>,
}

/// One child, and what is known and decided about it.
pub(crate) struct Suite {
    /// The child as it was found, which is what its owner trusts.
    pub(crate) spec: Arc<ChildSpec>,
    pub(crate) child: Child,
    pub(crate) rules: Rules,
    exposed: Exposed,
    shared: Shared,
    state: Mutex<State>,
    /// Held while the tools are listed: one listing is enough for all who wait for it.
    listing: tokio::sync::Mutex<()>,
    is_listening: AtomicBool,
    rate_limit: Option<RateLimiter>,
    results: Option<ResultCache>,
}

#[derive(Default)]
struct State {
    is_trusted: bool,
    /// Whether the catalogue's file was looked at.
    is_loaded: bool,
    catalogue: Option<Arc<Catalogue>>,
    /// Tools that are no longer what was approved, with the reason.
    blocked: Arc<BTreeMap<String, String>>,
    /// The run of the child that the catalogue was taken from. Another run may offer something else.
    run: Option<Weak<InitializeResult>>,
    /// The changes that the child had announced before the catalogue was taken.
    changes: u64,
    /// The tools that were used since the catalogue was taken.
    used: BTreeSet<String>,
}

/// What a call of a tool is made of.
pub(crate) enum Given<'a> {
    /// What a suite's tool was given; checked before the child sees it.
    Suite(&'a Call<'a>),
    /// The arguments of a tool that is listed by itself, which are the child's to check.
    Flat(Option<&'a RawValue>),
}

impl Suite {
    /// A suite on a child, which may be running already.
    pub(crate) fn new(
        spec: Arc<ChildSpec>,
        child: Child,
        rules: Rules,
        shared: Shared,
    ) -> (Arc<Self>, Vec<String>) {
        let (exposed, broken) = Exposed::new(rules.allow.as_deref(), &rules.deny);
        let issues = broken.iter().map(|pattern| {
            let pattern = pattern.escape_debug();
            format!(
                "suites.{}.expose: '{pattern}' is no pattern; it only stands for the tool of this name.",
                spec.name
            )
        });
        let issues = issues.collect();
        let suite = Self {
            exposed,
            state: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            is_listening: AtomicBool::new(false),
            rate_limit: rules.rate_limit.map(|(calls, per)| RateLimiter::new(calls, per)),
            results: rules.keep_results.map(ResultCache::new),
            spec,
            child,
            rules,
            shared,
        };
        (Arc::new(suite), issues)
    }

    pub(crate) fn is_flat(&self) -> bool {
        matches!(self.spec.expose, Expose::Flat { .. })
    }

    /// Whether the child may and can be started. The error is a text that says what to do.
    pub(crate) fn check_trust(&self) -> Result<(), String> {
        // What runs was agreed to; what would be started may have been disagreed with a moment ago.
        if self.state.lock().is_trusted && self.child.initialized().is_some() {
            return Ok(());
        }
        let name = &self.spec.name;
        match TrustStore::load(&self.shared.paths).state(&self.spec) {
            TrustState::Trusted => {
                if let Some(reason) = &self.spec.unready {
                    return Err(format!("{name} cannot be started: {reason}."));
                }
                self.state.lock().is_trusted = true;
                Ok(())
            }
            TrustState::New => Err(format!(
                "{name} is not trusted yet: a person has to run `switchboard suite trust {name}`."
            )),
            // The difference is for the person: its new half is text that nobody has reviewed.
            TrustState::Changed { .. } => Err(format!(
                "{name} is not trusted any more, because it changed. If that is meant, a person has to run \
                 `switchboard suite trust {name}`, which shows the change."
            )),
        }
    }

    /// The catalogue as it is known, without starting the child.
    pub(crate) fn cached(&self) -> Option<Arc<Catalogue>> {
        {
            let state = self.state.lock();
            if state.is_loaded {
                return state.catalogue.clone();
            }
        }
        // Not under the lock: there can be thousands of tools to compare.
        let loaded = self.shared.shelf.load(&self.spec).map(|catalogue| {
            let blocked = compare_with_pins(&self.shared.paths, &self.spec.name, &catalogue);
            (Arc::new(catalogue), Arc::new(blocked))
        });
        let mut state = self.state.lock();
        if !state.is_loaded {
            state.is_loaded = true;
            // One that was taken meanwhile is newer.
            if let Some((catalogue, blocked)) = loaded.filter(|_| state.catalogue.is_none()) {
                (state.catalogue, state.blocked) = (Some(catalogue), blocked);
            }
        }
        state.catalogue.clone()
    }

    /// The same, read on a thread that may wait.
    async fn known(self: &Arc<Self>) -> Option<Arc<Catalogue>> {
        if self.state.lock().is_loaded {
            return self.cached();
        }
        let suite = Arc::clone(self);
        tokio::task::spawn_blocking(move || suite.cached()).await.ok().flatten()
    }

    /// The catalogue of the child as it runs now, which is started if need be.
    pub(crate) async fn current(self: &Arc<Self>, caller: &Caller) -> Result<Arc<Catalogue>, ChildError> {
        if let Some(catalogue) = self.of_this_run() {
            return Ok(catalogue);
        }
        self.listen();
        let turn = self.listing.lock().await;
        if let Some(catalogue) = self.of_this_run() {
            return Ok(catalogue);
        }
        self.take(turn, caller).await
    }

    /// Takes a catalogue, one at a time.
    async fn take(
        self: &Arc<Self>,
        _turn: tokio::sync::MutexGuard<'_, ()>,
        caller: &Caller,
    ) -> Result<Arc<Catalogue>, ChildError> {
        let opened = self.child.open(caller).await?;
        let level = self.shared.level.lock().clone();
        if let Some(level) = level.filter(|_| opened.capabilities.get("logging").is_some()) {
            let told = self.child.request("logging/setLevel", Some(level), caller).await;
            let _ = told.inspect_err(|error| tracing::debug!(child = self.spec.name, %error, "no level set"));
        }
        let changes = self.child.tool_changes();
        let listed = match self.child.list_all(ListKind::Tools, caller).await {
            Err(ChildError::Rpc(error)) if error.code == METHOD_NOT_FOUND => Listing::default(),
            listed => listed?,
        };
        let catalogue =
            Arc::new(Catalogue::new(listed, opened.instructions.clone(), self.shared.clock.now()));
        if let Some(note) = catalogue.cut_note(&self.spec.name) {
            tracing::warn!(child = self.spec.name, "{note}");
        }
        let blocked = self.compare_aside(&catalogue).await;
        let before = self.known().await;
        {
            let mut state = self.state.lock();
            state.blocked = blocked;
            state.used.clear();
            state.catalogue = Some(catalogue.clone());
            // A change that was announced meanwhile may not be in it.
            let is_current = self.child.tool_changes() == changes;
            state.run = is_current.then(|| Arc::downgrade(&opened));
            state.changes = changes;
        }
        if self.is_flat() && before.as_ref().is_none_or(|before| !before.lists_the_same(&catalogue)) {
            self.shared.changes.fetch_add(1, Ordering::Relaxed);
            // Who sees the first list sees it whole; only a list that was seen can have changed.
            if before.is_some() {
                let _ = self.shared.events.send(SuitesEvent::ToolsChanged);
            }
        }
        if before.is_some_and(|before| before.is_as_good_as(&catalogue)) {
            return Ok(catalogue);
        }
        let (shelf, spec, kept) = (self.shared.shelf.clone(), self.spec.clone(), catalogue.clone());
        // The file waits for the disk; others who share this thread do not.
        let _ = tokio::task::spawn_blocking(move || shelf.save(&spec, &kept)).await;
        Ok(catalogue)
    }

    /// Lists the tools of the child again, if it still runs. One that was stopped meanwhile is not started for it.
    pub(crate) async fn list_again(self: &Arc<Self>) {
        let turn = self.listing.lock().await;
        if self.child.initialized().is_none() || self.of_this_run().is_some() {
            return;
        }
        if let Err(error) = self.take(turn, &Caller::default()).await {
            tracing::debug!(child = self.spec.name, %error, "the changed tools could not be listed");
        }
    }

    /// The catalogue, if it was taken from the run of the child that is going on.
    fn of_this_run(&self) -> Option<Arc<Catalogue>> {
        let opened = self.child.initialized()?;
        let state = self.state.lock();
        let run = state.run.as_ref().and_then(Weak::upgrade)?;
        Arc::ptr_eq(&run, &opened).then(|| state.catalogue.clone()).flatten()
    }

    /// The catalogue for showing: of the running child, or a kept one of the last day, or else a new one. An older
    /// one is better than none; a note then says how old it is.
    async fn for_showing(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<(Arc<Catalogue>, Option<String>), ChildError> {
        let now = self.shared.clock.now();
        if self.child.initialized().is_none()
            && let Some(catalogue) = self.known().await.filter(|catalogue| !catalogue.is_old(now))
        {
            return Ok((catalogue, None));
        }
        match self.current(caller).await {
            Ok(catalogue) => Ok((catalogue, None)),
            Err(error) => match self.known().await {
                Some(catalogue) => {
                    let note = format!(
                        "(as of {}; {} cannot be asked now: {})",
                        ago(now, catalogue.taken_at),
                        self.spec.name,
                        told(&error)
                    );
                    Ok((catalogue, Some(note)))
                }
                None => Err(error),
            },
        }
    }

    /// The tools that are offered, out of a catalogue.
    pub(crate) fn offered<'a>(&self, catalogue: &'a Catalogue) -> Vec<Offered<'a>> {
        let blocked = self.state.lock().blocked.clone();
        let offered = catalogue.tools.iter().filter(|tool| self.exposed.offers(&tool.name));
        offered.map(|tool| Offered { tool, is_blocked: blocked.contains_key(&tool.name) }).collect()
    }

    /// A tool by its name, if it is offered.
    pub(crate) fn get_offered<'a>(&self, catalogue: &'a Catalogue, name: &str) -> Option<&'a Tool> {
        catalogue.get(name).filter(|tool| self.exposed.offers(&tool.name))
    }

    /// The refusal of a tool that is not offered.
    async fn refuse_unknown(self: &Arc<Self>, subtool: &str, catalogue: &Arc<Catalogue>) -> String {
        let (suite, subtool, catalogue) = (Arc::clone(self), subtool.to_owned(), Arc::clone(catalogue));
        run_blocking(move || {
            let cut = catalogue.cut_note(&suite.spec.name).map(|note| format!("({note})"));
            let offered = suite.offered(&catalogue);
            let names = offered.iter().map(|offered| offered.tool.name.as_str());
            introspect::unknown(&subtool, names, cut.as_deref())
        })
        .await
    }

    /// Answers a question about the tools.
    pub(crate) async fn introspect(
        self: &Arc<Self>,
        question: &Question,
        caller: &Caller,
    ) -> Result<String, String> {
        self.check_trust()?;
        let (mut catalogue, note) = self.for_showing(caller).await.map_err(|error| told(&error))?;
        if let Some(subtool) = &question.subtool
            && catalogue.get(subtool).is_none()
            && let Some(renewed) = self.renew(&catalogue, caller).await
        {
            catalogue = renewed;
        }
        let (suite, question) = (Arc::clone(self), question.clone());
        run_blocking(move || suite.answer(&catalogue, &question, note)).await
    }

    /// Answers a question from a catalogue.
    fn answer(
        &self,
        catalogue: &Catalogue,
        question: &Question,
        note: Option<String>,
    ) -> Result<String, String> {
        let offered = self.offered(catalogue);
        let (name, count) = (&self.spec.name, catalogue.tools.len());
        // An empty answer would not say whose doing it is.
        let cut = catalogue.cut_note(name).map(|note| format!("({note})"));
        let note = match (note, cut) {
            (Some(note), Some(cut)) => Some(format!("{note} {cut}")),
            (note, cut) => note.or(cut),
        };
        let note = note.or_else(|| match count {
            0 => Some(format!("({name} has no tools)")),
            _ if offered.is_empty() => {
                Some(format!("(suites.{name}.expose leaves none of the {count} tools of {name})"))
            }
            _ => None,
        });
        introspect::introspect(&offered, question, self.rules.style, note.as_deref())
    }

    /// The tools for a search over all suites; nothing, and why, when they cannot be had.
    pub(crate) async fn for_search(self: &Arc<Self>, caller: &Caller) -> Result<Arc<Catalogue>, String> {
        self.check_trust()?;
        self.for_showing(caller).await.map(|(catalogue, _)| catalogue).map_err(|error| told(&error))
    }

    /// Uses a tool.
    pub(crate) async fn call(
        self: &Arc<Self>,
        subtool: &str,
        given: Given<'_>,
        caller: &Caller,
    ) -> CallOutcome {
        let span = tracing::info_span!("suite_call", suite = self.spec.name, tool = subtool);
        self.try_call(subtool, given, caller).instrument(span).await.unwrap_or_else(|refused| refused)
    }

    async fn try_call(
        self: &Arc<Self>,
        subtool: &str,
        given: Given<'_>,
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
        let arguments = match given {
            Given::Suite(call) => checked(tool, call).map_err(|text| CallOutcome::refused(&text, true))?,
            Given::Flat(arguments) => {
                arguments.map_or_else(|| raw(&serde_json::json!({})), ToOwned::to_owned)
            }
        };
        if let Some(wait) = self.rate_limit.as_ref().and_then(|limit| limit.take().err()) {
            let text = format!(
                "{} takes no more calls for {} ms (its rate limit). Do something else first, or try again then.",
                self.spec.name,
                wait.as_millis().max(1)
            );
            return Err(CallOutcome::refused(&text, true));
        }
        // A call that goes on is not the one whose result was kept.
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
                "The result of {subtool} has {} bytes, and {MAX_RESULT} are passed on at most. Ask it for less.",
                result.get().len()
            );
            return Err(CallOutcome { outcome: Outcome::Error, ..CallOutcome::refused(&text, true) });
        }
        let outcome = if is_error(&result) { Outcome::Failed } else { Outcome::Ok };
        if let (Some(results), Some(key), Outcome::Ok) = (results, key, outcome) {
            results.keep(key, &result);
        }
        Ok(CallOutcome { result: Ok(result), outcome, is_known: true })
    }

    /// Whether a tool is still what was approved. A blocked one is compared anew, since that may have been
    /// approved a moment ago, by another process.
    async fn check_pin(&self, tool: &Tool, catalogue: &Arc<Catalogue>) -> Result<(), String> {
        if !self.state.lock().blocked.contains_key(&tool.name) {
            return Ok(());
        }
        let blocked = self.compare_aside(catalogue).await;
        let reason = blocked.get(&tool.name).cloned();
        self.state.lock().blocked = blocked;
        let Some(reason) = reason else { return Ok(()) };
        // The tool's new words are not for the model: a person has to review them first.
        let name = &self.spec.name;
        Err(format!(
            "{} of {name} is blocked: {reason}. A person sees the change with `switchboard suite pins list {name}` and \
             allows it with `switchboard suite pins approve {name}`.",
            label_inline(&tool.name)
        ))
    }

    /// Compares the tools with the pins, on a thread that may wait: there can be thousands of tools, and the pins are in a
    /// file with a lock.
    async fn compare_aside(&self, catalogue: &Arc<Catalogue>) -> Arc<BTreeMap<String, String>> {
        let (paths, name, kept) = (self.shared.paths.clone(), self.spec.name.clone(), catalogue.clone());
        let compared = tokio::task::spawn_blocking(move || compare_with_pins(&paths, &name, &kept)).await;
        let failed = |error: &dyn std::fmt::Display| {
            let why = format!("the pins of {} cannot be compared: {error}", self.spec.name);
            catalogue.tools.iter().map(|tool| (tool.name.clone(), why.clone())).collect()
        };
        Arc::new(compared.unwrap_or_else(|error| failed(&error)))
    }

    /// Remembers a tool that appeared after the child was first used, because it is used now. Once a run is enough.
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

    /// Takes over what another suite on the same child knows.
    pub(crate) fn inherit(self: &Arc<Self>, other: &Self) {
        let other = other.state.lock();
        *self.state.lock() = State {
            is_trusted: false,
            is_loaded: other.is_loaded,
            catalogue: other.catalogue.clone(),
            blocked: other.blocked.clone(),
            run: other.run.clone(),
            changes: other.changes,
            used: BTreeSet::new(),
        };
        drop(other);
        if self.child.initialized().is_some() {
            self.listen();
        }
    }

    /// Looks again whether the child is trusted, at its next use.
    pub(crate) fn forget_trust(&self) {
        self.state.lock().is_trusted = false;
    }

    /// Begins to hear what the child says of itself, once.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut events, suite) = (self.child.events(), Arc::downgrade(self));
        tokio::spawn(async move {
            loop {
                let event = events.recv().await;
                let Some(suite) = suite.upgrade() else { return };
                match event {
                    Ok(event) => suite.heard(event).await,
                    // Whatever was missed, the list may have changed.
                    Err(RecvError::Lagged(_)) => suite.heard(ChildEvent::ListChanged(ListKind::Tools)).await,
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }

    async fn heard(self: &Arc<Self>, event: ChildEvent) {
        let news = match event {
            ChildEvent::ListChanged(ListKind::Tools) => {
                self.state.lock().run = None;
                self.list_again().await;
                return;
            }
            ChildEvent::ListChanged(what) => return self.list_changed(what),
            ChildEvent::ResourceUpdated(params) => SuitesEvent::ResourceUpdated(params),
            ChildEvent::Notification { method, params, to } => {
                SuitesEvent::Notification { method, params, to }
            }
            ChildEvent::Stopped { .. } => return,
        };
        // A host sees nothing of a suite's lists, so that their changes are no news for it.
        if self.is_flat() || matches!(news, SuitesEvent::Notification { .. }) {
            let _ = self.shared.events.send(news);
        }
    }

    /// Makes known that what the child lists is no longer what it was.
    pub(crate) fn list_changed(&self, what: ListKind) {
        let news = match what {
            ListKind::Tools => SuitesEvent::ToolsChanged,
            ListKind::Resources | ListKind::ResourceTemplates => SuitesEvent::ResourcesChanged,
            ListKind::Prompts => SuitesEvent::PromptsChanged,
        };
        if self.is_flat() {
            let _ = self.shared.events.send(news);
        }
    }
}

/// The tools that are no longer what was approved, with the reason. Unreadable pins block every tool: what was
/// approved is unknown then.
fn compare_with_pins(paths: &SuitePaths, child: &str, catalogue: &Catalogue) -> BTreeMap<String, String> {
    let pins = Pins::load(paths, child);
    match pins.and_then(|mut pins| pins.check(&catalogue.raws())) {
        Ok(changed) => {
            let why = || "it is no longer the tool that was approved".to_owned();
            changed.into_iter().map(|tool| (tool, why())).collect()
        }
        Err(error) => {
            let why = format!("the pins of {child} cannot be read: {error}");
            catalogue.tools.iter().map(|tool| (tool.name.clone(), why.clone())).collect()
        }
    }
}
