//! Servers that want to know who is there, and those that encrypt.

use std::path::Path;

use serde_json::{Value, json};
use test_support::nats::Release;
use test_support::process::command;
use test_support::{files, poll, tools};

use super::hub::Linked;
use super::server;

/// The pair of keys that the documentation of NATS has for an example.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

/// Two hubs that log in, one that does so wrongly.
fn check(url: &str, right: &Value, wrong: &Value, complaint: &str) {
    let lab = Linked::start("lab", url, &["codex"], right.clone());
    let _office = Linked::start("office", url, &["qc-1"], right.clone());
    lab.wait_for("qc-1@office");
    let attic = Linked::start("attic", url, &["x"], wrong.clone());
    poll::until(complaint, || attic.errors().contains(complaint).then_some(()));
    let secrets = ["wr0ng", "hunter2", SEED];
    for shown in [lab.errors(), attic.errors(), attic.sandbox.run(["doctor"]).stdout] {
        assert!(!secrets.iter().any(|secret| shown.contains(secret)), "{shown}");
    }
}

#[test]
fn a_password_is_told_to_the_server_and_to_nobody_else() {
    let users = "authorization { users: [ { user: hub, password: hunter2 } ] }";
    let Some(server) = server("a_password_is_told_to_the_server_and_to_nobody_else", Release::Newest, users)
    else {
        return;
    };
    let right = json!({"user": "hub", "password": "hunter2"});
    let wrong = json!({"user": "hub", "password": "wr0ng"});
    check(&server.url(), &right, &wrong, "authorization violation");
}

#[test]
fn a_token_is_told_to_the_server_and_to_nobody_else() {
    let token = "authorization { token: hunter2 }";
    let Some(server) = server("a_token_is_told_to_the_server_and_to_nobody_else", Release::Oldest, token)
    else {
        return;
    };
    check(&server.url(), &json!({"token": "hunter2"}), &json!({"token": "wr0ng"}), "authorization violation");
}

#[test]
fn an_nkey_signs_and_a_file_without_one_is_named() {
    let users = format!("authorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}");
    let Some(server) = server("an_nkey_signs_and_a_file_without_one_is_named", Release::Newest, &users) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (seed, creds) = (folder.path().join("hub.nk"), folder.path().join("hub.creds"));
    files::put(&seed, format!("{SEED}\n"));
    files::put(&creds, format!("-----BEGIN NOTHING-----\n{SEED}\n"));
    let complaint = "hub.creds cannot be used: it holds no user JWT with its seed";
    check(&server.url(), &json!({"nkey": seed}), &json!({"creds": creds}), complaint);
}

#[test]
fn a_connection_is_encrypted_and_a_stranger_is_not_trusted() {
    let test = "a_connection_is_encrypted_and_a_stranger_is_not_trusted";
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
    if let Err(reason) = self_signed(&cert, &key) {
        return tools::skip(test, &reason);
    }
    let tls = format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", cert.display(), key.display());
    let Some(server) = server(test, Release::Newest, &tls) else { return };
    let url = server.url().replace("nats://", "tls://");
    check(&url, &json!({"tls": {"required": true, "ca": cert}}), &json!({}), "not linked with other hubs");
}

/// A certificate for this machine that vouches for itself.
fn self_signed(cert: &Path, key: &Path) -> Result<(), String> {
    let mut openssl = command("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.arg("-keyout").arg(key).arg("-out").arg(cert);
    tools::run(&mut openssl).map(drop)
}
