//! All suites of a workspace: provides the tool list for hosts and routes calls to children.

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
use switchboard_sys::reaper::ReaperClient;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tracing::Instrument as _;

pub(crate) use self::table::Table;
use crate::arguments::{self, SuiteRequest};
use crate::call_outcome::CallOutcome;
use crate::catalogue::CatalogueStore;
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
use crate::savings::UsageCounter;
use crate::suite::{CallArguments, Shared, Suite};
use crate::tool_index::{Target, ToolIndex, cuts};
use crate::tool_result;

/// Maximum number of children that `warm` starts concurrently. Starting one occupies a core for about a second.
pub(crate) const WARM_CONCURRENCY: usize = 4;
/// Capacity of the event channel. A receiver that lags behind gets an error, and lists everything again.
const EVENTS: usize = 64;
/// Time limit for stopping all children.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Handle for the suites of a workspace. Cheap to clone; clones share state.
#[derive(Clone)]
pub struct Suites {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Shared,
    proxy_chain: ProxyChain,
    logs: Option<Dir>,
    /// Client of the reaper, which kills the children if this process is killed.
    guard: Option<ReaperClient>,
    table: RwLock<Arc<Table>>,
    /// Cached tool index. The cache is invalidated when a flat child's catalogue changes.
    tool_index: Mutex<Option<Arc<ToolIndex>>>,
    /// Tool names that other parts of the host's tool list use.
    pub(crate) reserved: Mutex<BTreeSet<String>>,
    pub(crate) passthrough: Passthrough,
    pub(crate) pending_catalogues: PendingCatalogues,
    pub(crate) usage: Arc<UsageCounter>,
}

/// Event for hosts about the suites.
#[derive(Debug, Clone)]
pub enum SuitesEvent {
    /// The tool list has changed.
    ToolsChanged,
    /// The resources or resource templates have changed.
    ResourcesChanged,
    /// The prompts have changed.
    PromptsChanged,
    /// A resource was updated. Carries the parameters of the notification.
    ResourceUpdated(Box<RawValue>),
    /// A child's notification for one client.
    Notification {
        /// Method of the notification.
        method: &'static str,
        /// Parameters of the notification.
        params: Box<RawValue>,
        /// Client that receives the notification.
        to: ClientRef,
    },
}

/// Result of warming one child, that is, of starting it and fetching its catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmReport {
    /// Name of the child.
    pub child: String,
    /// Number of offered tools, or the error.
    pub tools: Result<usize, String>,
    /// Elapsed time.
    pub took: Duration,
}

impl Suites {
    /// Opens the suites of a workspace: discovers the children, but starts none.
    #[expect(clippy::unused_async, reason = "opening may wait for something one day, and callers await it")]
    pub async fn open(
        config: Config,
        paths: SuitePaths,
        guard: Option<ReaperClient>,
    ) -> Result<Self, SuiteError> {
        let inherited = std::env::var(proxy_loop::VARIABLE).unwrap_or_default();
        Self::open_via(config, paths, guard, &inherited, Clock::system())
    }

    /// Opens the suites like [`open`](Self::open), with an explicit proxy chain and clock.
    pub(crate) fn open_via(
        config: Config,
        paths: SuitePaths,
        guard: Option<ReaperClient>,
        inherited: &str,
        clock: Clock,
    ) -> Result<Self, SuiteError> {
        if !paths.workspace.is_dir() {
            return Err(SuiteError::NoWorkspace { path: paths.workspace });
        }
        let proxy_chain = ProxyChain::new(inherited, &paths.workspace_hash());
        let logs = paths.create_logs();
        let shared = Shared {
            shelf: CatalogueStore::open(&paths),
            clock,
            events: broadcast::channel(EVENTS).0,
            changes: Arc::default(),
            level: Arc::default(),
            paths: Arc::new(paths),
        };
        let inner = Inner {
            usage: Arc::new(UsageCounter::new(&shared.paths)),
            shared,
            proxy_chain,
            logs: logs.ok(),
            guard,
            table: RwLock::new(Arc::new(Table {
                config: Config::default(),
                suites: Vec::new(),
                issues: Vec::new(),
                descriptions: Descriptions::default(),
            })),
            tool_index: Mutex::default(),
            reserved: Mutex::default(),
            passthrough: Passthrough::default(),
            pending_catalogues: PendingCatalogues::default(),
        };
        let suites = Self { inner: Arc::new(inner) };
        let (table, _) = suites.discover_table(config);
        *suites.inner.table.write() = Arc::new(table);
        Ok(suites)
    }

    /// Reserves tool names, which suites may then no longer use.
    pub fn reserve(&self, names: impl IntoIterator<Item = String>) {
        self.inner.reserved.lock().extend(names);
        self.invalidate_index();
    }

    /// Returns the tool list for a host, in a stable order. Starts no child.
    pub fn tools(&self) -> Vec<Box<RawValue>> {
        self.tool_index().tools.clone()
    }

    /// Returns the tool list for a host's request, and counts the request.
    ///
    /// First fetches the tools of flat children that were never listed.
    pub async fn list_tools(&self, caller: &Caller) -> Vec<Box<RawValue>> {
        let is_pending =
            |suite: &&Arc<Suite>| suite.is_flat() && suite.cached().is_none() && suite.check_trust().is_ok();
        let pending: Vec<_> = self.table().suites.iter().filter(is_pending).cloned().collect();
        if !pending.is_empty() {
            self.inner.pending_catalogues.fetch(self, pending, caller).await;
        }
        self.inner.usage.count_list();
        self.tools()
    }

    /// Returns one tool of the list by name.
    pub fn tool(&self, name: &str) -> Option<Box<RawValue>> {
        #[derive(serde::Deserialize)]
        struct Named<'a> {
            name: &'a str,
        }
        let top = self.tool_index();
        let is_it =
            |raw: &RawValue| serde_json::from_str::<Named<'_>>(raw.get()).is_ok_and(|tool| tool.name == name);
        top.tools.iter().find(|tool| is_it(tool)).cloned()
    }

    /// Returns true if the tool list contains this tool.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.tool_index().by_name.contains_key(tool)
    }

    /// Returns true if the tool is flat, which means that its results are passed through unchanged.
    pub fn is_flat(&self, tool: &str) -> bool {
        matches!(self.tool_index().by_name.get(tool), Some(Target::Flat(..)))
    }

    /// Returns true if any child is flat, which means that its resources and prompts are exposed as well.
    pub fn has_flat(&self) -> bool {
        self.table().suites.iter().any(|suite| suite.is_flat())
    }

    /// Returns the issues of the children and their settings, to be shown to people.
    pub fn issues(&self) -> Vec<Issue> {
        let top = self.tool_index();
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

    /// Calls a tool of the list and returns a complete `tools/call` result.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Option<&RawValue>,
        caller: &Caller,
    ) -> Result<Box<RawValue>, RpcError> {
        let top = self.tool_index();
        let Some(target) = top.by_name.get(tool) else {
            return Ok(tool_result::refusal(&format!("There is no tool '{}'.", tool.escape_debug())));
        };
        if let Some(refusal) = &self.inner.proxy_chain.refusal {
            return Ok(tool_result::refusal(refusal));
        }
        let result = match target {
            Target::Suite(suite) => call_suite(suite, arguments, caller, Some(&self.inner.usage)).await,
            Target::Flat(suite, name) => {
                let started = Instant::now();
                let done = suite.call(name, CallArguments::Flat(arguments), caller).await;
                finish(suite, "flat", name, done, started)
            }
            Target::Search => Ok(self.search(arguments, caller).await),
        };
        self.schedule_flush();
        result
    }

    /// Calls a child's suite on behalf of a person, even if the child is flat.
    ///
    /// `name` is the name of the child or of its suite tool. Returns `None` if there is no such child.
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
        if let Some(refusal) = &self.inner.proxy_chain.refusal {
            return Some(Ok(tool_result::refusal(refusal)));
        }
        // A person's call is not part of a model's conversation, so it is not counted.
        Some(call_suite(suite, arguments, caller, None).await)
    }

    /// Returns the sorted names of the children.
    pub fn children(&self) -> Vec<String> {
        self.table().suites.iter().map(|suite| suite.spec.name.clone()).collect()
    }

    /// Lists the resources, resource templates or prompts of the flat children.
    pub async fn list(&self, kind: ListKind, caller: &Caller) -> Vec<Box<RawValue>> {
        self.inner.passthrough.list(&self.flat(), kind, caller).await
    }

    /// Forwards a request about resources, prompts, completion or logging.
    ///
    /// Returns `None` if the request concerns none of the children.
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
        // Children that are not running get the log level when they start.
        let running = table.suites.iter().filter(|suite| suite.child.initialized().is_some());
        Some(passthrough::set_level(&running.cloned().collect::<Vec<_>>(), params, caller).await)
    }

    /// Notifies all children that have served this client that the client's roots have changed.
    pub fn roots_changed(&self, host: &Arc<dyn Host>) {
        for suite in &self.table().suites {
            suite.child.roots_changed(host);
        }
    }

    /// Subscribes to the events for hosts.
    pub fn events(&self) -> broadcast::Receiver<SuitesEvent> {
        self.inner.shared.events.subscribe()
    }

    /// Starts every trusted child, a few at a time, and fetches its catalogue.
    pub async fn warm(&self, caller: &Caller) -> Vec<WarmReport> {
        let warmed = self.warm_all(self.table().suites.clone(), caller).await;
        self.invalidate_index();
        warmed
    }

    pub(crate) async fn warm_all(&self, suites: Vec<Arc<Suite>>, caller: &Caller) -> Vec<WarmReport> {
        let refusal = self.inner.proxy_chain.refusal.as_ref();
        stream::iter(suites)
            .map(|suite| async move {
                let started = Instant::now();
                let tools = match refusal.map_or_else(|| suite.check_trust(), |refusal| Err(refusal.clone()))
                {
                    Ok(()) => suite.current(caller).await.map_err(|error| error.to_string()),
                    Err(text) => Err(text),
                };
                let tools = tools.map(|catalogue| suite.offered(&catalogue).len());
                WarmReport { child: suite.spec.name.clone(), tools, took: started.elapsed() }
            })
            .buffered(WARM_CONCURRENCY)
            .collect()
            .await
    }

    /// Stops all children and flushes the usage counters.
    pub async fn close(&self) {
        let table = self.table();
        let stopping = join_all(table.suites.iter().map(|suite| suite.child.close()));
        if tokio::time::timeout(CLOSE_WITHIN, stopping).await.is_err() {
            tracing::warn!("children did not end in time; their process groups are killed");
        }
        self.flush().await;
    }

    /// Flushes the usage counters in the background, if a flush is due.
    ///
    /// Regular flushes keep the loss small if the host is killed.
    fn schedule_flush(&self) {
        if self.inner.usage.is_due() {
            let suites = self.clone();
            tokio::spawn(async move { suites.flush().await });
        }
    }

    /// Flushes the usage counters to disk.
    pub(crate) async fn flush(&self) {
        let (usage, now) = (self.inner.usage.clone(), self.inner.shared.clock.now());
        let _ = tokio::task::spawn_blocking(move || usage.flush(now)).await;
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        self.inner.table.read().clone()
    }

    pub(crate) fn tool_index(&self) -> Arc<ToolIndex> {
        let mut top = self.inner.tool_index.lock();
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

    /// Invalidates the cached tool index and the pass-through routing table.
    pub(crate) fn invalidate_index(&self) {
        *self.inner.tool_index.lock() = None;
        self.inner.passthrough.clear();
    }

    fn flat(&self) -> Vec<Arc<Suite>> {
        if self.inner.proxy_chain.refusal.is_some() {
            return Vec::new();
        }
        self.table().suites.iter().filter(|suite| suite.is_flat()).cloned().collect()
    }
}

/// Handles a request to a suite's tool. Counts the request if `usage` is given.
async fn call_suite(
    suite: &Arc<Suite>,
    arguments: Option<&RawValue>,
    caller: &Caller,
    usage: Option<&UsageCounter>,
) -> Result<Box<RawValue>, RpcError> {
    let started = Instant::now();
    match arguments::parse(arguments, &suite.rules.tool_name) {
        Err(text) => Ok(tool_result::refusal(&text)),
        Ok(SuiteRequest::Introspect(question)) => {
            let span = tracing::info_span!("suite_introspect", suite = suite.spec.name);
            let answered = suite.introspect(&question, caller).instrument(span).await;
            let outcome = if answered.is_ok() { Outcome::Ok } else { Outcome::Refused };
            metrics::called(&suite.spec.name, "introspect", None, outcome, started.elapsed());
            let result = match answered {
                Ok(text) => tool_result::text(&text),
                Err(text) => tool_result::refusal(&text),
            };
            if let Some(usage) = usage {
                usage.count_introspection(result.get().len());
            }
            Ok(result)
        }
        Ok(SuiteRequest::Call(call)) => {
            let done = suite.call(&call.subtool, CallArguments::Suite(&call), caller).await;
            if let Some(usage) = usage {
                usage.count_call(match (&done.result, done.outcome) {
                    // Count the refusal as overhead, because without the suite this text would not have been sent.
                    (Ok(result), Outcome::Refused) => result.get().len(),
                    _ => 0,
                });
            }
            finish(suite, "call", &call.subtool, done, started)
        }
    }
}

/// Records the metrics of a tool call and returns its result.
fn finish(
    suite: &Suite,
    action: &'static str,
    tool: &str,
    done: CallOutcome,
    started: Instant,
) -> Result<Box<RawValue>, RpcError> {
    metrics::called(&suite.spec.name, action, done.is_known.then_some(tool), done.outcome, started.elapsed());
    done.result
}

/// Returns true if a host would see a difference between two tool lists.
pub(crate) fn differs(before: &[Box<RawValue>], after: &[Box<RawValue>]) -> bool {
    before.len() != after.len() || before.iter().zip(after).any(|(before, after)| before.get() != after.get())
}
