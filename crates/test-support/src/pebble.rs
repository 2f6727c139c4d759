//! Real ACME server for tests: Debian's pebble, with the DNS server that comes with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::ca::{PrivateCa, Validity};
use crate::ports::free_port;
use crate::process::{Running, command};
use crate::{files, poll, tools};

const CONFIG: &str = "pebble.json";

/// A running pebble server, stopped on drop. It resolves every host name to 127.0.0.1.
pub struct Pebble {
    port: u16,
    management: u16,
    ca: PrivateCa,
    program: PathBuf,
    resolver: u16,
    running: Running,
    _dns: Running,
    folder: TempDir,
}

impl Pebble {
    /// Starts a server that validates HTTP-01 and TLS-ALPN-01 challenges on the given ports.
    ///
    /// The certificates that it issues are valid for `life`.
    pub fn start(http: u16, tls: u16, life: Duration) -> Result<Self, String> {
        let programs = tools::installed("deb/pebble")?.join("usr/bin");
        let folder = TempDir::with_prefix("switchboard-pebble-").unwrap();
        let ca = PrivateCa::new();
        let (cert, key) = ca.issue_files(&["localhost", "127.0.0.1"], Validity::Valid);
        let (port, management, dns) = (free_port(), free_port(), free_port());
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": cert,
            "privateKey": key,
            "httpPort": http,
            "tlsPort": tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "certificateValidityPeriod": life.as_secs(),
        }});
        files::put(folder.path().join(CONFIG), config.to_string());

        let mut resolver = command(programs.join("pebble-challtestsrv"));
        resolver.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-http01", "", "-https01", ""]);
        resolver.args(["-tlsalpn01", "", "-dns01", &format!("127.0.0.1:{dns}")]);
        resolver.args(["-management", &format!("127.0.0.1:{}", free_port())]);
        let dns_server = Running::start(&mut resolver);

        let program = programs.join("pebble");
        let running = start(&program, &folder, dns, port);
        Ok(Self { port, management, ca, program, resolver: dns, running, _dns: dns_server, folder })
    }

    /// Replaces the server with a new one that has no state of the old one.
    pub fn replace(&mut self) {
        self.running.kill();
        self.running = start(&self.program, &self.folder, self.resolver, self.port);
    }

    /// Returns the URL of the server's ACME directory.
    pub fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.port)
    }

    /// Returns the URL of the root certificate in which the issued chains end.
    pub fn root_url(&self) -> String {
        format!("https://127.0.0.1:{}/roots/0", self.management)
    }

    /// Returns the authority of the server's own TLS certificate.
    ///
    /// It differs from the authority of the certificates that the server issues.
    pub fn ca(&self) -> &PrivateCa {
        &self.ca
    }

    /// Returns the output of the server so far.
    pub fn output(&self) -> String {
        let mut printed = self.running.errors();
        while let Some(line) = self.running.line_within(Duration::ZERO) {
            printed.push_str(&line);
            printed.push('\n');
        }
        printed
    }
}

/// Starts the server process and waits until it listens.
fn start(program: &Path, folder: &TempDir, resolver: u16, port: u16) -> Running {
    let mut server = command(program);
    server
        .arg("-config")
        .arg(folder.path().join(CONFIG))
        .arg("-dnsserver")
        .arg(format!("127.0.0.1:{resolver}"));
    // By default, pebble sleeps for a random time before it validates a challenge.
    server.env("PEBBLE_VA_NOSLEEP", "1");
    let running = Running::start(&mut server);
    poll::until("pebble to listen", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(())
    });
    running
}
