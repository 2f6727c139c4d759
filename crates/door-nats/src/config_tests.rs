use super::*;

#[test]
fn secrets_are_redacted() {
    let password = Secret::new("hunter2");
    let auth = Auth::Password { user: "hub".into(), password };
    let servers =
        vec!["nats://hub:hunter2@10.0.0.1:4222".into(), "hunter2@host".into(), "tls://c:4222".into()];
    let config = Config { auth, ..Config::new(servers) };
    assert_eq!(config.redacted_servers(), "nats://10.0.0.1:4222, host, tls://c:4222");
    assert_eq!(format!("{:?}", config.auth), "Password { user: \"hub\", password: (secret) }");
    assert_eq!(Secret::new("a").reveal(), "a");
}

#[test]
fn invalid_settings_are_named() {
    let config = || Config::new(vec!["localhost".into()]);
    assert_eq!(config().validate(), Ok(config()));
    let refused = |config: Config| config.validate().expect_err("refused").to_string();
    assert!(refused(Config::new(vec![])).contains("'nats.url' is empty"));
    assert!(refused(Config { prefix: "a.b".into(), ..config() }).contains("'nats.streamPrefix' is 'a.b'"));
    assert!(refused(Config { replicas: 7, ..config() }).contains("'nats.replicas' is 7"));
    let web = Config::new(vec!["nats://a:4222".into(), "http://b:80".into()]);
    assert!(refused(web).contains("'nats.url' begins with 'http://'"));
}
