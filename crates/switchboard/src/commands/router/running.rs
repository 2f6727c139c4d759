//! The router at work in this process, alone or beside `serve`.

use std::path::PathBuf;
use std::time::Duration;

use door_workers::{Access, Config, Listener, SERVICE, Signpost, listen, run_deliveries};
use door_workspace::Workspace;
use parking_lot::Mutex;
use switchboard_core::Door;
use switchboard_hub::files::Dir;
use switchboard_hub::{Hub, HubError, Service};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::commands::sentinel::guard;
use crate::failure::Failure;

/// The socket of a workspace's router.
const SOCKET: &str = "router.sock";

/// How long a router waits for the one before it to be gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// The router with its listener.
pub(crate) struct Running {
    router: door_workers::Router,
    folder: Dir,
    signpost: Option<Signpost>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    done: CancellationToken,
    _service: Service,
}

impl Running {
    /// Starts the router of a workspace, and has it listen where that is asked for.
    pub(crate) async fn start(
        workspace: &Workspace,
        folder: PathBuf,
        address: Option<&str>,
        access: Access,
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
        if let Some(listener) = listener {
            let token = access.tokens.iter().find(|token| token.owner.is_none());
            let token = token.map(|token| token.token.clone());
            let put_up = Signpost::new(listener.address(), token);
            put_up.write(&root)?;
            signpost = Some(put_up);
            let (working, stop) = (router.clone(), done.clone());
            tasks.push(tokio::spawn(async move { listen(&working, listener, access, stop).await }));
        }
        Ok(Self { router, folder: root, signpost, tasks: Mutex::new(tasks), done, _service: service })
    }

    /// Starts the router beside `serve`; nothing where another process has it.
    pub(crate) async fn beside(workspace: &Workspace, folder: PathBuf) -> Result<Option<Self>, Failure> {
        let socket = switchboard_hub::socket::place(workspace.tree().root().path(), SOCKET);
        let address = format!("unix:{}", socket.display());
        match Self::start(workspace, folder, Some(&address), Access::default()).await {
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

/// Takes the right to be the router. That of one that was killed is free a moment later: a worker that it was just
/// about to start may still hold it.
async fn claim(hub: &Hub) -> Result<Service, HubError> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match hub.claim_service(SERVICE) {
            Err(HubError::ServiceTaken { .. }) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            claimed => return claimed,
        }
    }
}
