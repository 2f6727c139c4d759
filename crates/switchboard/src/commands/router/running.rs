//! The workspace's router, as it runs in this process, alone or inside `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use door_workers::{Access, Config, EndpointFile, Listener, SERVICE, listen, run_deliveries};
use door_workspace::Workspace;
use parking_lot::Mutex;
use switchboard_core::Door;
use switchboard_hub::{Hub, HubError};
use switchboard_sys::files::Dir;
use switchboard_sys::service_lease::ServiceLease;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::commands::reap::guard;
use crate::failure::Failure;

/// Name of the socket of a workspace's router.
const SOCKET: &str = "router.sock";

/// How long a router waits for the lease of its predecessor.
const PATIENCE: Duration = Duration::from_secs(1);

/// A running router with its listener.
pub(crate) struct Running {
    router: door_workers::Router,
    folder: Dir,
    signpost: Option<EndpointFile>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    done: CancellationToken,
    _service: ServiceLease,
}

impl Running {
    /// Starts the router of a workspace, with a listener if `address` is given.
    ///
    /// `legacy` also serves clients of the older router: on the listener itself if it is a TCP address, otherwise on a
    /// separate listener.
    pub(crate) async fn start(
        workspace: &Workspace,
        folder: PathBuf,
        address: Option<&str>,
        access: Access,
        legacy: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let hub = workspace.hub().clone();
        let service = acquire_lease(&hub).await?;
        let listener = match address {
            Some(address) => Some(Listener::bind(address).await?),
            None => None,
        };
        let root = workspace.tree().root().clone();
        let router = door_workers::Router::open(hub.clone(), folder, Config::default(), guard()).await?;
        let done = CancellationToken::new();
        let outbound = hub.deliveries().open_door(Door::Workers).await?;
        let (working, stop) = (router.clone(), done.clone());
        let mut tasks = vec![tokio::spawn(async move { run_deliveries(&working, outbound, stop).await })];
        let mut signpost = None;
        let is_legacy = matches!(listener, Some(Listener::Tcp(_))) && legacy.is_some();
        let access = Access { legacy: is_legacy, ..access };
        if let Some(listener) = listener {
            if is_legacy {
                warn_of_legacy(&listener);
            } else if let Some(at) = legacy {
                tasks.extend(serve_legacy(&router, at, &done).await);
            }
            let token = access.tokens.iter().find(|token| token.owner.is_none());
            let token = token.map(|token| token.token.clone());
            let put_up = EndpointFile::new(listener.address(), token);
            put_up.write(&root)?;
            signpost = Some(put_up);
            let (working, stop) = (router.clone(), done.clone());
            tasks.push(tokio::spawn(async move { listen(&working, listener, access, stop).await }));
        }
        Ok(Self { router, folder: root, signpost, tasks: Mutex::new(tasks), done, _service: service })
    }

    /// Starts the router inside `serve`; returns `None` if another process runs it.
    pub(crate) async fn start_in_serve(
        workspace: &Workspace,
        folder: PathBuf,
        legacy: Option<SocketAddr>,
    ) -> Result<Option<Self>, Failure> {
        let socket = switchboard_sys::socket::socket_path(workspace.tree().root().path(), SOCKET);
        let address = format!("unix:{}", socket.display());
        match Self::start(workspace, folder, Some(&address), Access::default(), legacy).await {
            Ok(running) => Ok(Some(running)),
            // `serve` continues without workers, because messages must still be delivered.
            Err(failure) => {
                tracing::warn!("no workers: {}", failure.message);
                Ok(None)
            }
        }
    }

    pub(crate) fn router(&self) -> &door_workers::Router {
        &self.router
    }

    /// Returns the address of the listener, if there is one.
    pub(crate) fn address(&self) -> Option<String> {
        self.signpost.as_ref().map(|signpost| signpost.listen.clone())
    }

    /// Ends the workers, sends the remaining events to clients, and disconnects.
    pub(crate) async fn close(&self) {
        self.router.close().await;
        self.done.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let _ = task.await;
        }
        if let Some(signpost) = &self.signpost
            && let Err(error) = signpost.remove(&self.folder)
        {
            tracing::warn!(%error, "router.json could not be removed");
        }
    }
}

/// Serves clients of the older router on a separate address. A failure is logged, and the router continues without it.
async fn serve_legacy(
    router: &door_workers::Router,
    at: SocketAddr,
    done: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let listener = match Listener::bind(&at.to_string()).await {
        Ok(listener) => listener,
        Err(error) => {
            let error = switchboard_core::error_chain(&error);
            tracing::warn!(error, "no clients of the older router are served; see router.legacyPort");
            return None;
        }
    };
    warn_of_legacy(&listener);
    let (router, done) = (router.clone(), done.clone());
    let access = Access { legacy: true, ..Access::default() };
    Some(tokio::spawn(async move { listen(&router, listener, access, done).await }))
}

/// Warns of the access that `router.legacyClients` grants.
fn warn_of_legacy(listener: &Listener) {
    tracing::warn!(
        address = listener.address(),
        "router.legacyClients: every program of yours can launch and prompt agents here without a token"
    );
}

/// Acquires the router's lease, waiting briefly for its release.
///
/// The lock of a killed router may be free only a moment later, because a worker that was just being started may still
/// hold it.
async fn acquire_lease(hub: &Hub) -> Result<ServiceLease, HubError> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match hub.services().lease(SERVICE) {
            Err(HubError::ServiceTaken { .. }) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            claimed => return claimed,
        }
    }
}
