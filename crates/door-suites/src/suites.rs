//! All suites of a workspace: what a host sees of them, and where its calls go.

mod table;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;
use switchboard_sys::guard::Guard;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tracing::Instrument as _;

pub(crate) use self::table::Table;
use crate::arguments::{self, Asked};
use crate::call_outcome::CallOutcome;
use crate::catalogue::Shelf;
use crate::child::ListKind;
use crate::config::Config;
use crate::descriptions::Descriptions;
use crate::discovery::Issue;
use crate::error::SuiteError;
use crate::host::{Caller, ClientRef, Host, RpcError};
use crate::metrics::{self, Outcome};
use crate::names::child_name;
use crate::passthrough::{self, Passthrough};
use crate::paths::SuitePaths;
use crate::pending_catalogues::PendingCatalogues;
use crate::proxy_loop::{self, ProxyChain};
use crate::savings::Ledger;
use crate::suite::{Given, Shared, Suite};
use crate::tool_index::{Target, ToolIndex, cuts};
use crate::tool_result;

/// How many children are started at once when all are warmed. Starting one keeps a core busy for a second.
pub(crate) const WARM_AT_ONCE: usize = 4;
/// How many events wait for a listener. One that is behind is told so, and lists everything anew.
const EVENTS: usize = 64;
/// How long all children together have to end.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The suites of a workspace. A cheap handle; clones are the same suites.
#[derive(Clone)]
pub struct Suites {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Shared,
    via: ProxyChain,
    logs: Option<Dir>,
    /// What ends the children when this process is killed.
    guard: Option<Guard>,
    table: RwLock<Arc<Table>>,
    /// The list as it was last made; gone when a catalogue of a flat child changed.
    top: Mutex<Option<Arc<ToolIndex>>>,
    /// Names that others list beside the suites.
    pub(crate) reserved: Mutex<BTreeSet<String>>,
    pub(crate) passthrough: Passthrough,
    pub(crate) unseen: PendingCatalogues,
    pub(crate) ledger: Arc<Ledger>,
}

/// What a host may want to know.
#[derive(Debug, Clone)]
pub enum SuitesEvent {
    /// The list of tools is another.
    ToolsChanged,
    /// Resources or their templates are others.
    ResourcesChanged,
    /// Prompts are others.
    PromptsChanged,
    /// A resource changed; the parameters of the child's notification.
    ResourceUpdated(Box<RawValue>),
    /// A child has something to say to one client.
    Notification {
        /// The method of its notification.
        method: &'static str,
        /// The parameters.
        params: Box<RawValue>,
        /// Who is meant.
        to: ClientRef,
    },
}

/// What became of warming one child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmReport {
    /// The child.
    pub child: String,
    /// How many tools it has, or why that is not known.
    pub tools: Result<usize, String>,
    /// How long it took.
    pub took: Duration,
}

impl Suites {
    /// Finds the children of a workspace. Nothing is started.
    #[expect(clippy::unused_async, reason = "opening may wait for something one day, and callers await it")]
    pub async fn open(config: Config, paths: SuitePaths, guard: Option<Guard>) -> Result<Self, SuiteError> {
        let told = std::env::var(proxy_loop::VARIABLE).unwrap_or_default();
        Self::open_via(config, paths, guard, &told, Clock::system())
    }

    /// [`open`](Self::open) with the way to this process and the clock given.
    pub(crate) fn open_via(
        config: Config,
        paths: SuitePaths,
        guard: Option<Guard>,
        told: &str,
        clock: Clock,
    ) -> Result<Self, SuiteError> {
        if !paths.workspace.is_dir() {
            return Err(SuiteError::NoWorkspace { path: paths.workspace });
        }
        let via = ProxyChain::new(told, &paths.workspace_hash());
        let logs = paths.create_logs();
        let shared = Shared {
            shelf: Shelf::open(&paths),
            clock,
            events: broadcast::channel(EVENTS).0,
            changes: Arc::default(),
            level: Arc::default(),
            paths: Arc::new(paths),
        };
        let inner = Inner {
            ledger: Arc::new(Ledger::new(&shared.paths)),
            shared,
            via,
            logs: logs.ok(),
            guard,
            table: RwLock::new(Arc::new(Table {
                config: Config::default(),
                suites: Vec::new(),
                issues: Vec::new(),
                descriptions: Descriptions::default(),
            })),
            top: Mutex::default(),
            reserved: Mutex::default(),
            passthrough: Passthrough::default(),
            unseen: PendingCatalogues::default(),
        };
        let suites = Self { inner: Arc::new(inner) };
        let (table, _) = suites.find(config);
        *suites.inner.table.write() = Arc::new(table);
        Ok(suites)
    }

    /// Names that are listed beside the suites, which no suite may have.
    pub fn reserve(&self, names: impl IntoIterator<Item = String>) {
        self.inner.reserved.lock().extend(names);
        self.relist();
    }

    /// The tools for a host, always in the same order. Starts nothing.
    pub fn tools(&self) -> Vec<Box<RawValue>> {
        self.top().tools.clone()
    }

    /// The tools for a host that asks for them now: counted, and flat children that were never seen are asked first.
    pub async fn list_tools(&self, caller: &Caller) -> Vec<Box<RawValue>> {
        let is_unseen =
            |suite: &&Arc<Suite>| suite.is_flat() && suite.cached().is_none() && suite.check_trust().is_ok();
        let unseen: Vec<_> = self.table().suites.iter().filter(is_unseen).cloned().collect();
        if !unseen.is_empty() {
            self.inner.unseen.ask(self, unseen, caller).await;
        }
        self.inner.ledger.listed();
        self.tools()
    }

    /// One tool as it is listed.
    pub fn tool(&self, name: &str) -> Option<Box<RawValue>> {
        #[derive(serde::Deserialize)]
        struct Named<'a> {
            name: &'a str,
        }
        let top = self.top();
        let is_it =
            |raw: &RawValue| serde_json::from_str::<Named<'_>>(raw.get()).is_ok_and(|tool| tool.name == name);
        top.tools.iter().find(|tool| is_it(tool)).cloned()
    }

    /// Whether a tool is one of these.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.top().by_name.contains_key(tool)
    }

    /// Whether a tool is a child's own, whose results are passed on unchanged.
    pub fn is_flat(&self, tool: &str) -> bool {
        matches!(self.top().by_name.get(tool), Some(Target::Flat(..)))
    }

    /// Whether any child is listed with all that it has, resources and prompts too.
    pub fn has_flat(&self) -> bool {
        self.table().suites.iter().any(|suite| suite.is_flat())
    }

    /// What is wrong with children and their settings, for a person to read.
    pub fn issues(&self) -> Vec<Issue> {
        let top = self.top();
        let collisions = top.issues.iter().map(|(suite, message)| Issue {
            file: suite.spec.file.clone(),
            message: message.clone(),
            child: Some(suite.spec.name.clone()),
        });
        let table = self.table();
        let cut = table.suites.iter().flat_map(|suite| {
            let problem = |message| Issue {
                file: suite.spec.file.clone(),
                message,
                child: Some(suite.spec.name.clone()),
            };
            cuts(suite, &table.config, &table.descriptions).into_iter().map(problem)
        });
        table.issues.iter().cloned().chain(collisions).chain(cut).collect()
    }

    /// Calls a tool. The answer is a whole result of `tools/call`, as the child gave it.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Option<&RawValue>,
        caller: &Caller,
    ) -> Result<Box<RawValue>, RpcError> {
        let top = self.top();
        let Some(target) = top.by_name.get(tool) else {
            return Ok(tool_result::refusal(&format!("There is no tool '{}'.", tool.escape_debug())));
        };
        if let Some(refusal) = &self.inner.via.refusal {
            return Ok(tool_result::refusal(refusal));
        }
        let result = match target {
            Target::Suite(suite) => call_suite(suite, arguments, caller, Some(&self.inner.ledger)).await,
            Target::Flat(suite, name) => {
                let begun = Instant::now();
                let done = suite.call(name, Given::Flat(arguments), caller).await;
                finish(suite, "flat", name, done, begun)
            }
            Target::Search => Ok(self.search(arguments, caller).await),
        };
        self.write_down();
        result
    }

    /// Does what a child's suite does, however the child is listed: for people, who name the child or its tool.
    /// `None`: there is no such child.
    pub async fn call_child(
        &self,
        name: &str,
        arguments: Option<&RawValue>,
        caller: &Caller,
    ) -> Option<Result<Box<RawValue>, RpcError>> {
        let table = self.table();
        let wanted = child_name(name).unwrap_or_else(|_| name.to_owned());
        let by_name = table.suites.iter().find(|suite| suite.spec.name.eq_ignore_ascii_case(&wanted));
        let suite = by_name.or_else(|| table.suites.iter().find(|suite| suite.rules.tool_name == name))?;
        if let Some(refusal) = &self.inner.via.refusal {
            return Some(Ok(tool_result::refusal(refusal)));
        }
        // What a person does is no model's conversation, and is not counted.
        Some(call_suite(suite, arguments, caller, None).await)
    }

    /// The names of the children, sorted.
    pub fn children(&self) -> Vec<String> {
        self.table().suites.iter().map(|suite| suite.spec.name.clone()).collect()
    }

    /// Resources, templates or prompts of the children that are listed with all they have.
    pub async fn list(&self, what: ListKind, caller: &Caller) -> Vec<Box<RawValue>> {
        self.inner.passthrough.list(&self.flat(), what, caller).await
    }

    /// A request about resources, prompts, completion or logging. `None`: it is not about any of these children.
    pub async fn request(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
        caller: &Caller,
    ) -> Option<Result<Box<RawValue>, RpcError>> {
        if method != "logging/setLevel" {
            return self.inner.passthrough.request(&self.flat(), method, params, caller).await;
        }
        let table = self.table();
        if table.suites.is_empty() {
            return None;
        }
        self.inner.shared.level.lock().clone_from(&params);
        // Those that do not run are told when they do.
        let running = table.suites.iter().filter(|suite| suite.child.initialized().is_some());
        Some(passthrough::set_level(&running.cloned().collect::<Vec<_>>(), params, caller).await)
    }

    /// Tells the children that a client has used that its roots are others now.
    pub fn roots_changed(&self, host: &Arc<dyn Host>) {
        for suite in &self.table().suites {
            suite.child.roots_changed(host);
        }
    }

    /// What changes from now on.
    pub fn events(&self) -> broadcast::Receiver<SuitesEvent> {
        self.inner.shared.events.subscribe()
    }

    /// Starts every trusted child, a few at a time, and takes its catalogue.
    pub async fn warm(&self, caller: &Caller) -> Vec<WarmReport> {
        let warmed = self.warm_all(self.table().suites.clone(), caller).await;
        self.relist();
        warmed
    }

    pub(crate) async fn warm_all(&self, suites: Vec<Arc<Suite>>, caller: &Caller) -> Vec<WarmReport> {
        let refusal = self.inner.via.refusal.as_ref();
        stream::iter(suites)
            .map(|suite| async move {
                let begun = Instant::now();
                let tools = match refusal.map_or_else(|| suite.check_trust(), |refusal| Err(refusal.clone()))
                {
                    Ok(()) => suite.current(caller).await.map_err(|error| error.to_string()),
                    Err(text) => Err(text),
                };
                let tools = tools.map(|catalogue| suite.offered(&catalogue).len());
                WarmReport { child: suite.spec.name.clone(), tools, took: begun.elapsed() }
            })
            .buffered(WARM_AT_ONCE)
            .collect()
            .await
    }

    /// Ends all children and writes down what was counted.
    pub async fn close(&self) {
        let table = self.table();
        let stopping = join_all(table.suites.iter().map(|suite| suite.child.close()));
        if tokio::time::timeout(CLOSE_WITHIN, stopping).await.is_err() {
            tracing::warn!("children did not end in time; their groups are killed");
        }
        self.flush().await;
    }

    /// Writes down what was counted before, when that was last done a while ago: a host that is killed takes little
    /// of it along.
    fn write_down(&self) {
        if self.inner.ledger.is_due() {
            let suites = self.clone();
            tokio::spawn(async move { suites.flush().await });
        }
    }

    /// Writes down what was counted so far.
    pub(crate) async fn flush(&self) {
        let (ledger, now) = (self.inner.ledger.clone(), self.inner.shared.clock.now());
        let _ = tokio::task::spawn_blocking(move || ledger.flush(now)).await;
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        self.inner.table.read().clone()
    }

    pub(crate) fn top(&self) -> Arc<ToolIndex> {
        let mut top = self.inner.top.lock();
        let changes = self.inner.shared.changes.load(Ordering::Relaxed);
        if let Some(top) = top.as_ref().filter(|top| top.changes == changes) {
            return top.clone();
        }
        let (table, reserved) = (self.table(), self.inner.reserved.lock());
        let made =
            Arc::new(ToolIndex::new(&table.suites, (&table.config, &table.descriptions), &reserved, changes));
        *top = Some(made.clone());
        made
    }

    /// Lets the list be made anew when it is needed next.
    pub(crate) fn relist(&self) {
        *self.inner.top.lock() = None;
        self.inner.passthrough.forget();
    }

    fn flat(&self) -> Vec<Arc<Suite>> {
        if self.inner.via.refusal.is_some() {
            return Vec::new();
        }
        self.table().suites.iter().filter(|suite| suite.is_flat()).cloned().collect()
    }
}

/// Does what a suite's tool is asked for, and counts it where that is wanted.
async fn call_suite(
    suite: &Arc<Suite>,
    arguments: Option<&RawValue>,
    caller: &Caller,
    ledger: Option<&Ledger>,
) -> Result<Box<RawValue>, RpcError> {
    let begun = Instant::now();
    match arguments::read(arguments, &suite.rules.tool_name) {
        Err(text) => Ok(tool_result::refusal(&text)),
        Ok(Asked::Introspect(question)) => {
            let span = tracing::info_span!("suite_introspect", suite = suite.spec.name);
            let answered = suite.introspect(&question, caller).instrument(span).await;
            let outcome = if answered.is_ok() { Outcome::Ok } else { Outcome::Refused };
            metrics::called(&suite.spec.name, "introspect", None, outcome, begun.elapsed());
            let result = match answered {
                Ok(text) => tool_result::text(&text),
                Err(text) => tool_result::refusal(&text),
            };
            if let Some(ledger) = ledger {
                ledger.introspected(result.get().len());
            }
            Ok(result)
        }
        Ok(Asked::Call(call)) => {
            let done = suite.call(&call.subtool, Given::Suite(&call), caller).await;
            if let Some(ledger) = ledger {
                ledger.called(match (&done.result, done.outcome) {
                    // What we say of ourselves would not have been said without the suite.
                    (Ok(result), Outcome::Refused) => result.get().len(),
                    _ => 0,
                });
            }
            finish(suite, "call", &call.subtool, done, begun)
        }
    }
}

/// Counts a call of a tool for the metrics.
fn finish(
    suite: &Suite,
    action: &'static str,
    tool: &str,
    done: CallOutcome,
    begun: Instant,
) -> Result<Box<RawValue>, RpcError> {
    metrics::called(&suite.spec.name, action, done.is_known.then_some(tool), done.outcome, begun.elapsed());
    done.result
}

/// Whether two lists of tools are different to a host.
pub(crate) fn differs(before: &[Box<RawValue>], after: &[Box<RawValue>]) -> bool {
    before.len() != after.len() || before.iter().zip(after).any(|(before, after)| before.get() != after.get())
}
