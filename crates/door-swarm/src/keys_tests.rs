use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair};
use sha2::{Digest as _, Sha256};

use super::*;

fn key() -> SecretKey {
    SecretKey::from_seed(&std::array::from_fn(|n| u8::try_from(n).unwrap()))
}

#[test]
fn raw_and_der_are_one_key() {
    let raw = key().public().to_wire();
    assert_eq!(raw, "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");
    let mut der = ED25519_SPKI.to_vec();
    der.extend_from_slice(&key().public().bytes);
    let from_der = PublicKey::parse(&STANDARD.encode(der)).unwrap();
    assert_eq!(from_der, key().public());
    assert_eq!(from_der.to_wire(), raw);
}

/// Keys of small order, non-canonical encodings, wrong lengths and alphabets.
#[test]
fn weak_keys_are_refused() {
    let mut bad = vec!["zzz".to_owned(), String::new(), " ".to_owned(), "A".repeat(3000)];
    // The neutral element, points of order 2, 4 and 8, and one encoded with y >= p.
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
fn rsa_signatures_of_both_schemes_verify() {
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

/// A key file that other users can read is refused.
#[test]
fn key_file_is_private_and_32_bytes() {
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

/// A second encoding of a point, which lax parsers take for a different key.
#[test]
fn non_canonical_ed25519_is_refused() {
    // y = p + n for each n below 19: the same points as y = n.
    for n in 0..19_u8 {
        for sign in [0, 0x80] {
            let mut bytes = [0xff_u8; 32];
            bytes[0] = 0xed + n;
            bytes[31] = 0x7f | sign;
            for der in [&[][..], &ED25519_SPKI] {
                let text = STANDARD.encode([der, &bytes].concat());
                assert!(PublicKey::parse(&text).is_err(), "p + {n}");
            }
        }
    }
}

fn integer(bytes: &[u8]) -> Vec<u8> {
    let mut der = vec![0x02, 0x82];
    der.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
    der.extend_from_slice(bytes);
    der
}

fn sequence(content: &[u8]) -> Vec<u8> {
    let mut der = vec![0x30, 0x82];
    der.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
    der.extend_from_slice(content);
    der
}

/// Builds an RSA key with a modulus of `bits` bits, in PKCS#1 form.
fn rsa_key(bits: usize, exponent: &[u8]) -> Vec<u8> {
    let mut modulus = vec![0xa5; bits / 8];
    if let Some(last) = modulus.last_mut() {
        *last |= 1;
    }
    modulus.insert(0, 0);
    let mut exponent = exponent.to_vec();
    let mut der = vec![0x02, u8::try_from(exponent.len()).unwrap()];
    der.append(&mut exponent);
    sequence(&[integer(&modulus), der].concat())
}

#[test]
fn small_rsa_keys_are_refused() {
    for bits in [512, 1024, 1536, 2040] {
        let error = PublicKey::parse(&STANDARD.encode(rsa_key(bits, &[1, 0, 1]))).unwrap_err();
        assert!(error.to_string().contains("public_key is refused"), "{bits}: {error}");
    }
    assert!(PublicKey::parse(&STANDARD.encode(rsa_key(2048, &[1, 0, 1]))).is_ok());
    for exponent in [&[1][..], &[2], &[1, 0, 0], &[0x7f, 1, 1, 1, 1, 1, 1, 1, 1]] {
        assert!(PublicKey::parse(&STANDARD.encode(rsa_key(2048, exponent))).is_err(), "{exponent:?}");
    }
}

#[test]
fn rsa_encodings_are_one_key() {
    let pair = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let pkcs1 = pair.public_key().as_ref().to_vec();
    let public = PublicKey::parse(&STANDARD.encode(&pkcs1)).unwrap();
    let spki = STANDARD.decode(public.to_wire()).unwrap();
    assert_ne!(spki, pkcs1);
    assert!(spki.ends_with(&pkcs1), "SPKI is written");
    assert_eq!(PublicKey::parse(&public.to_wire()).unwrap(), public);
    // A zero before the modulus, a length in a longer form, trailing bytes.
    let modulus = &pkcs1[9..9 + 256];
    let mut padded = vec![0, 0];
    padded.extend_from_slice(modulus);
    let exponent = &pkcs1[9 + 256..];
    let odd = [
        sequence(&[&integer(&padded), exponent].concat()),
        [&[0x30, 0x83, 0], &pkcs1[2..]].concat(),
        [&pkcs1[..], &[0]].concat(),
        [&spki[..], &[0]].concat(),
    ];
    for der in odd {
        let parsed = PublicKey::parse(&STANDARD.encode(&der));
        assert!(parsed.is_err(), "{:02x?}", &der[..16]);
    }
}

proptest::proptest! {
    /// Every accepted key has one encoding, and equal keys encode alike.
    #[test]
    fn parsed_keys_have_one_spelling(seed: [u8; 32], flips in proptest::collection::vec(0..352_usize, 0..3), is_der: bool) {
        let raw = SecretKey::from_seed(&seed).public().bytes;
        let mut bytes = if is_der { [&ED25519_SPKI[..], &raw].concat() } else { raw.clone() };
        for flip in flips {
            let length = bytes.len();
            bytes[flip / 8 % length] ^= 1 << (flip % 8);
        }
        if let Ok(key) = PublicKey::parse(&STANDARD.encode(&bytes)) {
            let again = PublicKey::parse(&key.to_wire()).unwrap();
            proptest::prop_assert_eq!(&again, &key);
            proptest::prop_assert!(bytes.ends_with(&key.bytes), "only the DER header is dropped");
        }
    }
}
