use super::*;

#[test]
fn link_local_and_metadata_addresses_are_refused() {
    for address in [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "::ffff:192.0.0.192",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
    ] {
        assert!(check_address(address.parse().expect("an address")).is_err(), "{address}");
    }
    for address in ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "fd00::1", "1.1.1.1", "64:ff9b::1.1.1.1"] {
        assert!(check_address(address.parse().expect("an address")).is_ok(), "{address}");
    }
}

#[tokio::test]
async fn resolved_addresses_are_checked() {
    let addresses = resolve("localhost", 80).await.expect("localhost is known");
    assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
    // Resolving an address literal is the closest to DNS poisoning that a test without a name server can get.
    assert!(resolve("169.254.169.254", 80).await.is_err());
}
