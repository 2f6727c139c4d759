use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::signing::tests::{vector_key, vectors};

fn invite() -> Invite {
    Invite {
        swarm_id: "660e8400-e29b-41d4-a716-446655440001".parse().unwrap(),
        master: PeerId::parse("agent-a").unwrap(),
        endpoint: Endpoint::parse("https://a.example.com/swarm").unwrap(),
        iat: 1_738_763_800,
        expires_at: Some("2099-01-01T00:00:00.000Z".to_owned()),
        exp: None,
        max_uses: Some(1),
        master_key: None,
        issuer: None,
    }
}

fn token_of(header: &Value, claims: &str, key: &SecretKey) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())))
}

#[test]
fn test_vector_round_trips() {
    let url = vectors()["invite_url"].as_str().unwrap().to_owned();
    let link = InviteLink::parse(&url).unwrap();
    let token = link.open().unwrap();
    assert_eq!(token.invite, invite());
    token.verify(&vector_key().public()).unwrap();
    let ours = invite().link(invite().sign(&vector_key()));
    assert_eq!(ours.reveal(), url);
    assert!(!format!("{ours} {ours:?}").contains(&ours.token), "a token is never shown");
}

/// The sixteen encodings of the last character, and padding.
#[test]
fn token_has_one_spelling() {
    let token = invite().sign(&vector_key());
    let (start, last) = token.split_at(token.len() - 1);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=";
    let read = |text: String| Token::read(&text).is_ok_and(|t| t.verify(&vector_key().public()).is_ok());
    let accepted: Vec<char> = alphabet.chars().filter(|c| read(format!("{start}{c}"))).collect();
    assert_eq!(accepted, last.chars().collect::<Vec<_>>());
    assert!(!read(format!("{token}==")));
    assert!(!read(format!("{token}.")));
}

#[test]
fn forged_headers_and_claims_are_refused() {
    let (key, good) = (vector_key(), serde_json::to_string(&invite()).unwrap());
    let eddsa = json!({ "alg": "EdDSA", "typ": "JWT" });
    for header in [
        json!({ "alg": "none", "typ": "JWT" }),
        json!({ "alg": "HS256", "typ": "JWT" }),
        json!({ "alg": "eddsa" }),
        json!({ "typ": "JWT" }),
        json!({ "alg": "EdDSA", "crit": ["x"] }),
        json!({ "alg": "EdDSA", "typ": "JWS" }),
        json!(["EdDSA"]),
    ] {
        assert!(Token::read(&token_of(&header, &good, &key)).is_err(), "{header}");
    }
    // A key in the header is never read.
    let with_key =
        json!({ "alg": "EdDSA", "jwk": { "x": "y" }, "jku": "https://evil.example.com", "kid": "../x" });
    Token::read(&token_of(&with_key, &good, &key)).unwrap().verify(&key.public()).unwrap();
    for claims in [
        good.replace("\"max_uses\":1", "\"max_uses\":0"),
        good.replace("\"max_uses\":1", "\"max_uses\":-1"),
        good.replace("\"max_uses\":1", "\"max_uses\":1.5"),
        good.replace("\"max_uses\":1", "\"max_uses\":1,\"max_uses\":9"),
        good.replace("https://", "http://"),
        good.replace("2099-01-01T00:00:00.000Z", "soon"),
        good.replace("agent-a", "a b"),
        "[]".to_owned(),
        "{}".to_owned(),
    ] {
        assert!(Token::read(&token_of(&eddsa, &claims, &key)).is_err(), "{claims}");
    }
    assert!(Token::read("a.b").is_err());
    assert!(Token::read(&"x".repeat(5000)).is_err());
}

#[test]
fn foreign_key_or_edited_claim_fails() {
    let token = invite().sign(&vector_key());
    let other = SecretKey::from_seed(&[7; 32]).public();
    assert_eq!(Token::read(&token).unwrap().verify(&other), Err(InviteError::Signature));
    let edited = Invite { endpoint: Endpoint::parse("https://evil.example.com/swarm").unwrap(), ..invite() };
    let parts: Vec<_> = token.split('.').collect();
    let claims = URL_SAFE_NO_PAD.encode(serde_json::to_string(&edited).unwrap());
    let forged = format!("{}.{claims}.{}", parts[0], parts[2]);
    assert_eq!(Token::read(&forged).unwrap().verify(&vector_key().public()), Err(InviteError::Signature));
}

#[test]
fn link_and_token_must_agree() {
    let token = invite().sign(&vector_key());
    let open = |text: String| InviteLink::parse(&text).and_then(|link| link.open().map(|_| ()));
    let id = invite().swarm_id;
    assert_eq!(open(format!("swarm://{id}@a.example.com?token={token}")), Ok(()));
    let elsewhere = format!("swarm://{id}@evil.example.com?token={token}");
    assert_eq!(open(elsewhere), Err(InviteError::Mismatch { what: "hosts" }));
    let other = format!("swarm://550e8400-e29b-41d4-a716-446655440000@a.example.com?token={token}");
    assert_eq!(open(other), Err(InviteError::Mismatch { what: "swarms" }));
    for bad in ["", "https://a", "swarm://x@a?token=b", "swarm://a.example.com?token=b", "swarm://@?token="] {
        assert!(InviteLink::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn earlier_expiry_counts() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let mut invite = Invite { expires_at: Some("2026-01-02T00:00:00.000+00:00".to_owned()), ..invite() };
    assert!(invite.check_time(at("2026-01-01T23:59:59Z")).is_ok());
    assert!(invite.check_time(at("2026-01-02T00:00:00Z")).is_err());
    invite.exp = Some(at("2026-01-01T00:00:00Z").as_second());
    assert!(invite.check_time(at("2026-01-01T12:00:00Z")).is_err(), "exp is not ignored");
}

proptest! {
    #[test]
    fn garbage_is_an_error(text in "[A-Za-z0-9_.=-]{0,120}") {
        let _ = Token::read(&text);
        let _ = InviteLink::parse(&format!("swarm://{text}"));
    }

    #[test]
    fn signed_invite_round_trips(uses in proptest::option::of(1_u32..1000), iat in 0_i64..4_000_000_000) {
        let invite = Invite { max_uses: uses, iat, ..invite() };
        let token = Token::read(&invite.sign(&vector_key())).unwrap();
        prop_assert!(token.verify(&vector_key().public()).is_ok());
        prop_assert_eq!(token.invite, invite);
    }

    /// Any change invalidates a token: every bit of it is parsed or signed.
    #[test]
    fn altered_token_is_invalid(at in any::<usize>(), letter in "[A-Za-z0-9_.=-]", how in 0_u8..3) {
        let good = invite().sign(&vector_key());
        let (start, mut changed) = (at % good.len(), good.clone());
        match how {
            0 => changed.replace_range(start..=start, &letter),
            1 => changed.insert_str(start, &letter),
            _ => changed.truncate(start),
        }
        let holds = Token::read(&changed).and_then(|token| token.verify(&vector_key().public())).is_ok();
        prop_assert_eq!(holds, changed == good, "{}", changed);
    }
}
