//! Certificates from a real ACME server: pebble, which validates challenges like public servers.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tempfile::TempDir;
use test_support::pebble::Pebble;
use test_support::ports::free_port;
use test_support::{files, poll, tools};
use tokio_util::sync::CancellationToken;

use super::http2::Http2;
use super::http3::Http3;
use super::rig::{Gate, any_port, app, ask, certificate_serial, client, connect, tls, with_timeout};
use crate::{Acme, Challenge, Error, ListenerHandle, Mode, Settings, listen};

const LONG: Duration = Duration::from_hours(24 * 90);

/// Test fixture: ACME server, folder of the store, and the ports on which the server validates challenges.
struct Scene {
    pebble: Pebble,
    folder: TempDir,
    tls_port: u16,
    http_port: u16,
}

impl Scene {
    fn new(life: Duration) -> Result<Self, String> {
        // An order fails in the background; its log explains a failed test.
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let (tls_port, http_port) = (free_port(), free_port());
        let pebble = Pebble::start(http_port, tls_port, life)?;
        Ok(Self { pebble, folder: TempDir::with_prefix("switchboard-acme-").unwrap(), tls_port, http_port })
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("state/acme")
    }

    fn settings(&self, challenge: Challenge) -> Settings {
        let address = match challenge {
            Challenge::TlsAlpn => ([127, 0, 0, 1], self.tls_port).into(),
            Challenge::Http { .. } => any_port(),
        };
        Settings::new(
            address,
            Mode::Acme(Acme {
                directory: self.pebble.directory(),
                ca_file: Some(self.pebble.ca().file()),
                names: vec!["localhost".to_owned()],
                contact: vec!["mailto:owner@example.org".to_owned()],
                terms_agreed: true,
                challenge,
                store: self.store(),
                first_retry: Duration::from_millis(50),
            }),
        )
    }

    fn by_http(&self) -> Challenge {
        Challenge::Http { address: ([127, 0, 0, 1], self.http_port).into() }
    }

    async fn listen(&self, settings: Settings) -> (ListenerHandle, CancellationToken) {
        let shutdown = CancellationToken::new();
        (listen(settings, app(Gate::new()), shutdown.clone()).await.unwrap(), shutdown)
    }

    /// Writes the root CA of pebble's chains to a file.
    async fn root(&self) -> PathBuf {
        let client = client(&self.pebble.ca().file()).build().unwrap();
        let root = client.get(self.pebble.root_url()).send().await.unwrap().text().await.unwrap();
        let path = self.folder.path().join("root.pem");
        files::put(&path, root);
        path
    }
}

/// Waits for a certificate other than `before`.
async fn certificate_after(listening: &ListenerHandle, before: Option<&str>) -> crate::Certificate {
    let mut certificate = listening.certificate();
    let found = certificate.wait_for(|certificate| {
        certificate.as_ref().is_some_and(|certificate| Some(&*certificate.serial) != before)
    });
    with_timeout(found).await.unwrap().clone().unwrap()
}

fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mut modes: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().mode() & 0o777))
        .collect();
    modes.sort();
    modes
}

async fn obtain_and_reload(challenge: impl FnOnce(&Scene) -> Challenge, test: &str) {
    let scene = match Scene::new(LONG) {
        Ok(scene) => scene,
        Err(reason) => return tools::skip(test, &reason),
    };
    let challenge = challenge(&scene);
    let (listening, shutdown) = scene.listen(scene.settings(challenge)).await;
    let certificate = certificate_after(&listening, None).await;
    assert_eq!(certificate.names, ["localhost"]);
    let root = scene.root().await;
    let url = format!("https://localhost:{}/swarm/whoami", listening.local_addr().port());
    let response = client(&root).build().unwrap().get(&url).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "127.0.0.1 HTTP/2.0");

    // The folder, the account and the certificate are readable by the owner only.
    assert_eq!(scene.store().metadata().unwrap().mode() & 0o777, 0o700);
    let modes = modes(&scene.store());
    assert_eq!(modes.len(), 2, "{modes:?}");
    assert!(modes.iter().all(|(_, mode)| *mode == 0o600), "{modes:?}");
    shutdown.cancel();
    with_timeout(listening.finished()).await;

    // The next run has the certificate immediately and orders no other certificate.
    let (again, shutdown) = scene.listen(scene.settings(challenge)).await;
    assert_eq!(again.certificate().borrow().as_ref(), Some(&certificate));
    shutdown.cancel();
    with_timeout(again.finished()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_obtained_by_tls_alpn() {
    obtain_and_reload(|_| Challenge::TlsAlpn, "obtained_by_tls_alpn").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_obtained_by_http() {
    obtain_and_reload(Scene::by_http, "obtained_by_http").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_leaves_connections_open() {
    let scene = match Scene::new(Duration::from_secs(9)) {
        Ok(scene) => scene,
        Err(reason) => return tools::skip("renewed_while_connections_stay_up", &reason),
    };
    let mut settings = scene.settings(Challenge::TlsAlpn);
    settings.http3 = true;
    let (listening, shutdown) = scene.listen(settings).await;
    let first = certificate_after(&listening, None).await;
    let (root, port) = (scene.root().await, listening.local_addr().port());
    let mut tcp = connect(listening.local_addr(), tls(&root, &[b"http/1.1"])).await.unwrap();
    let mut http2 = Http2::connect_to(listening.local_addr(), tls(&root, &[b"h2"])).await;
    let mut quic = Http3::connect(port, &root).await;
    let before = [certificate_serial(&tcp), quic.certificate_serial()];
    ask(&mut tcp, "/swarm/whoami").await.unwrap();
    http2.ask("/swarm/whoami").await;
    quic.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap();

    let second = certificate_after(&listening, Some(&first.serial)).await;
    assert!(second.not_after > first.not_after);
    // Existing connections continue, and a new one gets the new certificate.
    assert_eq!(ask(&mut tcp, "/swarm/whoami").await.unwrap(), "127.0.0.1 HTTP/1.1");
    assert_eq!(http2.ask("/swarm/whoami").await, "127.0.0.1 HTTP/2.0");
    quic.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap();
    let after = connect(listening.local_addr(), tls(&root, &[b"http/1.1"])).await.unwrap();
    let after = [certificate_serial(&after), Http3::connect(port, &root).await.certificate_serial()];
    assert!(before.iter().all(|serial| !after.contains(serial)), "{before:?} {after:?}");
    drop(quic);
    shutdown.cancel();
    with_timeout(listening.finished()).await;
}

/// Reads the stored account.
fn stored_account(store: &Path) -> serde_json::Value {
    let name =
        modes(store).into_iter().map(|(name, _)| name).find(|name| name.starts_with("account-")).unwrap();
    files::read_json_object(&store.join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn account_is_stored_updated_and_replaced() {
    let mut scene = match Scene::new(LONG) {
        Ok(scene) => scene,
        Err(reason) => return tools::skip("an_account_is_kept_changed_and_replaced", &reason),
    };
    let obtain = async |scene: &Scene, names: &[&str], contact: &str| {
        let mut settings = scene.settings(Challenge::TlsAlpn);
        let Mode::Acme(acme) = &mut settings.mode else { unreachable!() };
        acme.names = names.iter().map(|&name| name.to_owned()).collect();
        acme.contact = vec![contact.to_owned()];
        let (listening, shutdown) = scene.listen(settings).await;
        let certificate = certificate_after(&listening, None).await;
        shutdown.cancel();
        with_timeout(listening.finished()).await;
        let mut found = certificate.names;
        found.sort();
        (found, stored_account(&scene.store()))
    };
    let (_, first) = obtain(&scene, &["localhost"], "mailto:one@example.org").await;
    // Other names require another certificate but not another account; the contact is updated.
    let (names, second) = obtain(&scene, &["peer.example", "LOCALHOST"], "mailto:two@example.org").await;
    assert_eq!(names, ["localhost", "peer.example"]);
    assert_eq!(first["credentials"], second["credentials"]);
    assert_eq!(second["contact"][0], "mailto:two@example.org");
    // The account is created again if the server has deleted it.
    let mut pebble = scene.pebble;
    pebble = tokio::task::spawn_blocking(move || {
        pebble.replace();
        pebble
    })
    .await
    .unwrap();
    scene.pebble = pebble;
    let (_, third) = obtain(&scene, &["third.example"], "mailto:two@example.org").await;
    assert_ne!(second["credentials"], third["credentials"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn order_is_retried_until_validation_succeeds() {
    let scene = match Scene::new(LONG) {
        Ok(scene) => scene,
        Err(reason) => return tools::skip("tried_again_until_the_proof_is_seen", &reason),
    };
    // The server validates on a port on which no listener runs.
    let mut settings = scene.settings(Challenge::TlsAlpn);
    settings.address = any_port();
    let (listening, shutdown) = scene.listen(settings).await;
    let scene = tokio::task::spawn_blocking(move || {
        let mut output = String::new();
        poll::until("a second order", || {
            output.push_str(&scene.pebble.output());
            output.contains("There are now 2 orders").then_some(())
        });
        scene
    });
    let scene = scene.await.unwrap();
    assert_eq!(*listening.certificate().borrow(), None);
    // Without a certificate, handshakes fail and the listener continues.
    assert!(connect(listening.local_addr(), tls(&scene.pebble.ca().file(), &[])).await.is_err());
    shutdown.cancel();
    with_timeout(listening.finished()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_serves_only_challenges() {
    let scene = match Scene::new(LONG) {
        Ok(scene) => scene,
        Err(reason) => return tools::skip("only_challenges_are_answered_over_plain_http", &reason),
    };
    let (listening, shutdown) = scene.listen(scene.settings(scene.by_http())).await;
    certificate_after(&listening, None).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for path in ["/swarm/whoami", "/", "/.well-known/acme-challenge/unknown"] {
        let url = format!("http://127.0.0.1:{}{path}", scene.http_port);
        assert_eq!(client.get(url).send().await.unwrap().status(), 404, "{path}");
    }
    shutdown.cancel();
    with_timeout(listening.finished()).await;
}

#[tokio::test]
async fn invalid_settings_are_rejected() {
    let folder = TempDir::new().unwrap();
    let acme = || Acme {
        directory: "https://127.0.0.1:1/dir".to_owned(),
        ca_file: None,
        names: vec!["localhost".to_owned()],
        contact: Vec::new(),
        terms_agreed: true,
        challenge: Challenge::TlsAlpn,
        store: folder.path().to_owned(),
        first_retry: Acme::FIRST_RETRY,
    };
    let refusal = async |change: &dyn Fn(&mut Acme)| {
        let mut acme = acme();
        change(&mut acme);
        let settings = Settings::new(any_port(), Mode::Acme(acme));
        listen(settings, app(Gate::new()), CancellationToken::new()).await.map(|_| ()).unwrap_err()
    };
    let terms = refusal(&|acme| acme.terms_agreed = false).await;
    assert!(matches!(terms, Error::TermsNotAgreed { .. }), "{terms:?}");
    let none = refusal(&|acme| acme.names.clear()).await;
    assert!(matches!(none, Error::NoNames), "{none:?}");
    for name in ["*.example.org", "192.0.2.1", "example.org:443", "ex ample", ""] {
        let bad = refusal(&|acme| acme.names.push(name.to_owned())).await;
        assert!(matches!(bad, Error::BadName { .. }), "{name}: {bad:?}");
    }
    for directory in ["http://127.0.0.1/dir", "https://", "letsencrypt"] {
        let bad = refusal(&|acme| directory.clone_into(&mut acme.directory)).await;
        assert!(matches!(bad, Error::BadDirectory { .. }), "{directory}: {bad:?}");
    }
}
