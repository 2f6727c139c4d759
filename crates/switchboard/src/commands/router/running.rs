//! The router at work in this process, alone or beside `serve`.

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

/// The socket of a workspace's router.
const SOCKET: &str = "router.sock";

/// How long a router waits for the one before it to be gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// The router with its listener.
pub(crate) struct Running {
    router: door_workers::Router,
    folder: Dir,
    signpost: Option<EndpointFile>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    done: CancellationToken,
    _service: ServiceLease,
}

impl Running {
    /// Starts the router of a workspace, and has it listen where that is asked for; with `legacy` also for clients of the
    /// older router, at the address itself where it is one of the network.
    pub(crate) async fn start(
        workspace: &Workspace,
        folder: PathBuf,
        address: Option<&str>,
        access: Access,
        legacy: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let hub = workspace.hub().clone();
        let service = claim(&hub).await?;
        let listener = match address {
            Some(address) => Some(Listener::bind(address).await?),
            None => None,
        };
        let root = workspace.tree().root().clone();
        let router = door_workers::Router::open(hub.clone(), folder, Config::default(), guard()).await?;
        let done = CancellationToken::new();
        let outbound = hub.open_door(Door::Workers).await?;
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

    /// Starts the router beside `serve`; nothing where another process has it.
    pub(crate) async fn beside(
        workspace: &Workspace,
        folder: PathBuf,
        legacy: Option<SocketAddr>,
    ) -> Result<Option<Self>, Failure> {
        let socket = switchboard_sys::socket::place(workspace.tree().root().path(), SOCKET);
        let address = format!("unix:{}", socket.display());
        match Self::start(workspace, folder, Some(&address), Access::default(), legacy).await {
            Ok(running) => Ok(Some(running)),
            // Mail goes on where workers cannot.
            Err(failure) => {
                tracing::warn!("no workers: {}", failure.message);
                Ok(None)
            }
        }
    }

    pub(crate) fn router(&self) -> &door_workers::Router {
        &self.router
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<String> {
        self.signpost.as_ref().map(|signpost| signpost.listen.clone())
    }

    /// Ends the workers, tells clients everything that is left to tell, and hangs up.
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

/// Serves clients of the older router at an address of their own. Without it, everything else goes on.
async fn serve_legacy(
    router: &door_workers::Router,
    at: SocketAddr,
    done: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let listener = match Listener::bind(&at.to_string()).await {
        Ok(listener) => listener,
        Err(error) => {
            let error = crate::failure::chain(&error);
            tracing::warn!(error, "no clients of the older router are served; see router.legacyPort");
            return None;
        }
    };
    warn_of_legacy(&listener);
    let (router, done) = (router.clone(), done.clone());
    let access = Access { legacy: true, ..Access::default() };
    Some(tokio::spawn(async move { listen(&router, listener, access, done).await }))
}

/// Says what `router.legacyClients` opens.
fn warn_of_legacy(listener: &Listener) {
    tracing::warn!(
        address = listener.address(),
        "router.legacyClients: every program of yours can launch and prompt agents here without a token"
    );
}

/// Takes the right to be the router. That of one that was killed is free a moment later: a worker that it was just
/// about to start may still hold it.
async fn claim(hub: &Hub) -> Result<ServiceLease, HubError> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match hub.lease_service(SERVICE) {
            Err(HubError::ServiceTaken { .. }) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            claimed => return claimed,
        }
    }
}
