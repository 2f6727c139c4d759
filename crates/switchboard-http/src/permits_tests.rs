use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn permits_are_limited_and_released() {
    let places = ConnectionPermits::new(3, Some(2));
    let first = places.acquire(ip("192.0.2.1")).unwrap();
    let second = places.acquire(ip("192.0.2.1")).unwrap();
    assert!(places.acquire(ip("192.0.2.1")).is_none());
    let third = places.acquire(ip("192.0.2.2")).unwrap();
    assert!(places.acquire(ip("192.0.2.3")).is_none());
    drop(first);
    assert!(places.acquire(ip("192.0.2.1")).is_some());
    drop((second, third));
    assert_eq!(places.usage.lock().all, 0);
    assert!(places.usage.lock().by_client.is_empty());
}

#[test]
fn ipv6_network_is_one_client() {
    let places = ConnectionPermits::new(10, Some(1));
    let _place = places.acquire(ip("2001:db8:1:2::1")).unwrap();
    assert!(places.acquire(ip("2001:db8:1:2:ffff::9")).is_none());
    assert!(places.acquire(ip("2001:db8:1:3::1")).is_some());
}

#[test]
fn mapped_ipv4_address_is_same_client() {
    let places = ConnectionPermits::new(10, Some(1));
    let _place = places.acquire(ip("192.0.2.1")).unwrap();
    assert!(places.acquire(ip("::ffff:192.0.2.1")).is_none());
    assert!(places.acquire(ip("::ffff:192.0.2.2")).is_some());
}

#[test]
fn proxy_has_only_total_limit() {
    let places = ConnectionPermits::new(2, None);
    let _places = (places.acquire(ip("127.0.0.1")).unwrap(), places.acquire(ip("127.0.0.1")).unwrap());
    assert!(places.acquire(ip("127.0.0.1")).is_none());
}
