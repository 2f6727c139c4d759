//! DER forms of an RSA public key (RFC 8017 A.1.1, RFC 3279 2.3.1), parsed strictly and normalized to SPKI.

/// `rsaEncryption` with its NULL parameters, as the algorithm of an SPKI names it.
const ALGORITHM: [u8; 15] =
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

/// DER tag of an integer, followed by the tags of a bit string and a sequence (X.690 8.1.2).
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

const UNREADABLE: &str = "it is neither 32 bytes of Ed25519 nor an RSA key in DER (SPKI or PKCS#1)";
const SIZE: &str = "its RSA modulus must have 2048 to 8192 bits; make a larger key";
const EXPONENT: &str = "its RSA exponent must be odd and lie between 3 and 2^33; use 65537";

/// Returns the SPKI form of a key in SPKI or PKCS#1 form, if its size and exponent are acceptable.
pub(super) fn normalize(der: &[u8]) -> Result<Vec<u8>, &'static str> {
    let pkcs1 = read_spki(der).unwrap_or(der);
    let (modulus, exponent) = read_pkcs1(pkcs1).ok_or(UNREADABLE)?;
    if !(2048..=8192).contains(&bits(modulus)) || modulus.last().is_none_or(|byte| byte % 2 == 0) {
        return Err(SIZE);
    }
    if !(2..=33).contains(&bits(exponent)) || exponent.last().is_none_or(|byte| byte % 2 == 0) {
        return Err(EXPONENT);
    }
    let mut text = vec![0];
    text.extend_from_slice(pkcs1);
    Ok(write(SEQUENCE, &[&ALGORITHM[..], &write(BIT_STRING, &text)].concat()))
}

/// Extracts the PKCS#1 form from an SPKI.
fn read_spki(der: &[u8]) -> Option<&[u8]> {
    let (body, []) = read(SEQUENCE, der)? else { return None };
    let (text, []) = read(BIT_STRING, body.strip_prefix(&ALGORITHM)?)? else { return None };
    text.strip_prefix(&[0])
}

/// Returns modulus and exponent without leading zeros.
fn read_pkcs1(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (body, []) = read(SEQUENCE, der)? else { return None };
    let (modulus, rest) = read(INTEGER, body)?;
    let (exponent, []) = read(INTEGER, rest)? else { return None };
    Some((read_positive(modulus)?, read_positive(exponent)?))
}

/// Parses a positive number in its shortest form: a leading zero only if the highest bit is set.
fn read_positive(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [0, rest @ ..] => rest.first().is_some_and(|first| first & 0x80 != 0).then_some(rest),
        [first, ..] => (first & 0x80 == 0).then_some(bytes),
        [] => None,
    }
}

/// Returns the bit length of a number without leading zeros.
fn bits(number: &[u8]) -> usize {
    number.first().map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize)
}

/// Returns the content of a DER value with this tag, and the bytes after it.
///
/// Lengths must have their shortest form (X.690 10.1).
fn read(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [found, first, rest @ ..] = der else { return None };
    if *found != tag {
        return None;
    }
    let (length, rest) = match (first, rest) {
        (0..=0x7f, rest) => (usize::from(*first), rest),
        (0x81, [length @ 0x80..=0xff, rest @ ..]) => (usize::from(*length), rest),
        (0x82, [high @ 1..=0xff, low, rest @ ..]) => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// Encodes a DER value with this tag. Keys within the text limit need at most two bytes for the length.
fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let [.., high, low] = content.len().to_be_bytes();
    let mut der = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    der.extend_from_slice(content);
    der
}
