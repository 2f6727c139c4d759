//! A real nginx beside a test, with a configuration of its own.

use std::path::Path;

use tempfile::TempDir;

use crate::process::{Running, command};
use crate::{files, poll, tools};

/// The proxy. Ends with this value.
pub struct Nginx {
    _running: Running,
    _folder: TempDir,
}

impl Nginx {
    /// Starts one with a `server` block that listens on `port`.
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

/// What stands around the `server` blocks where nginx is installed, with every path in one folder.
fn around(server: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\nclient_body_temp_path {folder}/body;\nproxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi;\nuwsgi_temp_path {folder}/uwsgi;\nscgi_temp_path {folder}/scgi;\n\
         {server}\n}}\n"
    )
}
