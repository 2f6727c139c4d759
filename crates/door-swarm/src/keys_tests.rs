use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair};
use sha2::{Digest as _, Sha256};

use super::*;

fn key() -> SecretKey {
    SecretKey::from_seed(&std::array::from_fn(|n| u8::try_from(n).unwrap()))
}

#[test]
fn raw_and_der_are_the_same_key_and_raw_is_written() {
    let raw = key().public().to_wire();
    assert_eq!(raw, "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");
    let mut der = ED25519_SPKI.to_vec();
    der.extend_from_slice(&key().public().bytes);
    let from_der = PublicKey::parse(&STANDARD.encode(der)).unwrap();
    assert_eq!(from_der, key().public());
    assert_eq!(from_der.to_wire(), raw);
}

/// S8: small orders, odd spellings, other lengths and alphabets.
#[test]
fn keys_that_verify_anything_are_refused() {
    let mut bad = vec!["zzz".to_owned(), String::new(), " ".to_owned(), "A".repeat(3000)];
    // The neutral element, points of order 2, 4 and 8, and one that is written with y >= p.
    for hex in [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ] {
        let bytes: Vec<u8> =
            (0..32).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
        bad.push(STANDARD.encode(bytes));
    }
    let good = key().public().to_wire();
    bad.push(good.trim_end_matches('=').to_owned());
    bad.push(good.replace('/', "_"));
    bad.push(format!("{good}\n"));
    bad.push(good.replace("bg=", "bh="));
    for text in bad {
        assert!(PublicKey::parse(&text).is_err(), "{text:?}");
    }
}

#[test]
fn rsa_signatures_of_both_kinds_verify_and_small_keys_do_not() {
    let pair = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let public = PublicKey::parse(&STANDARD.encode(pair.public_key().as_ref())).unwrap();
    let message = b"some message";
    let digest: [u8; 32] = Sha256::digest(message).into();
    let ways: [&'static dyn aws_lc_rs::signature::RsaEncoding; 2] = [&RSA_PKCS1_SHA256, &RSA_PSS_SHA256];
    for way in ways {
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(way, &SystemRandom::new(), message, &mut signature).unwrap();
        assert!(public.verify_digest(message, &digest, &signature));
        assert!(!public.verify_digest(b"another", &digest, &signature));
    }
    assert!(public.ed25519().is_none());
    assert_eq!(PublicKey::parse(&public.to_wire()).unwrap(), public);
}

/// S25: a key that others may read is refused.
#[test]
fn a_key_file_has_32_bytes_and_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    assert!(SecretKey::read(&dir, "agent.key").unwrap().is_none());
    assert!(key().write_new(&dir, "agent.key").unwrap());
    assert!(!key().write_new(&dir, "agent.key").unwrap(), "a key is never overwritten");
    let path = folder.path().join("agent.key");
    assert_eq!(std::fs::read(&path).unwrap().len(), 32);
    assert_eq!(SecretKey::read(&dir, "agent.key").unwrap().unwrap().public(), key().public());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = SecretKey::read(&dir, "agent.key").unwrap_err();
    assert!(matches!(error, KeyError::Exposed { mode: 0o644, .. }), "{error}");
    dir.replace("short.key", b"abc", 0o600).unwrap();
    assert!(matches!(SecretKey::read(&dir, "short.key"), Err(KeyError::Seed { bytes: 3, .. })));
}
