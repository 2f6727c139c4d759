//! Tests of certificates from files, of TLS and HTTP versions, and of rejected settings.

use std::path::PathBuf;

use http::{HeaderName, Version};
use test_support::ca::Validity;
use test_support::process::command;
use test_support::{files, tools};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::rig::{Gate, Rig, any_port, app, ask, certificate_serial, with_timeout};
use crate::{Error, Mode, Settings, listen};

#[tokio::test]
async fn http1_and_http2_are_served() {
    let rig = Rig::with(|_| {}).await;
    for (client, version) in [
        (rig.client().http1_only(), Version::HTTP_11),
        (rig.client().http2_prior_knowledge(), Version::HTTP_2),
        (rig.client(), Version::HTTP_2),
    ] {
        let response = client.build().unwrap().get(rig.url("/swarm/whoami")).send().await.unwrap();
        assert_eq!(response.version(), version);
        assert_eq!(response.headers().get("alt-svc"), None);
        assert_eq!(response.text().await.unwrap(), format!("127.0.0.1 {version:?}"));
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_is_served() {
    let rig = Rig::with(|_| {}).await;
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let mut curl = command("/usr/bin/curl");
        curl.args(["--silent", "--show-error", option, "--write-out", " over %{http_version}", "--cacert"]);
        curl.arg(rig.ca.file()).arg(rig.url("/swarm/whoami"));
        match tools::run(&mut curl) {
            Ok(output) => assert!(output.ends_with(&format!(" over {version}")), "{output}"),
            Err(reason) => tools::skip("curl_is_served", &reason),
        }
    }
    rig.stop().await;
}

/// Builds the ClientHello of a client that supports at most TLS 1.1 or TLS 1.2.
fn hello(minor: u8) -> Vec<u8> {
    let mut body = vec![3, minor];
    body.extend([7; 32]);
    // The ClientHello has no session id, one cipher suite (TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) and no compression.
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    // The extensions are the curve, the point format and the signature algorithms.
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3];
    body.extend([0, u8::try_from(extensions.len()).unwrap()]);
    body.extend(extensions);
    let length = u8::try_from(body.len()).unwrap();
    let mut hello = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    hello.extend(body);
    hello
}

#[tokio::test]
async fn tls_1_1_is_refused() {
    let rig = Rig::with(|_| {}).await;
    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    stream.write_all(&hello(3)).await.unwrap();
    assert_eq!(with_timeout(stream.read_u8()).await.unwrap(), 22, "TLS 1.2 is not answered");

    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    stream.write_all(&hello(2)).await.unwrap();
    let mut answer = Vec::new();
    with_timeout(stream.read_to_end(&mut answer)).await.unwrap();
    // The answer is the fatal alert `protocol_version`.
    assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{answer:?}");
    rig.stop().await;
}

#[tokio::test]
async fn reloaded_certificate_leaves_connections_open() {
    let rig = Rig::with(|_| {}).await;
    let mut certificate = rig.listening.certificate();
    let mut old = rig.connect(&[b"http/1.1"]).await.unwrap();
    assert_eq!(certificate_serial(&old), "01");
    ask(&mut old, "/swarm/whoami").await.unwrap();

    let (cert, key) = (rig.ca.file().with_file_name("cert.pem"), rig.ca.file().with_file_name("key.pem"));
    certificate.mark_unchanged();
    rig.ca.issue(&["localhost"], Validity::Valid, 2).write(&cert, &key);
    with_timeout(certificate.changed()).await.unwrap();

    assert_eq!(certificate_serial(&rig.connect(&[]).await.unwrap()), "02");
    // The existing connection still works with the old certificate.
    assert_eq!(ask(&mut old, "/swarm/whoami").await.unwrap(), "127.0.0.1 HTTP/1.1");
    rig.stop().await;
}

#[tokio::test]
async fn invalid_change_preserves_old_certificate() {
    let rig = Rig::with(|_| {}).await;
    let mut certificate = rig.listening.certificate();
    certificate.mark_unchanged();
    let (cert, key) = (rig.ca.file().with_file_name("cert.pem"), rig.ca.file().with_file_name("key.pem"));
    // The file gets another certificate without its key, then no certificate at all; each state is polled several
    // times.
    files::put_by_rename(&cert, rig.ca.issue(&["localhost"], Validity::Valid, 3).cert);
    assert_eq!(certificate_serial(&rig.connect(&[]).await.unwrap()), "01");
    files::put_by_rename(&cert, "nothing");
    assert_eq!(certificate_serial(&rig.connect(&[]).await.unwrap()), "01");
    // The valid pair that is written next is the first change that is loaded.
    rig.ca.issue(&["localhost"], Validity::Valid, 4).write(&cert, &key);
    with_timeout(certificate.changed()).await.unwrap();
    assert_eq!(certificate.borrow().as_ref().unwrap().serial, "04");
    rig.stop().await;
}

#[tokio::test]
async fn symbolic_links_are_followed() {
    let rig = Rig::with(|settings| {
        let Mode::Files { cert, key } = &mut settings.mode else { unreachable!() };
        for path in [cert, key] {
            let link = path.with_extension("link");
            std::os::unix::fs::symlink(&*path, &link).unwrap();
            *path = link;
        }
    })
    .await;
    let mut certificate = rig.listening.certificate();
    certificate.mark_unchanged();
    let other = rig.ca.issue(&["localhost"], Validity::Valid, 5);
    let (cert, key) = (rig.ca.file().with_file_name("c5.pem"), rig.ca.file().with_file_name("k5.pem"));
    other.write(&cert, &key);
    // As in a renewal by certbot, the symbolic links get new targets and no file changes.
    for (path, link) in [(&key, "key.link"), (&cert, "cert.link")] {
        let link = rig.ca.file().with_file_name(link);
        let temp = link.with_extension("new");
        std::os::unix::fs::symlink(path, &temp).unwrap();
        files::rename(&temp, &link);
    }
    with_timeout(certificate.changed()).await.unwrap();
    assert_eq!(certificate.borrow().as_ref().unwrap().serial, "05");
    rig.stop().await;
}

async fn refusal(settings: Settings) -> Error {
    listen(settings, app(Gate::new()), CancellationToken::new()).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn invalid_certificate_files_fail_at_start() {
    let rig = Rig::with(|_| {}).await;
    let file = |name: &str| rig.ca.file().with_file_name(name);
    let of_files = |cert: PathBuf, key: PathBuf| Settings::new(any_port(), Mode::Files { cert, key });
    let missing = refusal(of_files(file("none.pem"), file("key.pem"))).await;
    assert!(matches!(missing, Error::NoFile { what: "certificate", .. }), "{missing:?}");
    let no_key = refusal(of_files(file("cert.pem"), file("cert.pem"))).await;
    // The certificate is world-readable, so it is rejected before it is parsed as a key.
    assert!(matches!(no_key, Error::OpenKey { .. }), "{no_key:?}");
    assert!(no_key.to_string().contains("chmod 600"), "{no_key}");

    rig.ca.issue(&["localhost"], Validity::Valid, 2).write(&file("c2.pem"), &file("k2.pem"));
    let other = refusal(of_files(file("cert.pem"), file("k2.pem"))).await;
    assert!(matches!(other, Error::OtherKey { .. }), "{other:?}");
    files::put(file("empty.pem"), "");
    let empty = refusal(of_files(file("empty.pem"), file("key.pem"))).await;
    assert!(matches!(empty, Error::BadPem { expected: "certificate", .. }), "{empty:?}");

    let mut taken = of_files(file("cert.pem"), file("key.pem"));
    taken.address = rig.address();
    let taken = refusal(taken).await;
    assert!(matches!(taken, Error::Bind { protocol: "TCP", .. }), "{taken:?}");

    let proxy = |header: &'static str| Mode::BehindProxy { header: HeaderName::from_static(header) };
    let public = refusal(Settings::new("0.0.0.0:0".parse().unwrap(), proxy("x-forwarded-for"))).await;
    assert!(matches!(public, Error::NotLoopback { .. }), "{public:?}");
    let forwarded = refusal(Settings::new(any_port(), proxy("forwarded"))).await;
    assert!(matches!(forwarded, Error::BadHeader { .. }), "{forwarded:?}");
    let mut http3 = Settings::new(any_port(), proxy("x-forwarded-for"));
    http3.http3 = true;
    let http3 = refusal(http3).await;
    assert!(matches!(http3, Error::Http3BehindProxy), "{http3:?}");
    rig.stop().await;
}

#[tokio::test]
async fn readable_private_key_is_rejected() {
    let rig = Rig::with(|_| {}).await;
    let (cert, key) = (rig.ca.file().with_file_name("cert.pem"), rig.ca.file().with_file_name("key.pem"));
    for (mode, is_fine) in [(0o600, true), (0o400, true), (0o644, false), (0o604, false), (0o660, false)] {
        files::chmod(&key, mode);
        let settings = Settings::new(any_port(), Mode::Files { cert: cert.clone(), key: key.clone() });
        let shutdown = CancellationToken::new();
        let started = listen(settings, app(Gate::new()), shutdown.clone()).await;
        shutdown.cancel();
        match started {
            Ok(_) => assert!(is_fine, "{mode:o}"),
            Err(Error::OpenKey { mode: found, .. }) => assert!(!is_fine && found == mode, "{mode:o}"),
            Err(error) => panic!("{mode:o}: {error:?}"),
        }
    }
    rig.stop().await;
}
