//! Real nginx for tests, with its own configuration.

use std::path::Path;

use tempfile::TempDir;

use crate::ca::{PrivateCa, Validity};
use crate::process::{Running, command};
use crate::{files, poll, tools};

/// A running nginx proxy, stopped on drop.
pub struct Nginx {
    _running: Running,
    _folder: TempDir,
}

impl Nginx {
    /// Starts nginx with a `server` block that listens on `port`.
    pub fn start(server: &str, port: u16) -> Result<Self, String> {
        let program = tools::installed("deb/nginx")?.join("usr/sbin/nginx");
        let folder = TempDir::with_prefix("switchboard-nginx-").unwrap();
        let config = around(server, folder.path());
        files::put(folder.path().join("nginx.conf"), config);
        let mut nginx = command(program);
        nginx.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        nginx.args(["-e", "stderr"]);
        let mut running = Running::start(&mut nginx);
        poll::until("nginx to listen", || {
            assert!(running.is_running(), "nginx ended: {}", running.errors());
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(())
        });
        Ok(Self { _running: running, _folder: folder })
    }
}

/// Returns the configuration from docs/proxy.md, with the ports and files of a test.
///
/// In it, nginx listens on `port` with a certificate of `ca` for `localhost`, and forwards to `listener`.
pub fn documented(port: u16, listener: u16, ca: &PrivateCa) -> String {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.md")).unwrap();
    let block = page.split("```nginx\n").nth(1).unwrap().split("```").next().unwrap();
    let (cert, key) = ca.issue_files(&["localhost"], Validity::Valid);
    let live = "/etc/letsencrypt/live/agents.example.org/";
    let mut config = block.to_owned();
    for (from, to) in [
        ("listen 443 ssl", format!("listen 127.0.0.1:{port} ssl")),
        ("127.0.0.1:8443", format!("127.0.0.1:{listener}")),
        (&*format!("{live}fullchain.pem"), cert.display().to_string()),
        (&*format!("{live}privkey.pem"), key.display().to_string()),
        ("agents.example.org", "localhost".to_owned()),
    ] {
        assert!(config.contains(from), "docs/proxy.md has no `{from}`");
        config = config.replace(from, &to);
    }
    config
}

/// Returns a complete nginx configuration around a `server` block, with every path in one folder.
fn around(server: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\nclient_body_temp_path {folder}/body;\nproxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi;\nuwsgi_temp_path {folder}/uwsgi;\nscgi_temp_path {folder}/scgi;\n\
         {server}\n}}\n"
    )
}
