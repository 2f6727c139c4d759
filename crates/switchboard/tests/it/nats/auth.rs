//! Servers with authentication, and servers with encryption.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use test_support::nats::Release;
use test_support::process::command;
use test_support::{files, poll, tools};

use super::hub::Linked;
use super::server;

/// The example key pair of the NATS documentation.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

/// Checks two hubs that log in, and one with wrong credentials.
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
fn password_reaches_only_the_server() {
    let users = "authorization { users: [ { user: hub, password: hunter2 } ] }";
    let Some(server) = server("password_reaches_only_the_server", Release::Newest, users) else {
        return;
    };
    let right = json!({"user": "hub", "password": "hunter2"});
    let wrong = json!({"user": "hub", "password": "wr0ng"});
    check(&server.url(), &right, &wrong, "authorization violation");
}

#[test]
fn token_reaches_only_the_server() {
    let token = "authorization { token: hunter2 }";
    let Some(server) = server("token_reaches_only_the_server", Release::Oldest, token) else {
        return;
    };
    check(&server.url(), &json!({"token": "hunter2"}), &json!({"token": "wr0ng"}), "authorization violation");
}

#[test]
fn nkey_signs_and_bad_file_is_named() {
    let users = format!("authorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}");
    let Some(server) = server("nkey_signs_and_bad_file_is_named", Release::Newest, &users) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (seed, creds) = (folder.path().join("hub.nk"), folder.path().join("hub.creds"));
    files::put(&seed, format!("{SEED}\n"));
    files::put(&creds, format!("-----BEGIN NOTHING-----\n{SEED}\n"));
    let complaint = "hub.creds cannot be used: it has no user JWT with a seed";
    check(&server.url(), &json!({"nkey": seed}), &json!({"creds": creds}), complaint);
}

#[test]
fn credentials_file_satisfies_operator_server() {
    let test = "credentials_file_satisfies_operator_server";
    let operator = Authority::new();
    let Some(server) = server(test, Release::Newest, &operator.config) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (folder.path().join("hub.creds"), folder.path().join("stranger.creds"));
    files::put(&right, user_of(&operator.account));
    files::put(&wrong, user_of(&KeyPair::new_account()));
    check(&server.url(), &json!({"creds": right}), &json!({"creds": wrong}), "authorization violation");
}

/// An operator with an account for hubs, as `nsc` creates them.
struct Authority {
    account: KeyPair,
    /// Configuration of its server.
    config: String,
}

impl Authority {
    fn new() -> Self {
        let (operator, system, account) =
            (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
        let account_jwt = |of: &KeyPair, storage: i32| {
            let limits = json!({
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
                "leaf": -1, "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
            });
            jwt(&operator, of, json!({ "type": "account", "version": 2, "limits": limits }))
        };
        let config = format!(
            "operator: {}\nsystem_account: {system}\nresolver: MEMORY\n\
             resolver_preload {{ {system}: {}, {account}: {} }}",
            jwt(&operator, &operator, json!({ "type": "operator", "version": 2 })),
            account_jwt(&system, 0),
            account_jwt(&account, -1),
            system = system.public_key(),
            account = account.public_key(),
        );
        Self { account, config }
    }
}

/// Returns the credentials file of a new user of an account.
fn user_of(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let rights =
        json!({ "type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1 });
    format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt(account, &user, rights),
        user.seed().unwrap()
    )
}

/// Returns a JWT that one key signs for another, in the NATS format.
fn jwt(issuer: &KeyPair, subject: &KeyPair, rights: Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "jti": subject.public_key(), "iat": 1_700_000_000, "iss": issuer.public_key(),
        "sub": subject.public_key(), "name": "switchboard", "nats": rights,
    });
    let signed = format!("{}.{}", part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

/// The permissions that docs/scaling.md lists are enough for everything a hub does.
#[test]
fn hubs_work_within_documented_permissions() {
    let test = "hubs_work_within_documented_permissions";
    let user = |hub: &str| {
        let publish = [
            format!("switchboard.{hub}.>"),
            format!("switchboard_live.hubs.{hub}"),
            format!("$KV.switchboard_agents.{hub}"),
            format!("$KV.switchboard_agents.{hub}.>"),
            format!("$KV.switchboard_presence.{hub}"),
            "$KV.switchboard_claims.>".to_owned(),
            "$JS.API.>".to_owned(),
        ];
        let permissions = json!({ "publish": publish, "subscribe": ["_INBOX.>", "switchboard_live.>"] });
        json!({ "user": hub, "password": "hunter2", "permissions": permissions })
    };
    let users = format!("authorization {{ users: {} }}", json!([user("lab"), user("office")]));
    let Some(server) = server(test, Release::Newest, &users) else { return };
    let login = |hub: &str| json!({ "user": hub, "password": "hunter2" });
    let mut lab = Linked::start("lab", &server.url(), &["codex"], login("lab"));
    let office = Linked::start("office", &server.url(), &["qc-1"], login("office"));
    lab.wait_for("qc-1@office");
    office.wait_for("codex@lab");
    let sent = lab.send("codex", &["qc-1", "please look"]);
    office.wait_for_mail("qc-1", "please look");
    lab.wait_for_state(sent["native_id"].as_str().unwrap(), "qc-1@office", "delivered");
    lab.send("codex", &["all", "to everyone"]);
    office.wait_for_mail("qc-1", "to everyone");
    let _watcher = lab.sandbox.start(["watch", "--agent", "codex", "--channel", "general", "--", "true"]);
    let is = |presence: &str| office.presence("codex@lab").as_deref() == Some(presence);
    poll::until("the watcher to show", || is("awake").then_some(()));
    lab.sandbox.run_as("codex", ["claim", "T", "--everywhere"]).ok();
    lab.serve.as_mut().unwrap().terminate();
    poll::until("the end of the hub to show", || is("offline").then_some(()));
    for hub in [&lab, &office] {
        let errors = hub.errors();
        assert!(!errors.to_lowercase().contains("permission"), "{errors}");
    }
}

#[test]
fn connection_is_encrypted_and_rejects_unknown_certificate() {
    let test = "connection_is_encrypted_and_rejects_unknown_certificate";
    let folder = tempfile::tempdir().unwrap();
    if let Err(reason) = certify(folder.path()) {
        return tools::skip(test, &reason);
    }
    let file = |name: &str| folder.path().join(name);
    let (cert, key) = (file("server.pem"), file("server.key"));
    let tls = format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", cert.display(), key.display());
    let Some(server) = server(test, Release::Newest, &tls) else { return };
    let right = json!({"tls": {"required": true, "ca": file("ca.pem")}});
    check(&server.url(), &right, &json!({}), "invalid peer certificate");
}

/// Creates an authority, and its certificate for this machine.
fn certify(folder: &Path) -> Result<(), String> {
    files::put(folder.join("server.ext"), "subjectAltName = IP:127.0.0.1\nbasicConstraints = CA:FALSE\n");
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let steps = [
        format!("req -x509 {new} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"),
        format!("req {new} -subj /CN=server -keyout server.key -out server.csr"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem"
            .to_owned(),
    ];
    for step in steps {
        tools::run(command("openssl").current_dir(folder).args(step.split(' ')))?;
    }
    Ok(())
}
