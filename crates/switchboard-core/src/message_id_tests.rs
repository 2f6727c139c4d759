use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

#[test]
fn ids_increase_when_clock_jumps() {
    let hour = 3_600_000;
    let ten_years = 10 * 365 * 24 * hour;
    let times = [1_000_000_000_000, 0, 0, -hour, -hour, 1, ten_years, 0]
        .map(|t| if t >= 1_000_000_000_000 { at(t) } else { at(1_000_000_000_000 + t) });
    let mut clock = IdClock::default();
    let ids: Vec<_> = times.iter().map(|now| clock.next(*now, u128::MAX)).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
}

#[test]
fn id_is_version_7_uuid() {
    let id = IdClock::default().next(at(1_763_000_000_000), 42);
    let uuid = Uuid::parse_str(&id.to_string()).unwrap();
    assert_eq!(uuid.get_version_num(), 7);
    assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
    assert_eq!(id.to_string().parse(), Ok(id));
}

proptest::proptest! {
    #[test]
    fn parts_round_trip_and_keep_order(a in (0..1u64 << 48, 0..1u128 << 74), b in (0..1u64 << 48, 0..1u128 << 74)) {
        let (x, y) = (MessageId::from_parts(a.0, a.1), MessageId::from_parts(b.0, b.1));
        proptest::prop_assert_eq!(x.parts(), a);
        proptest::prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        proptest::prop_assert_eq!(x.to_string().cmp(&y.to_string()), a.cmp(&b));
    }
}
