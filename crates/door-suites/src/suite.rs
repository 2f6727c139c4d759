//! One child behind its gates: trust, pins, filter, rate limit, cache and catalogue.

mod call;
mod renewal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use switchboard_http::RateLimiter;
use switchboard_sys::clock::{Clock, format_ago};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

pub(crate) use self::call::CallArguments;
use self::call::{METHOD_NOT_FOUND, compare_with_pins};
use crate::arguments::IntrospectQuery;
use crate::blocking::run_blocking;
use crate::cache::ResultCache;
use crate::call_outcome::error_text;
use crate::catalogue::{Catalogue, CatalogueStore};
use crate::child::{Child, ChildError, ChildEvent, InitializeResult, ListKind, Listing};
use crate::expose::ToolFilter;
use crate::host::Caller;
use crate::introspect::{self, OfferedTool};
use crate::paths::SuitePaths;
use crate::rules::Rules;
use crate::spec::{ChildSpec, Expose};
use crate::suites::SuitesEvent;
use crate::tool::Tool;
use crate::trust::{TrustState, TrustStore};

/// State shared by all suites of a workspace.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) paths: Arc<SuitePaths>,
    pub(crate) shelf: CatalogueStore,
    pub(crate) clock: Clock,
    pub(crate) events: broadcast::Sender<SuitesEvent>,
    /// Parameters of a client's `logging/setLevel` request, for children that start later; `None` if no level was set.
    pub(crate) level: Arc<Mutex<Option<Box<RawValue>>>>,
    /// Change counter of flat children's tools; a change invalidates the tool index.
    pub(crate) changes: Arc<AtomicU64>,
}

/// One child, with its settings, trust, pins and catalogue.
pub(crate) struct Suite {
    /// The child's spec as discovered. The owner's trust refers to this spec.
    pub(crate) spec: Arc<ChildSpec>,
    pub(crate) child: Child,
    pub(crate) rules: Rules,
    exposed: ToolFilter,
    shared: Shared,
    state: Mutex<State>,
    /// Lock held while tools are listed, so that concurrent callers share one listing.
    listing: tokio::sync::Mutex<()>,
    is_subscribed: AtomicBool,
    rate_limit: Option<RateLimiter>,
    results: Option<ResultCache>,
}

#[derive(Default)]
struct State {
    is_trusted: bool,
    /// True if loading the stored catalogue was attempted.
    is_loaded: bool,
    catalogue: Option<Arc<Catalogue>>,
    /// Tools that no longer match their approved pin, with the reason.
    blocked: Arc<BTreeMap<String, String>>,
    /// Handshake result of the run from which the catalogue was fetched. Another run of the child may offer other
    /// tools.
    run: Option<Weak<InitializeResult>>,
    /// Number of tool-list changes that the child had announced before the catalogue was fetched.
    changes: u64,
    /// Names of the tools used since the catalogue was fetched.
    used: BTreeSet<String>,
}

impl Suite {
    /// Creates a suite for a child, which may already be running. Also returns the invalid patterns of the tool filter.
    pub(crate) fn new(
        spec: Arc<ChildSpec>,
        child: Child,
        rules: Rules,
        shared: Shared,
    ) -> (Arc<Self>, Vec<String>) {
        let (exposed, broken) = ToolFilter::new(rules.allow.as_deref(), &rules.deny);
        let issues = broken.iter().map(|pattern| {
            let pattern = pattern.escape_debug();
            format!(
                "suites.{}.expose: '{pattern}' is not a valid pattern; it matches only the tool with exactly this name.",
                spec.name
            )
        });
        let issues = issues.collect();
        let suite = Self {
            exposed,
            state: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            is_subscribed: AtomicBool::new(false),
            rate_limit: rules.rate_limit.map(|(calls, per)| RateLimiter::new(calls, per / calls.max(1))),
            results: rules.cache_ttl.map(ResultCache::new),
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

    /// Checks that the child is trusted and can be started. The error is a message that names the next step.
    pub(crate) fn check_trust(&self) -> Result<(), String> {
        // A running child was trusted when it started. Before a start, check again, because trust may have been
        // revoked.
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
            TrustState::New => {
                Err(format!("{name} is not trusted yet: a person must run `switchboard suite trust {name}`."))
            }
            // Omit the diff, because its new half is unreviewed text that must not reach the model.
            TrustState::Changed { .. } => Err(format!(
                "{name} is no longer trusted, because it changed. If the change is intended, a person must run `switchboard suite trust {name}`, which shows the change."
            )),
        }
    }

    /// Returns the known catalogue, from memory or from the on-disk cache, without starting the child.
    pub(crate) fn cached(&self) -> Option<Arc<Catalogue>> {
        {
            let state = self.state.lock();
            if state.is_loaded {
                return state.catalogue.clone();
            }
        }
        // Load without holding the lock, since thousands of tools may have to be compared.
        let loaded = self.shared.shelf.load(&self.spec).map(|catalogue| {
            let blocked = compare_with_pins(&self.shared.paths, &self.spec.name, &catalogue);
            (Arc::new(catalogue), Arc::new(blocked))
        });
        let mut state = self.state.lock();
        if !state.is_loaded {
            state.is_loaded = true;
            // Keep a catalogue that was fetched in the meantime, because it is newer.
            if let Some((catalogue, blocked)) = loaded.filter(|_| state.catalogue.is_none()) {
                (state.catalogue, state.blocked) = (Some(catalogue), blocked);
            }
        }
        state.catalogue.clone()
    }

    /// Returns the same catalogue as [`cached`](Self::cached), but loads it on a blocking thread.
    async fn load_cached(self: &Arc<Self>) -> Option<Arc<Catalogue>> {
        if self.state.lock().is_loaded {
            return self.cached();
        }
        let suite = Arc::clone(self);
        tokio::task::spawn_blocking(move || suite.cached()).await.ok().flatten()
    }

    /// Returns the catalogue of the running child; starts the child if needed.
    pub(crate) async fn current(self: &Arc<Self>, caller: &Caller) -> Result<Arc<Catalogue>, ChildError> {
        if let Some(catalogue) = self.live_catalogue() {
            return Ok(catalogue);
        }
        self.subscribe();
        let turn = self.listing.lock().await;
        if let Some(catalogue) = self.live_catalogue() {
            return Ok(catalogue);
        }
        self.fetch_catalogue(turn, caller).await
    }

    /// Fetches a catalogue from the child. Only one fetch runs at a time.
    async fn fetch_catalogue(
        self: &Arc<Self>,
        _turn: tokio::sync::MutexGuard<'_, ()>,
        caller: &Caller,
    ) -> Result<Arc<Catalogue>, ChildError> {
        let opened = self.child.open(caller).await?;
        let level = self.shared.level.lock().clone();
        if let Some(level) = level.filter(|_| opened.capabilities.get("logging").is_some()) {
            let level_set = self.child.request("logging/setLevel", Some(level), caller).await;
            let _ = level_set.inspect_err(
                |error| tracing::debug!(child = self.spec.name, %error, "no logging level is set"),
            );
        }
        let changes = self.child.tool_changes();
        let listed = match self.child.list_all(ListKind::Tools, caller).await {
            Err(ChildError::Rpc(error)) if error.code == METHOD_NOT_FOUND => Listing::default(),
            listed => listed?,
        };
        let catalogue =
            Arc::new(Catalogue::new(listed, opened.instructions.clone(), self.shared.clock.now()));
        if let Some(note) = catalogue.truncation_note(&self.spec.name) {
            tracing::warn!(child = self.spec.name, "{note}");
        }
        let blocked = self.compare_in_background(&catalogue).await;
        let before = self.load_cached().await;
        {
            let mut state = self.state.lock();
            state.blocked = blocked;
            state.used.clear();
            state.catalogue = Some(catalogue.clone());
            // If a change was announced during the fetch, the catalogue may lack the change.
            let is_current = self.child.tool_changes() == changes;
            state.run = is_current.then(|| Arc::downgrade(&opened));
            state.changes = changes;
        }
        if self.is_flat() && before.as_ref().is_none_or(|before| !before.has_same_tools(&catalogue)) {
            self.shared.changes.fetch_add(1, Ordering::Relaxed);
            // Announce a change only if hosts may have seen an earlier list.
            if before.is_some() {
                let _ = self.shared.events.send(SuitesEvent::ToolsChanged);
            }
        }
        if before.is_some_and(|before| before.is_equivalent_to(&catalogue)) {
            return Ok(catalogue);
        }
        let (shelf, spec, kept) = (self.shared.shelf.clone(), self.spec.clone(), catalogue.clone());
        // Write to disk on a blocking thread, so that other tasks are not blocked.
        let _ = tokio::task::spawn_blocking(move || shelf.save(&spec, &kept)).await;
        Ok(catalogue)
    }

    /// Lists the child's tools again if the child is still running. Does not start a stopped child.
    pub(crate) async fn relist_tools(self: &Arc<Self>) {
        let turn = self.listing.lock().await;
        if self.child.initialized().is_none() || self.live_catalogue().is_some() {
            return;
        }
        if let Err(error) = self.fetch_catalogue(turn, &Caller::default()).await {
            tracing::debug!(child = self.spec.name, %error, "cannot list the changed tools");
        }
    }

    /// Returns the catalogue if it was fetched from the current run of the child.
    fn live_catalogue(&self) -> Option<Arc<Catalogue>> {
        let opened = self.child.initialized()?;
        let state = self.state.lock();
        let run = state.run.as_ref().and_then(Weak::upgrade)?;
        Arc::ptr_eq(&run, &opened).then(|| state.catalogue.clone()).flatten()
    }

    /// Returns a catalogue for display, with an optional note.
    ///
    /// Tries, in this order: the catalogue of the running child, one stored within the last day, and a new one fetched
    /// from the child. If all fail, an older catalogue is returned with a note of its age.
    async fn catalogue_for_display(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<(Arc<Catalogue>, Option<String>), ChildError> {
        let now = self.shared.clock.now();
        if self.child.initialized().is_none()
            && let Some(catalogue) = self.load_cached().await.filter(|catalogue| !catalogue.is_stale(now))
        {
            return Ok((catalogue, None));
        }
        match self.current(caller).await {
            Ok(catalogue) => Ok((catalogue, None)),
            Err(error) => match self.load_cached().await {
                Some(catalogue) => {
                    let note = format!(
                        "(as of {}; {} is unavailable now: {})",
                        format_ago(now, catalogue.taken_at),
                        self.spec.name,
                        error_text(&error)
                    );
                    Ok((catalogue, Some(note)))
                }
                None => Err(error),
            },
        }
    }

    /// Returns the tools of a catalogue that the filter offers.
    pub(crate) fn offered<'a>(&self, catalogue: &'a Catalogue) -> Vec<OfferedTool<'a>> {
        let blocked = self.state.lock().blocked.clone();
        let offered = catalogue.tools.iter().filter(|tool| self.exposed.offers(&tool.name));
        offered.map(|tool| OfferedTool { tool, is_blocked: blocked.contains_key(&tool.name) }).collect()
    }

    /// Returns a tool by name if the filter offers the tool.
    pub(crate) fn get_offered<'a>(&self, catalogue: &'a Catalogue, name: &str) -> Option<&'a Tool> {
        catalogue.get(name).filter(|tool| self.exposed.offers(&tool.name))
    }

    /// Renders the refusal of a call to a tool that is not offered.
    async fn refuse_unknown(self: &Arc<Self>, subtool: &str, catalogue: &Arc<Catalogue>) -> String {
        let (suite, subtool, catalogue) = (Arc::clone(self), subtool.to_owned(), Arc::clone(catalogue));
        run_blocking(move || {
            let cut = catalogue.truncation_note(&suite.spec.name).map(|note| format!("({note})"));
            let offered = suite.offered(&catalogue);
            let names = offered.iter().map(|offered| offered.tool.name.as_str());
            introspect::refuse_unknown_tool(&subtool, names, cut.as_deref())
        })
        .await
    }

    /// Answers an introspection request from the current or a cached catalogue.
    pub(crate) async fn introspect(
        self: &Arc<Self>,
        question: &IntrospectQuery,
        caller: &Caller,
    ) -> Result<String, String> {
        self.check_trust()?;
        let (mut catalogue, note) =
            self.catalogue_for_display(caller).await.map_err(|error| error_text(&error))?;
        if let Some(subtool) = &question.subtool
            && catalogue.get(subtool).is_none()
            && let Some(renewed) = self.renew(&catalogue, caller).await
        {
            catalogue = renewed;
        }
        let (suite, question) = (Arc::clone(self), question.clone());
        run_blocking(move || suite.answer(&catalogue, &question, note)).await
    }

    /// Renders the answer to an introspection request from a catalogue.
    fn answer(
        &self,
        catalogue: &Catalogue,
        question: &IntrospectQuery,
        note: Option<String>,
    ) -> Result<String, String> {
        let offered = self.offered(catalogue);
        let (name, count) = (&self.spec.name, catalogue.tools.len());
        // Add the truncation note, because an empty answer would not tell the model why it is empty.
        let cut = catalogue.truncation_note(name).map(|note| format!("({note})"));
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

    /// Returns the catalogue for a search over all suites, or the reason why the suite cannot be searched.
    pub(crate) async fn catalogue_for_search(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<Arc<Catalogue>, String> {
        self.check_trust()?;
        self.catalogue_for_display(caller)
            .await
            .map(|(catalogue, _)| catalogue)
            .map_err(|error| error_text(&error))
    }

    /// Takes over the catalogue and pin state of the previous suite for the same child.
    ///
    /// Trust is not taken over; it is checked again at the next use.
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
            self.subscribe();
        }
    }

    /// Discards the cached trust decision, so that the next use checks trust again.
    pub(crate) fn reset_trust(&self) {
        self.state.lock().is_trusted = false;
    }

    /// Subscribes to the child's events. Only the first call has an effect.
    pub(crate) fn subscribe(self: &Arc<Self>) {
        if self.is_subscribed.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut events, suite) = (self.child.events(), Arc::downgrade(self));
        tokio::spawn(async move {
            loop {
                let event = events.recv().await;
                let Some(suite) = suite.upgrade() else { return };
                match event {
                    Ok(event) => suite.handle_event(event).await,
                    // The missed events may include a change of the tool list.
                    Err(RecvError::Lagged(_)) => {
                        suite.handle_event(ChildEvent::ListChanged(ListKind::Tools)).await;
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }

    async fn handle_event(self: &Arc<Self>, event: ChildEvent) {
        let published = match event {
            ChildEvent::ListChanged(ListKind::Tools) => {
                self.state.lock().run = None;
                self.relist_tools().await;
                return;
            }
            ChildEvent::ListChanged(what) => return self.list_changed(what),
            ChildEvent::ResourceUpdated(params) => SuitesEvent::ResourceUpdated(params),
            ChildEvent::Notification { method, params, to } => {
                SuitesEvent::Notification { method, params, to }
            }
            ChildEvent::Stopped { .. } => return,
        };
        // Hosts do not see the lists of a suite's child, so changes of these lists are not relayed.
        if self.is_flat() || matches!(published, SuitesEvent::Notification { .. }) {
            let _ = self.shared.events.send(published);
        }
    }

    /// Publishes an event that one of the child's lists has changed.
    pub(crate) fn list_changed(&self, kind: ListKind) {
        let published = match kind {
            ListKind::Tools => SuitesEvent::ToolsChanged,
            ListKind::Resources | ListKind::ResourceTemplates => SuitesEvent::ResourcesChanged,
            ListKind::Prompts => SuitesEvent::PromptsChanged,
        };
        if self.is_flat() {
            let _ = self.shared.events.send(published);
        }
    }
}
