//! Calls that are blocked (SSRF) or fail because a certificate is not trusted.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use test_support::ca::{Issued, PrivateCa, Validity};
use test_support::process::command;

use super::resolver::Lookup;
use super::test_server::{Scripted, answer, get, settings};
use crate::listen_tests::PATIENCE;
use crate::{Client, ClientSettings, Error, Limits, Url};

/// Creates a client whose DNS lookups are faked.
fn client_with(
    settings: ClientSettings,
    lookup: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static,
) -> Client {
    Client::with_lookup(settings, Lookup::Fake(Arc::new(lookup))).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Socket that must not receive a connection.
struct Quiet(TcpListener);

impl Quiet {
    fn on(address: &str) -> Option<Self> {
        let socket = TcpListener::bind(address).ok()?;
        socket.set_nonblocking(true).unwrap();
        Some(Self(socket))
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    fn assert_quiet(&self) {
        let heard = self.0.accept();
        assert!(matches!(&heard, Err(error) if error.kind() == ErrorKind::WouldBlock), "{heard:?}");
    }
}

#[tokio::test]
async fn ssrf_to_local_addresses_is_blocked() {
    let quiet = Quiet::on("127.0.0.1:0").unwrap();
    let port = quiet.port();
    let quiet_v6 = Quiet::on(&format!("[::1]:{port}"));
    let client = Client::new(ClientSettings::default()).unwrap();
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ] {
        let url = Url::parse(&format!("https://{host}:{port}/any/path?x=1#")).unwrap();
        let refused = get(&client, &url).await;
        assert!(matches!(refused, Err(Error::Forbidden { .. })), "{host}: {refused:?}");
        assert!(!refused.unwrap_err().is_temporary());
    }
    let plain = Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap();
    assert!(matches!(get(&client, &plain).await, Err(Error::BadUrl { .. })));
    quiet.assert_quiet();
    if let Some(quiet) = quiet_v6 {
        quiet.assert_quiet();
    }
}

#[tokio::test]
async fn name_with_private_address_is_blocked() {
    let quiet = Quiet::on("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("https://peer.example:{}/", quiet.port())).unwrap();
    for addresses in [
        vec!["127.0.0.1"],
        vec!["169.254.169.254"],
        vec!["10.0.0.1", "127.0.0.1"],
        // A public address does not make the others acceptable.
        vec!["1.1.1.1", "127.0.0.1"],
        vec!["127.0.0.1", "1.1.1.1"],
        vec!["::ffff:127.0.0.1"],
        vec!["fd00::1"],
    ] {
        let found: Vec<_> = addresses.iter().map(|address| ip(address)).collect();
        let client = client_with(ClientSettings::default(), move |_| found.clone());
        let refused = get(&client, &url).await;
        let Err(Error::Forbidden { host, .. }) = &refused else { panic!("{addresses:?}: {refused:?}") };
        assert_eq!(host, "peer.example");
    }
    quiet.assert_quiet();
}

#[tokio::test]
async fn dns_rebinding_is_blocked() {
    let ca = PrivateCa::new();
    let certificate = ca.issue(&["peer.example"], Validity::Valid, 1);
    // The server closes after each response, so that each call opens a connection.
    let server = Scripted::start(
        &certificate,
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        true,
    )
    .await;
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let mut settings = settings(&ca.file());
    settings.allow = vec!["127.0.0.1".to_owned()];
    // From the second lookup on, the name has another address (DNS rebinding).
    let client = client_with(settings, move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 => vec![ip("127.0.0.1")],
        _ => vec![ip("127.0.0.2")],
    });
    assert_eq!(get(&client, &server.url("peer.example")).await.unwrap().status, 200);
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    let refused = get(&client, &server.url("peer.example")).await;
    assert!(
        matches!(refused, Err(Error::Forbidden { address, .. }) if address == ip("127.0.0.2")),
        "{refused:?}"
    );
    assert_eq!(lookups.load(Ordering::SeqCst), 2);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn unresolved_name_is_an_error() {
    let client = client_with(ClientSettings::default(), |_| Vec::new());
    let unknown = get(&client, &Url::parse("https://peer.example/").unwrap()).await;
    assert!(matches!(&unknown, Err(error @ Error::Unknown { .. }) if error.is_temporary()), "{unknown:?}");
}

/// Returns the error of a call whose certificate must be rejected.
async fn certificate_error(
    ca: &PrivateCa,
    certificate: &Issued,
    change: impl FnOnce(&mut ClientSettings),
) -> String {
    let server = Scripted::start(certificate, answer("200 OK", "", ""), false).await;
    let mut settings = settings(&ca.file());
    change(&mut settings);
    let client = Client::new(settings).unwrap();
    let failed = get(&client, &server.url("localhost")).await.unwrap_err();
    assert!(matches!(failed, Error::Failed { .. }), "{failed:?}");
    // No byte of a request was sent.
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
    format!("{failed:?}")
}

#[tokio::test]
async fn invalid_certificates_are_rejected() {
    let (ca, other) = (PrivateCa::new(), PrivateCa::new());
    let good = ca.issue(&["localhost"], Validity::Valid, 7);
    let expired = certificate_error(&ca, &ca.issue(&["localhost"], Validity::Expired, 1), |_| {}).await;
    assert!(expired.contains("Expired"), "{expired}");
    let wrong_name = certificate_error(&ca, &ca.issue(&["peer.example"], Validity::Valid, 1), |_| {}).await;
    assert!(wrong_name.contains("NotValidForName"), "{wrong_name}");
    let unknown = certificate_error(&ca, &other.issue(&["localhost"], Validity::Valid, 1), |_| {}).await;
    assert!(unknown.contains("UnknownIssuer") || unknown.contains("BadSignature"), "{unknown}");
    let only_system = certificate_error(&ca, &good, |settings| {
        // The system's CAs do not include the test's CA; one CA is required to create a client.
        settings.ca_file = Some(other.file());
    });
    let only_system = only_system.await;
    assert!(only_system.contains("UnknownIssuer") || only_system.contains("BadSignature"), "{only_system}");
    let revoked = certificate_error(&ca, &good, |settings| settings.crl_files = vec![ca.revoke(7)]).await;
    assert!(revoked.contains("Revoked"), "{revoked}");
    // The same CRL does not affect another certificate.
    let server =
        Scripted::start(&ca.issue(&["localhost"], Validity::Valid, 8), answer("200 OK", "", ""), false).await;
    let mut settings = settings(&ca.file());
    settings.crl_files = vec![ca.revoke(7)];
    assert_eq!(get(&Client::new(settings).unwrap(), &server.url("localhost")).await.unwrap().status, 200);
}

#[tokio::test]
async fn self_signed_certificate_is_rejected() {
    let ca = PrivateCa::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let own = Issued { cert: own.pem(), key: key.serialize_pem(), serial: 0 };
    let refused = certificate_error(&ca, &own, |_| {}).await;
    assert!(refused.contains("UnknownIssuer"), "{refused}");
}

#[test]
fn invalid_settings_are_rejected() {
    let ca = PrivateCa::new();
    let refused = |change: &dyn Fn(&mut ClientSettings)| {
        let mut settings = settings(&ca.file());
        change(&mut settings);
        Client::new(settings).unwrap_err()
    };
    let missing = refused(&|settings| settings.ca_file = Some("/none/ca.pem".into()));
    assert!(matches!(missing, Error::NoFile { what: "CA file", .. }), "{missing:?}");
    let (_, key) = ca.issue_files(&["localhost"], Validity::Valid);
    let no_ca = refused(&|settings| settings.ca_file = Some(key.clone()));
    assert!(matches!(no_ca, Error::BadPem { expected: "certificate", .. }), "{no_ca:?}");
    let no_crl = refused(&|settings| settings.crl_files = vec![ca.file()]);
    assert!(matches!(no_crl, Error::BadPem { expected: "X509 CRL", .. }), "{no_crl:?}");
}

/// Run by the test below, in a process with a proxy in its environment.
#[tokio::test]
#[ignore = "needs the environment that the test below gives it"]
async fn call_with_proxy_in_environment() {
    assert!(std::env::var("HTTPS_PROXY").is_ok());
    let ca = PrivateCa::new();
    let server = Scripted::good(&ca, answer("200 OK", "", "")).await;
    let client = Client::new(settings(&ca.file())).unwrap();
    let limits = Limits { time: PATIENCE, body: 0 };
    client.get(&server.url("localhost"), HeaderMap::new(), limits).await.unwrap();
    // The proxy is not used to reach forbidden addresses either.
    let inside = Url::parse("https://10.0.0.1/").unwrap();
    let refused = client.get(&inside, HeaderMap::new(), limits).await;
    assert!(matches!(refused, Err(Error::Forbidden { .. })), "{refused:?}");
}

#[test]
fn environment_proxies_are_ignored() {
    let quiet = Quiet::on("127.0.0.1:0").unwrap();
    let proxy = format!("http://127.0.0.1:{}", quiet.port());
    let mut test = command(std::env::current_exe().unwrap());
    test.args(["--ignored", "--exact", "client::refusal_tests::call_with_proxy_in_environment"]);
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"] {
        test.env(name, &proxy);
    }
    let output = test_support::tools::run(&mut test).unwrap();
    assert!(output.contains("1 passed"), "{output}");
    quiet.assert_quiet();
}
